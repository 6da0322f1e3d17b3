"""Q-learning and Sarsa from rollouts with a memory: targets against worked-out numbers, and where states go."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from some_values import Counts
from torch.testing import assert_close

from gossamer.algorithms.nstep_q import NStepQ
from gossamer.algorithms.one_step import OneStepQ, Sarsa
from gossamer.algorithms.pqn import PQN
from gossamer.algorithms.sequences import ACTED, LAST, q_of
from gossamer.algorithms.target import add_target
from gossamer.data import Final, Trajectory
from gossamer.nn.networks import Network, QNetwork
from gossamer.nn.torsos import mlp
from gossamer.spaces import Discrete, Spec

RNG = torch.Generator()


# Rows are counts 0, 1, 2, ..: the network, and its target network
ONLINE = [[0.0, 0.0], [1.0, 2.0], [4.0, 3.0], [5.0, 6.0], [8.0, 7.0]]
OLDER = [[6.0, 8.0], [10.0, 30.0], [50.0, 70.0], [90.0, 110.0], [130.0, 150.0]]


def networks() -> Counts:
    """A network with a target network."""
    model = Counts(OLDER)
    add_target(model)
    target: Any = model.target
    target.followed(model, 10**9)  # copies OLDER now, and not again
    with torch.no_grad():
        model.returns.copy_(torch.tensor(ONLINE))
    return model


def rollout() -> Trajectory:
    """Two steps of three environments, with rewards 1 and 2, whose states have counted 1 step. The first episode goes
    on: counts 1, 2, 3. The second one terminates with its first step: counts 1, 0, 1. The third one is truncated there:
    its reward includes what the policy that acted expected of its final observation, 0.25, before which the state had
    counted 3. The action 0 was taken, which the policy, with epsilon 0.4, thought the best one."""
    slot = Trajectory.empty(2, 3, (1,), torch.float32, state={"count": torch.ones(3, 1)})
    slot.reward.copy_(torch.tensor([[1.0], [2.0]]).expand(2, 3))
    slot.discount.fill_(0.5)
    slot.behaviour.fill_(math.log(0.8))
    slot.discount[0, 1:] = 0.0
    slot.begins[1, 1:] = True
    slot.reward[0, 2] += 0.25
    slot.finals.append(Final(0, 2, torch.zeros(1), {"count": torch.tensor([3.0])}, 0.25))
    return slot


def targets(algorithm: Any) -> list[list[float]]:
    """The target of each environment and step: its error, and the value of action 0 at the counts 1, 2; 1, 0; 1, 0."""
    batch = rollout()
    (loss,) = algorithm.losses(networks(), batch, RNG)
    assert loss.priority is not None
    own = torch.tensor([[1.0, 4.0], [1.0, 0.0], [1.0, 0.0]])
    answer: list[list[float]] = (loss.priority.view_as(batch.reward).T + own).tolist()
    return answer


def test_n_step_targets_bootstrap_by_the_state_that_each_network_has_at_the_end() -> None:
    """x_2 has the counts 3, 1 and 1, whose best values by the target network are 110, 30 and 30."""
    assert targets(NStepQ(gamma=0.5, target_period=10**9)) == [
        [1 + 0.5 * (2 + 0.5 * 110), 2 + 0.5 * 110],
        [1, 2 + 0.5 * 30],
        [1 + 0.5 * 110, 2 + 0.5 * 30],  # the final observation has the count 3, too
    ]


def test_double_q_learning_takes_the_action_that_the_network_prefers_at_that_count() -> None:
    """At the counts 3 and 1 it prefers action 1; of a network with other values it is action 0."""
    model = networks()
    with torch.no_grad():
        model.returns.copy_(torch.tensor(ONLINE).flip(1))
    (loss,) = NStepQ(gamma=0.5, double=True, target_period=10**9).losses(model, rollout(), RNG)
    assert loss.priority is not None
    assert_close(loss.priority[3], torch.tensor(2 + 0.5 * 90 - 3))  # the count 2 has 3 by action 0 now


def test_one_step_targets_are_best_values_at_the_next_count() -> None:
    assert targets(OneStepQ(gamma=0.5, target_period=10**9)) == [
        [1 + 0.5 * 70, 2 + 0.5 * 110],
        [1, 2 + 0.5 * 30],
        [1 + 0.5 * 110, 2 + 0.5 * 30],
    ]


def test_sarsa_takes_the_action_that_was_taken_next_or_what_it_expects() -> None:
    """Action 0 at count 2 is worth 50. At count 3 the network prefers action 1: 0.6 * 110 + 0.4 * 100 = 106; at count 1
    likewise 0.6 * 30 + 0.4 * 20, 26."""
    expected = [[1 + 0.5 * 50, 2 + 0.5 * 106], [1, 2 + 0.5 * 26], [1 + 0.5 * 106, 2 + 0.5 * 26]]
    assert_close(torch.tensor(targets(Sarsa(gamma=0.5, target_period=10**9))), torch.tensor(expected))


def test_pqn_splits_a_rollout_by_environments_and_goes_over_each_from_its_state() -> None:
    """Values of acting time are 0, lambda is 1: targets are sums of rewards. Each of two minibatches has all steps of
    its environments; both together have every environment once."""
    batch = rollout()
    targets = torch.tensor([[2.0, 2.0], [1.0, 2.0], [1.25, 2.0]])
    own = torch.tensor([[1.0, 4.0], [1.0, 0.0], [1.0, 0.0]])
    losses = list(PQN(gae_lambda=1.0, epochs=1, num_minibatches=2).losses(networks(), batch, RNG.manual_seed(0)))
    order = torch.randperm(3, generator=RNG.manual_seed(0)).tensor_split(2)
    for loss, envs in zip(losses, order, strict=True):
        assert loss.priority is not None
        assert_close(loss.priority.view(2, -1).T, (targets - own)[envs].abs())


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("method", [NStepQ, OneStepQ, Sarsa])
def test_a_rollout_in_two_halves_has_the_values_of_the_whole(method: Any, kind: str) -> None:
    """A real memory: the values of the second half follow from the state after the first one, and episodes that begin
    within a rollout begin with none."""
    torch.manual_seed(0)
    spec = Spec((3,), np.dtype(np.float32), Discrete(2))
    model = method().model(spec, Network(mlp, memory=kind, memory_units=4))
    assert isinstance(model, QNetwork)
    whole = Trajectory.empty(4, 2, (3,), torch.float32, state=model.initial_state(2))
    whole.obs.copy_(torch.randn(5, 2, 3))
    whole.begins[0], whole.begins[3, 1] = True, True
    q = q_of(model, whole, ACTED)
    _, state = model.unroll(whole.obs[:2], whole.state, whole.begins[:2])
    half = Trajectory.empty(2, 2, (3,), torch.float32, state=state)
    half.obs.copy_(whole.obs[2:])
    half.begins.copy_(whole.begins[2:])
    assert_close(q_of(model, half, ACTED), q[2:])
    assert_close(q_of(model, half, LAST), q_of(model, whole, LAST))
    assert_close(q_of(model, whole, ACTED, torch.tensor([1])), q[:, 1:])
