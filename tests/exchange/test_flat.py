"""A model as one vector: views that stay views, whatever happens to the model."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from some_parts import a_network
from torch import nn
from torch.optim import Adam

from gossamer.algorithms.target import Target, add_target
from gossamer.algorithms.traces import Traces
from gossamer.exchange.flat import ALIGN, Flat, local_state
from gossamer.nn.networks import ActorCritic
from gossamer.nn.normalization import Moments, ValueHead
from gossamer.nn.torsos import mlp, small
from gossamer.spaces import Discrete


def a_model() -> ActorCritic:
    return a_network((4, 42, 42), Discrete(3), small)


def test_parameters_are_views_of_the_vector() -> None:
    model = a_model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    flat = Flat(model)
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name])
        assert p.stride() == before[name].stride()  # channels last stays channels last
        assert p.data_ptr() % (4 * ALIGN) == flat.vector.data_ptr() % (4 * ALIGN)
    flat.vector.zero_()
    assert not any(p.any() for p in model.parameters())
    assert sum(p.numel() for p in model.parameters()) <= flat.vector.numel()


def test_a_layer_in_units_of_running_statistics_is_beside_them_at_the_end() -> None:
    model = nn.ModuleDict({"value": ValueHead(8), "torso": nn.Linear(8, 8), "moments": Moments((2,), 10)})
    flat = Flat(model)
    flat.vector.zero_()
    model["torso"].weight.data.fill_(1.0)
    model["value"].linear.weight.data.fill_(2.0)
    model["value"].moments.mean.data.fill_(3.0)
    assert set(flat.vector[: flat.separable].tolist()) == {0.0, 1.0}
    assert set(flat.vector[flat.separable : flat.trained].tolist()) == {0.0, 2.0}
    assert set(flat.vector[flat.trained :].tolist()) == {0.0, 3.0}
    assert flat.separable < flat.trained < len(flat.vector)
    assert Flat(nn.Linear(8, 8)).separable == Flat(nn.Linear(8, 8)).trained == 80


def test_a_step_after_a_swap_leaves_the_old_vector_alone() -> None:
    model = a_model()
    flat, opt = Flat(model), Adam(model.parameters(), 0.1, fused=True)
    published = flat.vector
    kept = published.clone()
    for _ in range(2):
        flat.swap(flat.vector.clone())
        model(torch.zeros(2, 4, 42, 42))[0].parameters.sum().backward()
        opt.step()
        assert torch.equal(published, kept)
        assert not torch.equal(flat.vector, kept)


def test_gradients_lie_like_the_parameters() -> None:
    model = a_model()
    flat = Flat(model)
    assert not flat.gradient().any()  # none yet
    model(torch.rand(2, 4, 42, 42))[1].sum().backward()
    for p, view in zip(model.parameters(), flat.views(flat.gradient()), strict=True):
        assert torch.equal(view, torch.zeros_like(p) if p.grad is None else p.grad)
    assert model.policy.weight.grad is None  # only the value was asked for


def test_equal_models_have_equal_layouts_and_others_do_not() -> None:
    assert Flat(a_model()).layout == Flat(a_model()).layout
    assert len(Flat(a_model()).layout) == 8
    others = [a_network((4, 42, 42), Discrete(4), small), a_network((6,), Discrete(3), mlp)]
    assert Flat(a_model()).layout not in [Flat(other).layout for other in others]


def test_a_target_network_is_not_exchanged() -> None:
    model = a_model()
    before = Flat(deepcopy(model))
    add_target(model)
    flat = Flat(model)
    assert flat.layout == before.layout
    flat.swap(flat.vector + 1)
    target = model.target
    assert isinstance(target, Target)
    old = before.views(before.vector)
    assert all(map(torch.equal, target.model.parameters(), old))
    assert not any(map(torch.equal, flat.views(flat.vector), old))


def test_only_float32_is_averaged() -> None:
    with pytest.raises(ValueError, match="float32"):
        Flat(nn.Linear(2, 2).double())
    with pytest.raises(ValueError, match="float32"):
        Flat(nn.ReLU())


def test_a_learner_s_traces_are_not_given_to_others() -> None:
    model = nn.Module()
    model.traces, model.target = Traces(), nn.Linear(2, 1)
    model.target.exchanged = False  # type: ignore[assignment]
    assert set(local_state(model)) == {"target.weight", "target.bias"}
