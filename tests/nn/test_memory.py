"""Memory: against one step at a time, against episodes apart, and in what it lets agents learn."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from some_parts import a_network
from torch.autograd import gradcheck
from torch.testing import assert_close

from gossamer.nn.memory import Memory, reset
from gossamer.nn.networks import ActorCritic
from gossamer.nn.torsos import mlp
from gossamer.spaces import Discrete

KINDS: list[Literal["lstm", "gru"]] = ["lstm", "gru"]


def a_recurrent_network(kind: str = "lstm") -> ActorCritic:
    torch.manual_seed(0)
    return a_network((3,), Discrete(2), mlp, memory=kind, memory_units=8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_at_once_equals_one_step_at_a_time(kind: Literal["lstm", "gru"]) -> None:
    memory, features = Memory(kind, 4, 8), torch.randn(7, 3, 4)
    begins = torch.zeros(7, 3, dtype=torch.bool)
    begins[2, 1] = begins[5, 0] = begins[5, 2] = True
    state = {name: torch.randn(3, 8) for name in memory.names}
    at_once, last = memory(features, state, begins)
    for t in range(7):
        output, state = memory(features[t : t + 1], state, begins[t : t + 1])
        assert_close(output[0], at_once[t])
    for name in memory.names:
        assert_close(state[name], last[name])


@pytest.mark.parametrize("kind", KINDS)
def test_two_episodes_in_one_rollout_equal_the_two_apart(kind: str) -> None:
    model, obs = a_recurrent_network(kind), torch.randn(9, 1, 3)
    begins = torch.zeros(9, 1, dtype=torch.bool)
    begins[0] = begins[4] = True
    policy, value, _ = model.unroll(obs, model.initial_state(1), begins)
    for episode in (slice(0, 4), slice(4, 9)):
        apart, its_value, _ = model.unroll(obs[episode], model.initial_state(1), begins[episode])
        assert_close(apart.parameters, policy.parameters[episode])
        assert_close(its_value, value[episode])


def test_no_gradient_crosses_the_beginning_of_an_episode() -> None:
    model, obs = a_recurrent_network(), torch.randn(6, 1, 3, requires_grad=True)
    begins = torch.zeros(6, 1, dtype=torch.bool)
    begins[3] = True
    model.unroll(obs, model.initial_state(1), begins)[1][5].backward()
    assert obs.grad is not None
    seen = obs.grad.abs().sum((1, 2)) > 0
    assert seen.tolist() == [False, False, False, True, True, True]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(kind: Literal["lstm", "gru"]) -> None:
    memory = Memory(kind, 2, 3).double()
    begins = torch.tensor([[False, True], [True, False], [False, False]])
    state = [torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in memory.names]
    features = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)

    def outputs(features: torch.Tensor, *state: torch.Tensor) -> torch.Tensor:
        found, _ = memory(features, dict(zip(memory.names, state, strict=True)), begins)
        assert isinstance(found, torch.Tensor)
        return found

    assert gradcheck(outputs, (features, *state))


def test_without_memory_a_rollout_equals_its_steps_to_the_bit() -> None:
    model, obs = a_network((3,), Discrete(2), mlp), torch.randn(5, 4, 3)
    policy, value, state = model.unroll(obs, {}, torch.ones(5, 4, dtype=torch.bool))
    plain, plain_value = model(obs.flatten(0, 1))
    assert torch.equal(policy.parameters, plain.parameters)
    assert torch.equal(value, plain_value)
    assert state == model.initial_state(4) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_of_episodes_of_one_step_equals_a_network_that_forgets(kind: str) -> None:
    model, obs = a_recurrent_network(kind), torch.randn(5, 4, 3)
    before = {name: torch.randn(4, 8) for name in model.initial_state(4)}
    policy, value, after = model.unroll(obs, before, torch.ones(5, 4, dtype=torch.bool))
    steps = [model.unroll(each.unsqueeze(0), model.initial_state(4), torch.zeros(1, 4) > 0) for each in obs]
    assert_close(policy.parameters, torch.cat([one.parameters for one, _, _ in steps]))
    assert_close(value, torch.cat([one for _, one, _ in steps]))
    for name, rows in steps[-1][2].items():
        assert_close(after[name], rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_of_each_gate_are_orthogonal_at_first(kind: str) -> None:
    memory = a_recurrent_network(kind).memory
    assert memory is not None
    for name, weights in memory.core.named_parameters():
        for gate in weights.detach().chunk(4 if kind == "lstm" else 3):
            if name.startswith("bias"):
                assert not gate.any()
            else:  # [8, F]: orthonormal rows, or columns where these are fewer
                product = gate @ gate.T if gate.shape[0] <= gate.shape[1] else gate.T @ gate
                assert_close(product, torch.eye(len(product)))


def test_a_reset_touches_only_the_episodes_that_begin() -> None:
    state = {"hidden": torch.ones(3, 2), "cell": torch.full((3, 2), 2.0)}
    found = reset(state, torch.tensor([False, True, False]))
    assert found["hidden"].tolist() == [[1, 1], [0, 0], [1, 1]]
    assert found["cell"].tolist() == [[2, 2], [0, 0], [2, 2]]


def test_a_recurrent_network_refuses_to_forget() -> None:
    with pytest.raises(RuntimeError, match="needs its state: use unroll"):
        a_recurrent_network()(torch.randn(2, 3))
