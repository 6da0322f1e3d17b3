"""One-step Q-learning and Sarsa: targets against worked-out numbers and a slow ground truth, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from some_values import OLDER, ONLINE, Table, h, inverse, networks
from torch.testing import assert_close

from gossamer.algorithms.one_step import OneStepQ, Sarsa
from gossamer.data import Final, Trajectory
from gossamer.spaces import IMPOSSIBLE

RNG = torch.Generator()


def log_prob(epsilon: float, *, best: bool, choices: int = 3) -> float:
    """ln mu(a) of an epsilon-greedy policy."""
    return math.log(max(1e-30, (1 - epsilon) * best + epsilon / choices))


def rollout() -> Trajectory:
    """Two steps of three environments, with rewards 1 and 2, from the observation 0, whose values are all 0, over 1 to
    2. The policy that acted had epsilon 0.3 and took its best action last. The first episode goes on; the second one
    terminates with its first step; the third one is truncated there: its reward includes what the policy that acted
    expected of the final observation 2, here 0.25."""
    slot = Trajectory.empty(2, 3, (1,), torch.float32)
    slot.obs[1], slot.obs[2] = 1, 2
    slot.action.copy_(torch.tensor([[0, 0, 0], [2, 2, 2]]))
    slot.reward.copy_(torch.tensor([[1.0], [2.0]]).expand(2, 3))
    slot.discount.fill_(0.5)
    slot.discount[0, 1:] = 0.0
    slot.behaviour.fill_(log_prob(0.3, best=True))
    slot.reward[0, 2] += 0.25
    slot.finals.append(Final(0, 2, torch.tensor([2.0]), {}, 0.25))
    return slot


def errors(algorithm: OneStepQ | Sarsa, batch: Trajectory) -> list[list[float]]:
    """|y - Q| of each environment and step."""
    (loss,) = algorithm.losses(networks(), batch, RNG)
    assert loss.priority is not None
    answer: list[list[float]] = loss.priority.view_as(batch.reward).T.tolist()
    return answer


def test_targets_of_q_learning_are_the_best_values_of_the_next_step() -> None:
    """By the target network max Q(1) is 9 and max Q(2) is 30. The network itself has Q(0, 0) = 0 and Q(1, 2) = 2."""
    second = 2 + 0.5 * 30 - 2
    assert errors(OneStepQ(gamma=0.5), rollout()) == [
        [1 + 0.5 * 9, second],
        [1, second],
        [1 + 0.5 * 30, second],
    ]


def test_targets_of_sarsa_are_values_of_the_action_that_was_taken_next() -> None:
    """By the target network Q(1, 2) is 9, by coincidence its best; of observation 2 it has 10, 20, 30, of which the
    network itself prefers 10: with epsilon 0.3 the next action has 0.7 * 10 + 0.3 * 20 = 13. The policy of the first
    step had the same epsilon, and took a random action."""
    batch = rollout()
    batch.behaviour[0] = log_prob(0.3, best=False)
    second = 2 + 0.5 * 13 - 2
    found = torch.tensor(errors(Sarsa(gamma=0.5), batch))
    assert_close(found, torch.tensor([[1 + 0.5 * 9, second], [1, second], [1 + 0.5 * 13, second]]))
    batch.action[1] = 1  # Q(1, 1) is 4 and, by the network itself, 5
    assert_close(torch.tensor(errors(Sarsa(gamma=0.5), batch))[0], torch.tensor([1 + 0.5 * 4, 2 + 0.5 * 13 - 5]))


def test_with_rescaled_values_expectations_are_of_returns() -> None:
    """As above: Sarsa expects 0.7 of the return of the action 0 and 0.1 of each."""
    a, b, c = (inverse(each) for each in OLDER[2])
    expectation = 0.7 * a + 0.1 * (a + b + c)
    for kind, border in ((OneStepQ, c), (Sarsa, expectation)):
        batch = rollout()
        if kind is Sarsa:
            batch.behaviour[0] = log_prob(0.3, best=False)
        second = h(2 + 0.5 * border) - 2
        expected = [[h(1 + 0.5 * inverse(9.0)), second], [h(1), second], [h(1 + 0.5 * border), second]]
        found = errors(kind(gamma=0.5, rescale_values=True), batch)
        assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_invalid_actions_are_not_taken_next() -> None:
    """Of observation 2 the actions 0 and 1 are valid: 0.7 * 20 + 0.3 * (10 + 20) / 2 = 18.5."""
    batch, model = rollout(), networks()
    target: Any = model.target
    for values, each in ((model.values, [3.0, 4.0, IMPOSSIBLE]), (target.model.values, [10.0, 20.0, IMPOSSIBLE])):
        values.data[2] = torch.tensor(each)
    model.values.data[1, 0] = IMPOSSIBLE  # two valid actions where the last one was taken
    batch.behaviour[1] = log_prob(0.3, best=True, choices=2)
    (loss,) = Sarsa(gamma=0.5).losses(model, batch, RNG)
    assert loss.priority is not None
    assert_close(loss.priority[3], torch.tensor(2 + 0.5 * 18.5 - 2))


STEP = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-3, 3), st.booleans())


@given(st.lists(STEP, min_size=1, max_size=6), st.sampled_from([0.0, 0.2, 1.0]), st.integers(0, 2))
def test_targets_are_those_of_a_slow_ground_truth(
    steps: list[tuple[int, int, int, bool]], epsilon: float, last: int
) -> None:
    """`steps`: observation, action, reward, and whether the episode ends."""
    batch = Trajectory.empty(len(steps), 1, (1,), torch.float32)
    batch.obs[-1] = last
    for t, (obs, action, reward, ends) in enumerate(steps):
        batch.obs[t], batch.action[t], batch.reward[t], batch.discount[t] = obs, action, reward, 0.9 * (not ends)
        batch.behaviour[t] = log_prob(epsilon, best=action == 0 or epsilon == 0)
    best = max(range(3), key=lambda action: ONLINE[last][action])
    for kind in (OneStepQ, Sarsa):
        expected = []
        for t, (obs, action, reward, ends) in enumerate(steps):
            following = OLDER[steps[t + 1][0]] if t + 1 < len(steps) else OLDER[last]
            if kind is OneStepQ:
                value = max(following)
            elif t + 1 < len(steps):
                value = following[steps[t + 1][1]]
            else:
                value = sum(((1 - epsilon) * (each == best) + epsilon / 3) * following[each] for each in range(3))
            expected.append(abs(reward + 0.9 * (not ends) * value - ONLINE[obs][action]))
        (loss,) = kind(gamma=0.9).losses(networks(), batch, RNG)
        assert loss.priority is not None
        assert_close(loss.priority, torch.tensor(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [OneStepQ, Sarsa])
def test_the_gradient_is_that_of_the_action_values_that_were_acted(kind: type[OneStepQ | Sarsa]) -> None:
    """Half the squared errors, averaged over six samples, times 10. Q(0, 0) and Q(1, 2) were acted."""
    model: Table = networks()
    (loss,) = kind(gamma=0.5, loss_scale=10.0).losses(model, rollout(), RNG)
    assert loss.priority is not None
    loss.total.backward()  # type: ignore[no-untyped-call]
    sums = loss.priority.view(2, 3).sum(1)
    expected = torch.zeros(3, 3)
    expected[0, 0], expected[1, 2] = -10 * sums[0] / 6, -10 * sums[1] / 6
    assert_close(model.values.grad, expected)
