"""Action values with memory: against one step at a time, with masks, and without a memory to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gossamer.nn.networks import Network, QNetwork, action_values
from gossamer.nn.torsos import mlp
from gossamer.spaces import IMPOSSIBLE, Discrete, Spec
from gossamer.spaces.observations import MASK, Layout, Part

SPEC = Spec((3,), np.dtype(np.float32), Discrete(4))


def a_network(memory: str, spec: Spec = SPEC, **options: Any) -> QNetwork:
    torch.manual_seed(0)
    return QNetwork(spec, Network(mlp, memory=memory, memory_units=8, orthogonal=False), **options)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_a_rollout_at_once_equals_one_step_at_a_time(memory: str, dueling: bool) -> None:
    model, obs, state = a_network(memory, dueling=dueling), torch.randn(5, 2, 3), None
    begins = torch.zeros(5, 2, dtype=torch.bool)
    begins[0] = begins[3, 1] = True
    at_once, last = model.unroll(obs, model.initial_state(2), begins)
    state = model.initial_state(2)
    for t, q in enumerate(at_once.view(5, 2, 4)):
        policy, value, state = model.step(obs[t], state, begins[t])
        assert_close(policy.parameters, q)
        assert_close(value, q.amax(-1))
    for name, rows in last.items():
        assert_close(state[name], rows)


def test_acting_goes_on_from_the_state() -> None:
    model, obs = a_network("lstm"), torch.randn(3, 2, 3)
    begins = torch.zeros(3, 2, dtype=torch.bool)
    at_once, _ = model.unroll(obs, model.initial_state(2), begins)
    state, found = model.initial_state(2), list[Tensor]()
    for each in obs:
        q, state = action_values(model, each, state)
        found.append(q)
    assert_close(torch.cat(found), at_once)


@pytest.mark.parametrize("dueling", [False, True])
def test_without_memory_a_rollout_equals_its_observations_to_the_bit(dueling: bool) -> None:
    model, obs = a_network("none", dueling=dueling), torch.randn(5, 2, 3)
    q, state = model.unroll(obs, {}, torch.ones(5, 2, dtype=torch.bool))
    assert torch.equal(q, model(obs.flatten(0, 1)))
    assert state == model.initial_state(2) == {}
    stepped, _, _ = model.step(obs[0], {}, torch.ones(2, dtype=torch.bool))
    alone = model(obs[0])
    assert torch.equal(stepped.parameters, alone)
    assert torch.equal(action_values(model, obs[0], {})[0], alone)


def test_with_a_memory_its_state_is_needed() -> None:
    with pytest.raises(RuntimeError, match="a network with memory needs its state: use unroll"):
        a_network("gru")(torch.zeros(2, 3))


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_actions_that_are_masked_have_no_value(memory: str) -> None:
    layout = Layout((Part("arm", (3,), np.dtype(np.float32)), Part(MASK, (4,), np.dtype(np.uint8))))
    model = a_network(memory, Spec((layout.size,), np.dtype(np.uint8), Discrete(4), layout=layout), dueling=True)
    valid = np.array([[1, 1, 0, 1], [0, 0, 1, 0]], np.uint8)
    packed = torch.from_numpy(layout.pack({"arm": np.ones((2, 3), np.float32), MASK: valid}))
    q, _ = model.unroll(packed.unsqueeze(1), model.initial_state(1), torch.zeros(2, 1, dtype=torch.bool))
    assert torch.equal(q == IMPOSSIBLE, torch.from_numpy(valid == 0))


def test_values_on_another_scale_are_reported_as_returns() -> None:
    model = a_network("lstm", returns=torch.exp)
    policy, value, _ = model.step(torch.randn(2, 3), model.initial_state(2), torch.zeros(2, dtype=torch.bool))
    assert_close(value, policy.parameters.amax(-1).exp())
