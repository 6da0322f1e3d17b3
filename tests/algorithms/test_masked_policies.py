"""Action masks from acting to the loss: log-probabilities and entropies are those of the valid choices."""

from __future__ import annotations

import pytest
import torch
from some_masks import DOORS, ENVS, all_valid, valid_softmax
from some_parts import a_task, sharpen
from torch import Tensor
from torch.testing import assert_close

from gossamer.algorithms import A2C, PPO, Algorithm, AsyncPPO, VTrace
from gossamer.algorithms.base import evaluate, evaluate_to_end, initial_state
from gossamer.algorithms.minibatches import minibatches
from gossamer.data import Trajectory
from gossamer.nn.networks import ActorCritic
from gossamer.policy import NetworkPolicy, build
from gossamer.workers.actor import Actor
from gossamer.workers.clock import Clock

T, B = 6, 4
PASS = {"epochs": 1, "num_minibatches": 2}  # minibatches of 12 steps each
ALGORITHMS: list[Algorithm] = [A2C(), PPO(**PASS), VTrace(), AsyncPPO(**PASS)]

memories = pytest.mark.parametrize("memory", ["none", "gru"])


@pytest.fixture(autouse=True)
def users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ENVS)


def acted(algorithm: Algorithm, memory: str) -> tuple[ActorCritic, Trajectory]:
    """The second rollout, which begins within an episode (of 7 steps)."""
    task, doors = a_task(DOORS, algorithm, memory=memory, memory_units=8), DOORS.make(B)
    model = build(task, doors.spec)
    assert isinstance(model, ActorCritic)
    sharpen(model, 200)
    replica = NetworkPolicy(model, algorithm, torch.Generator().manual_seed(0))
    actor = Actor(doors, replica, gamma=0.9, seed=0, clock=Clock())
    shape, space = doors.spec.obs_shape, doors.spec.actions.shape
    slot = Trajectory.empty(T, B, shape, torch.uint8, space, state=initial_state(model, B))
    for _ in range(2):
        actor.unroll(slot)
    return model, slot


@torch.no_grad()
def by_hand(model: ActorCritic, slot: Trajectory) -> list[Tensor]:
    """The probabilities [T * B, size] of each choice."""
    obs = slot.obs[:-1]
    outputs = model.unroll(all_valid(model, obs), slot.state, slot.begins[:-1])[0].parameters
    return valid_softmax(model, obs.flatten(0, 1), outputs)


@memories
def test_learning_evaluates_the_masked_probabilities_that_were_acted_with(memory: str) -> None:
    model, slot = acted(PPO(), memory)
    action, behaviour = slot.action.flatten(0, 1), slot.behaviour.flatten()
    chosen = [pi.gather(1, action[:, [i]]).log() for i, pi in enumerate(by_hand(model, slot))]
    assert_close(behaviour, torch.cat(chosen, 1).sum(1).float(), rtol=1e-4, atol=1e-5)
    for policy, _ in (evaluate(model, slot), evaluate_to_end(model, slot)):
        assert_close(policy.log_prob(action), behaviour)
    for index, policy, _ in minibatches(model, slot, torch.Generator().manual_seed(0), count=2):
        assert_close(policy.log_prob(action[index]), behaviour[index])


@memories
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=["a2c", "ppo", "vtrace", "appo"])
def test_the_entropy_in_the_loss_is_that_of_the_valid_choices(algorithm: Algorithm, memory: str) -> None:
    # H = -sum p ln p of both choices; minibatches are of equal size, so that the mean of their means is that of all
    model, slot = acted(algorithm, memory)
    expected = sum(-torch.xlogy(pi, pi).sum(1).mean().item() for pi in by_hand(model, slot))
    losses = list(algorithm.losses(model, slot, torch.Generator().manual_seed(0)))
    found = sum(loss.parts["entropy"].item() for loss in losses) / len(losses)
    assert found == pytest.approx(expected, rel=1e-4)
