"""n-step Q-learning: targets against worked-out numbers and a slow ground truth, and what its gradient moves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from some_values import ONLINE, Table, h, inverse, networks
from torch.testing import assert_close

from gossamer.algorithms.nstep_q import NStepQ
from gossamer.algorithms.target import add_target
from gossamer.algorithms.target import targets as targets_of
from gossamer.data import Final, Trajectory

RNG = torch.Generator()


def rollout() -> Trajectory:
    """Three steps of three environments, whose rewards are 1, 2 and 4 and whose last observation is 2. The first
    episode goes on, the second one terminates with its second step, and the third one is truncated there: its reward
    includes what the policy that acted expected of the final observation 1, here 0.25."""
    slot = Trajectory.empty(3, 3, (1,), torch.float32)
    slot.obs[-1] = 2
    slot.reward.copy_(torch.tensor([[1.0], [2.0], [4.0]]).expand(3, 3))
    slot.discount.fill_(0.5)
    slot.discount[1, 1:] = 0.0
    slot.reward[1, 2] += 0.25
    slot.finals.append(Final(1, 2, torch.tensor([1.0]), {}, 0.25))
    return slot


def targets(algorithm: NStepQ, batch: Trajectory) -> list[list[float]]:
    """R_t of each environment: all observations but the last are 0, where all values are 0."""
    (loss,) = algorithm.losses(networks(), batch, RNG)
    assert loss.priority is not None
    answer: list[list[float]] = loss.priority.view(3, 3).T.tolist()
    return answer


@pytest.mark.parametrize(
    ("options", "border", "final"),
    [
        ({"double": False}, 30.0, 9.0),  # the best of 10, 20, 30 and of 7, 4, 9, by the target network
        ({"double": True}, 10.0, 4.0),  # those of the actions 0 and 1, which the network prefers
        ({"target_period": 0}, 3.0, 5.0),  # the best of 3, 0, 1 and of 1, 5, 2, by the network itself
    ],
    ids=str,
)
def test_targets_are_returns_to_the_end_of_the_episode_or_of_the_rollout(
    options: dict[str, Any], border: float, final: float
) -> None:
    last = 4 + 0.5 * border
    cut = 2 + 0.5 * final
    assert targets(NStepQ(gamma=0.5, **options), rollout()) == [
        [1 + 0.5 * (2 + 0.5 * last), 2 + 0.5 * last, last],
        [1 + 0.5 * 2, 2, last],
        [1 + 0.5 * cut, cut, last],
    ]


@pytest.mark.parametrize(("double", "border", "final"), [(False, 30.0, 9.0), (True, 10.0, 4.0)])
def test_with_rescaled_values_the_returns_of_the_border_are_those_of_the_networks_outputs(
    double: bool, border: float, final: float
) -> None:
    last = 4 + 0.5 * inverse(border)
    cut = 2 + 0.5 * inverse(final)
    expected = [
        [1 + 0.5 * (2 + 0.5 * last), 2 + 0.5 * last, last],
        [1 + 0.5 * 2, 2, last],
        [1 + 0.5 * cut, cut, last],
    ]
    found = torch.tensor(targets(NStepQ(gamma=0.5, double=double, rescale_values=True), rollout()))
    assert_close(found, torch.tensor([[h(each) for each in row] for row in expected]), rtol=1e-4, atol=1e-4)


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_targets_are_sums_of_discounted_rewards(steps: list[tuple[int, bool]], gamma: float) -> None:
    batch = Trajectory.empty(len(steps), 1, (1,), torch.float32)
    batch.obs[-1] = 2
    for t, (reward, ends) in enumerate(steps):
        batch.reward[t], batch.discount[t] = reward, gamma * (not ends)
    expected = []
    for start in range(len(steps)):
        total, weight = 0.0, 1.0
        for reward, ends in steps[start:]:
            total, weight = total + weight * reward, weight * gamma * (not ends)
        expected.append(abs(total + weight * 30))
    (loss,) = NStepQ(gamma=gamma).losses(networks(), batch, RNG)
    assert loss.priority is not None
    assert_close(loss.priority, torch.tensor(expected))


def test_the_gradient_is_that_of_the_action_values_that_were_acted() -> None:
    """Half the squared error, averaged over nine samples. The observations are 0, and x_3 = 2 is not learned from."""
    batch, model = rollout(), networks()
    batch.action[0] = 1
    (loss,) = NStepQ(gamma=0.5).losses(model, batch, RNG)
    assert loss.priority is not None
    loss.total.backward()  # type: ignore[no-untyped-call]
    sums = loss.priority.view(3, 3).sum(1)
    expected = torch.zeros(3, 3)
    expected[0, 0], expected[0, 1] = -(sums[1] + sums[2]) / 9, -sums[0] / 9
    assert_close(model.values.grad, expected)
    target: Any = model.target
    assert all(parameter.grad is None for parameter in target.parameters())


def test_the_target_network_is_copied_every_so_many_updates() -> None:
    model, batch, seen = Table(ONLINE), rollout(), []
    add_target(model)
    (target,) = targets_of(model)
    for target.version, scale in enumerate((1.0, 10.0, 100.0)):
        with torch.no_grad():
            model.values.copy_(torch.tensor(ONLINE) * scale)
        (loss,) = NStepQ(gamma=0.5, target_period=2).losses(model, batch, RNG)
        assert loss.priority is not None
        seen.append(loss.priority.view(3, 3)[-1, 0].item())
    assert seen == [4 + 0.5 * 3, 4 + 0.5 * 3, 4 + 0.5 * 300]


def test_errors_above_one_count_linearly_if_asked() -> None:
    (squared,) = NStepQ(gamma=0.5).losses(networks(), rollout(), RNG)
    (huber,) = NStepQ(gamma=0.5, huber=True).losses(networks(), rollout(), RNG)  # all of them are above 1
    assert squared.priority is not None
    assert huber.priority is not None
    assert_close(squared.total, squared.priority.square().mean() / 2)
    assert_close(huber.total, (huber.priority - 0.5).mean())
