"""Deep Q-learning: targets and losses against worked-out numbers, exploration, and what it does not work with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from some_values import ONLINE, Table, h, inverse, networks
from torch import nn
from torch.testing import assert_close

from gossamer.algorithms.base import ReplayPlan
from gossamer.algorithms.dqn import DQN, n_step_errors
from gossamer.algorithms.losses import q_learning
from gossamer.algorithms.rescaling import EPSILON, rescale
from gossamer.algorithms.target import add_target
from gossamer.data import Final, Trajectory
from gossamer.nn.networks import Network, QNetwork
from gossamer.nn.torsos import mlp
from gossamer.spaces import Box, Discrete, Spec
from gossamer.system.errors import UserError

SPEC = Spec((1,), np.dtype(np.float32), Discrete(3))
RNG = torch.Generator()


def windows(steps: int, count: int = 1) -> Trajectory:
    """Windows of so many steps whose observations are 0, 1, 2, .."""
    slot = Trajectory.empty(steps, count, (1,), torch.float32)
    for t in range(steps + 1):
        slot.obs[t] = t
    slot.discount.fill_(0.5)
    return slot


def td_error(algorithm: DQN, batch: Trajectory, model: nn.Module | None = None) -> list[float]:
    """|R - Q(x_0, a_0)| of each window; Q(x_0, .) = 0, so that it is |R|."""
    (loss,) = algorithm.losses(model or networks(), batch, RNG)
    assert loss.priority is not None
    return [round(value, 4) for value in loss.priority.tolist()]


def test_the_target_bootstraps_with_the_target_network_by_the_action_that_the_network_prefers() -> None:
    batch = windows(1)
    batch.reward.fill_(1.0)
    # x_1: the network prefers action 1 (5 of 1, 5, 2), whose value in the target network is 4; its own best is 9
    assert td_error(DQN(gamma=0.5, double=True), batch) == [1 + 0.5 * 4]
    assert td_error(DQN(gamma=0.5, double=False), batch) == [1 + 0.5 * 9]
    assert td_error(DQN(gamma=0.5, double=True, target_period=0), batch) == [1 + 0.5 * 5]


def test_rewards_of_several_steps_are_discounted_until_an_episode_ends() -> None:
    batch = windows(2, count=3)
    batch.reward.copy_(torch.tensor([[1.0, 1.0, 1.0], [4.0, 4.0, 4.0]]))
    batch.discount[0, 1] = 0.0  # the second window's episode ends with its first step,
    batch.discount[1, 2] = 0.0  # the third one's with its second
    # x_2: the network prefers action 0 (3 of 3, 0, 1), which the target network gives 10
    assert td_error(DQN(gamma=0.5, n_step=2), batch) == [1 + 0.5 * 4 + 0.25 * 10, 1.0, 1 + 0.5 * 4]


@pytest.mark.parametrize(("double", "value"), [(True, 4.0), (False, 9.0)])
def test_a_truncated_episode_bootstraps_from_its_final_observation(double: bool, value: float) -> None:
    """The reward includes gamma V(final observation) by the policy that acted, here 0.25: it is estimated anew."""
    batch = windows(2)
    batch.reward.copy_(torch.tensor([[1.25], [100.0]]))
    batch.discount[0] = 0.0
    batch.finals.append(Final(0, 0, torch.tensor([1.0]), {}, 0.25))
    assert td_error(DQN(gamma=0.5, n_step=2, double=double), batch) == [1.0 + 0.5 * value]


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize(("double", "value"), [(True, 4.0), (False, 9.0)])
def test_rescaled_values_are_returns_in_the_target_and_when_acting(double: bool, value: float, truncated: bool) -> None:
    """Of a target network whose output for x_1 is the value, as above."""
    algorithm, batch = DQN(gamma=0.5, n_step=2 if truncated else 1, double=double, rescale_values=True), windows(1)
    batch.reward.fill_(1.0)
    if truncated:
        batch = windows(2)
        batch.reward.copy_(torch.tensor([[1.25], [100.0]]))
        batch.discount[0] = 0.0
        batch.finals.append(Final(0, 0, torch.tensor([1.0]), {}, 0.25))
    (found,) = td_error(algorithm, batch)
    assert found == pytest.approx(h(1 + 0.5 * inverse(value)), abs=2e-4)
    plan = replace(algorithm, priority_exponent=0.6).replay_plan()
    assert plan.priority is not None
    numbers = (torch.tensor([[each]]) for each in (1.0, 0.5))
    first = plan.priority.errors(*numbers, torch.full((2, 1), 30.0), torch.tensor([[3.0]]), torch.zeros(2, 1).bool())
    assert first.item() == pytest.approx(abs(h(1 + 0.5 * 30) - h(3)), abs=1e-5)
    model = algorithm.model(SPEC, Network(mlp))
    obs = torch.zeros(2, 1)
    acted, _ = algorithm.act(model, obs, {}, RNG, greedy=True)
    assert_close(rescale(acted.value, EPSILON), model(obs).amax(-1))
    assert_close(acted.value, algorithm.value(model, obs, {}))


def test_the_target_network_is_copied_every_so_many_updates() -> None:
    algorithm, batch = DQN(gamma=0.5, double=False, target_period=2), windows(1)
    model = Table(ONLINE)
    add_target(model)
    seen = []
    for version, scale in enumerate((1.0, 10.0, 100.0)):
        model.target.version = version
        with torch.no_grad():
            model.values.copy_(torch.tensor(ONLINE) * scale)
        seen += td_error(algorithm, batch, model)
    assert seen == [0.5 * 5, 0.5 * 5, 0.5 * 500]


def test_the_loss_of_errors_against_worked_out_numbers() -> None:
    q = torch.tensor([[1.0, 2.0], [0.0, -1.0], [5.0, 0.0]], requires_grad=True)
    action, target = torch.tensor([1, 0, 0]), torch.tensor([2.5, 3.0, 4.0])  # errors 0.5, 3 and -1
    squared = q_learning(q, action, target, huber=False)
    assert squared.total.item() == pytest.approx((0.25 + 9 + 1) / 2 / 3)
    huber = q_learning(q, action, target, huber=True)
    assert huber.total.item() == pytest.approx((0.25 / 2 + (3 - 0.5) + 1 / 2) / 3)
    assert huber.priority is not None
    assert huber.priority.tolist() == [0.5, 3.0, 1.0]
    assert {name: part.item() for name, part in huber.parts.items()} == pytest.approx({"q": 7 / 3, "td_error": 1.5})
    huber.total.backward()
    assert q.grad is not None
    assert_close(q.grad, torch.tensor([[0, -0.5], [-1, 0], [1, 0]]) / 3)  # the error, clipped to [-1, 1]
    weighted = q_learning(q, action, target, huber=False, weight=torch.tensor([2.0, 0.0, 1.0]))
    assert weighted.total.item() == pytest.approx((2 * 0.25 + 1) / 2 / 3)
    with pytest.raises(AssertionError, match="target is"):
        q_learning(q, action, target.unsqueeze(1), huber=True)


def test_dueling_heads_are_value_and_advantages_about_their_mean() -> None:
    plain, dueling = (QNetwork(SPEC, Network(mlp), dueling=each) for each in (False, True))
    assert dueling.value is not None
    with torch.no_grad():
        for head, bias in ((dueling.advantage, [1.0, 2.0, 6.0]), (dueling.value, [10.0])):
            head.weight.zero_()
            head.bias.copy_(torch.tensor(bias))
    assert_close(dueling(torch.zeros(2, 1)), torch.tensor([[10 - 2.0, 10 - 1.0, 10 + 3.0]] * 2))
    assert plain.value is None
    assert plain(torch.zeros(2, 1)).shape == (2, 3)
    with pytest.raises(ValueError, match="one choice among several, not 2 continuous actions"):
        QNetwork(replace(SPEC, actions=Box((-1.0, -1.0), (1.0, 1.0))), Network(mlp))


def test_sizes_that_contradict_each_other_are_refused_in_a_line() -> None:
    with pytest.raises(UserError, match="--learning-starts 50: must be at most --buffer-size 40"):
        _ = DQN(buffer_size=40, learning_starts=50).replay_plan()
    with pytest.raises(UserError, match="--buffer-size 40: must be at least --batch-size 64"):
        _ = DQN(buffer_size=40, learning_starts=1, batch_size=64).replay_plan()


def test_it_is_given_windows_of_its_own_length() -> None:
    plan = DQN(n_step=5, buffer_size=999, batch_size=7, samples_per_insert=2.0, learning_starts=30).replay_plan()
    assert plan == ReplayPlan(999, batch_size=7, window=5, samples_per_insert=2.0, learning_starts=30, inner=False)


def test_it_draws_by_priority_if_the_exponent_is_not_0() -> None:
    assert DQN(importance_exponent=0.7).replay_plan().priority is None
    priority = DQN(priority_exponent=0.6, importance_exponent=0.7).replay_plan().priority
    assert priority is not None
    assert (priority.exponent, priority.correction) == (0.6, 0.7)


def test_the_first_priorities_are_errors_by_the_values_of_acting_time() -> None:
    """Three windows of two steps with discount 0.5 and Q(x_0, a_0) = 1: 1 + 0.5 * (2 + 0.5 * 8) - 1 = 3; the second
    one's episode ends with its first step, 1 - 1 = 0; the third one's with its second, 1 + 0.5 * 2 - 1 = 1."""
    discount = torch.tensor([[0.5, 0.0, 0.5], [0.5, 0.5, 0.0]])
    errors = n_step_errors(
        reward=torch.tensor([[1.0] * 3, [2.0] * 3]),
        discount=discount,
        value=torch.tensor([[9.0] * 3, [9.0] * 3, [8.0] * 3]),
        chosen=torch.tensor([[1.0] * 3, [9.0] * 3]),
        begins=torch.zeros(3, 3, dtype=torch.bool),
    )
    assert errors.tolist() == [3.0, 0.0, 1.0]
