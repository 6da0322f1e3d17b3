"""Muon against singular value decompositions, torch's own Muon and Adam, and its own continuation from saved state."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from some_parts import a_task
from torch import Tensor, nn
from torch.testing import assert_close

from gossamer.envs.toy import Catch
from gossamer.nn import muon
from gossamer.nn.muon import STEP, TIMES, A, B, C, Muon, orthogonal
from gossamer.nn.optim import Adam
from gossamer.workers.learner import Learner

SHAPES = [(8, 100), (100, 8), (16, 16), (1, 5)]
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


@pytest.fixture(params=PRECISIONS.values(), ids=PRECISIONS)
def precision(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """What is fast on this machine, as far as `orthogonal` knows."""
    monkeypatch.setattr(muon, "multiplies_bfloat16", lambda device: request.param == torch.bfloat16)
    dtype: torch.dtype = request.param
    return dtype


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def polynomial(s: Tensor) -> Tensor:
    for _ in range(TIMES):
        s = A * s + B * s**3 + C * s**5
    return s


def tensors() -> list[Tensor]:
    return [torch.randn(shape, generator=rng(1)).requires_grad_() for shape in ((6, 4), (5, 3, 2, 2), (4,))]


def train(optimizer: torch.optim.Optimizer, params: list[Tensor], seed: int, steps: int) -> None:
    source = rng(seed)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=source)
        optimizer.step()


def hidden(params: list[Tensor]) -> list[dict[str, Any]]:
    return [{"params": params, "hidden": True}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_directions_stay_and_lengths_become_equal(shape: tuple[int, int], precision: torch.dtype) -> None:
    matrix = torch.randn(shape, generator=rng())
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    expected = (u * polynomial(s / s.norm(4))) @ v
    found = orthogonal(matrix)
    assert found.dtype == torch.float32
    assert_close(found, expected, rtol=0, atol=1e-4 if precision == torch.float32 else 0.03)
    assert torch.linalg.svdvals(found).min() > 0.65
    assert torch.linalg.svdvals(found).max() < 1.25


def test_float32_is_exact_where_most_directions_have_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon, "multiplies_bfloat16", lambda device: False)
    u, v = torch.linalg.qr(torch.randn(64, 64, generator=rng()))[0], torch.linalg.qr(torch.randn(200, 64))[0]
    s = torch.logspace(0, -4, 64)
    assert_close(orthogonal((u * s) @ v.T), (u * polynomial(s / s.norm(4))) @ v.T, rtol=0, atol=1e-3)


def test_a_gradient_of_zero_is_no_step(precision: torch.dtype) -> None:
    assert torch.equal(orthogonal(torch.zeros(3, 4)), torch.zeros(3, 4))


def test_steps_do_not_depend_on_the_size_of_gradients(precision: torch.dtype) -> None:
    matrix = torch.randn(8, 20, generator=rng())
    atol = 1e-4 if precision == torch.float32 else 0.03
    assert_close(orthogonal(matrix * 1e-6), orthogonal(matrix), rtol=0, atol=atol)


def test_matrices_take_the_steps_of_torchs_muon() -> None:
    ours = [torch.randn(32, 80, generator=rng()).requires_grad_()]
    theirs = [ours[0].detach().clone().requires_grad_()]
    start = ours[0].detach().clone()
    options: dict[str, Any] = {"weight_decay": 0.0, "momentum": 0.9, "adjust_lr_fn": "match_rms_adamw"}
    train(Muon(hidden(ours), 0.01, momentum=0.9), ours, seed=2, steps=5)
    train(torch.optim.Muon(theirs, 0.01, **options), theirs, seed=2, steps=5)
    mine, its = ((each[0].detach() - start).flatten() for each in (ours, theirs))
    assert torch.cosine_similarity(mine, its, dim=0) > 0.97  # singular values near 1, not at 1; torch's in bfloat16
    assert mine.norm().item() == pytest.approx(its.norm().item(), rel=0.1)


def test_a_step_has_the_length_of_one_of_adam() -> None:
    p = torch.zeros(32, 80, requires_grad=True)
    train(Muon(hidden([p]), 0.01), [p], seed=1, steps=1)
    assert p.detach().square().mean().sqrt().item() == pytest.approx(0.01 * STEP, rel=0.2)


def test_the_kernel_of_a_convolution_has_a_row_for_each_channel() -> None:
    kernel, matrix = torch.zeros(5, 3, 2, 2, requires_grad=True), torch.zeros(5, 12, requires_grad=True)
    last = torch.zeros(5, 3, 2, 2).to(memory_format=torch.channels_last).requires_grad_()
    params = [kernel, matrix, last]
    optimizer = Muon(hidden(params), 0.1)
    for seed in range(3):
        grad = torch.randn(5, 3, 2, 2, generator=rng(seed))
        for p in params:
            p.grad = torch.empty_like(p).copy_(grad.view(p.shape))
        optimizer.step()
    assert_close(kernel.detach().view(5, 12), matrix.detach())
    assert_close(last.detach(), kernel.detach())
    assert last.is_contiguous(memory_format=torch.channels_last)


def test_vectors_and_other_layers_take_adams_steps() -> None:
    ours, theirs = tensors(), tensors()
    groups = [{"params": ours[:2]}, {"params": ours[2:], "hidden": True}]  # matrices of heads, a vector of the torso
    train(Muon(groups, 0.01, eps=1e-3), ours, seed=1, steps=10)
    train(torch.optim.Adam(theirs, 0.01, eps=1e-3), theirs, seed=1, steps=10)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b)


def test_training_goes_on_bit_for_bit_from_saved_state() -> None:
    params = tensors()
    optimizer = Muon(hidden(params), 0.01)
    train(optimizer, params, seed=1, steps=5)
    optimizer.param_groups[0]["lr"] = 0.003
    saved, there = copy.deepcopy(optimizer.state_dict()), [p.detach().clone().requires_grad_() for p in params]
    resumed = Muon(hidden(there), 0.5, momentum=0.1, eps=7.0)  # the saved options win
    resumed.load_state_dict(saved)
    train(optimizer, params, seed=2, steps=5)
    train(resumed, there, seed=2, steps=5)
    assert all(map(torch.equal, params, there))


def test_saved_state_is_loaded_onto_the_device_of_the_parameters() -> None:
    def made(device: str) -> Muon:
        return Muon([nn.Parameter(torch.zeros(3, device=device))], 1e-3)

    there = made("meta")
    there.load_state_dict(made("cpu").state_dict())  # as a checkpoint has it
    (kept,) = there.state.values()
    assert {name: each.device.type for name, each in kept.items()} == dict.fromkeys(kept, "meta")
    assert "step" in kept


def test_state_is_whole_before_the_first_step() -> None:
    state = Muon(hidden(tensors()), 0.01).state_dict()["state"]
    assert [list(each) for each in state.values()] == [["momentum"], ["momentum"], ["step", "exp_avg", "exp_avg_sq"]]
    assert not any(tensor.any() for each in state.values() for tensor in each.values())


def test_parameters_without_a_gradient_are_left_alone() -> None:
    params = tensors()
    before = [p.detach().clone() for p in params]
    optimizer = Muon(hidden(params), 0.01)
    optimizer.step()
    params[0].grad = torch.ones_like(params[0])
    optimizer.step()
    assert [torch.equal(p, b) for p, b in zip(params, before, strict=True)] == [False, True, True]


@pytest.mark.parametrize(
    ("option", "value"), [("lr", -0.1), ("lr", math.nan), ("momentum", 1.0), ("momentum", -0.1), ("eps", 0.0)]
)
def test_numbers_out_of_range_are_refused_by_name(option: str, value: float) -> None:
    options: dict[str, Any] = {"lr": 0.01, option: value}
    with pytest.raises(ValueError, match=f"{option}={value}"):
        Muon(tensors(), **options)


def test_a_learner_turns_the_matrices_of_its_torso_only() -> None:
    learner = Learner(a_task(Catch(pixels=True), optimizer="muon"), Catch(pixels=True).make(1).spec)
    turned = {name for name, p in learner.model.named_parameters() if "momentum" in learner.opt.state[p]}
    assert turned == {"torso.0.weight", "torso.2.weight", "torso.5.weight"}


def test_groups_leave_the_order_of_the_parameters() -> None:
    """Checkpoints of optimizers have a number for each parameter."""
    learner = Learner(a_task(memory="lstm"), Catch().make(1).spec)
    grouped = [p for group in learner.opt.param_groups for p in group["params"]]
    assert all(a is b for a, b in zip(grouped, learner.model.parameters(), strict=True))
    assert isinstance(Adam().make(learner.opt.param_groups, 0.1), torch.optim.Adam)
