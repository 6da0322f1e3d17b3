"""Exploration: random actions are valid and as frequent as epsilon says, which falls or differs by environment."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gossamer.algorithms import DQN, PQN, NStepQ, OneStepQ, Sarsa
from gossamer.algorithms.exploration import EpsilonGreedy, a3c_epsilon, apex_epsilon, epsilon_of, explore_a_tenth
from gossamer.spaces import IMPOSSIBLE

RNG = torch.Generator()


def test_actions_are_the_best_one_or_with_probability_epsilon_any_valid_one() -> None:
    """Of 40,000 draws with epsilon 0.3 among two valid actions: 0.85 and 0.15, each within 5 standard deviations."""
    q = torch.tensor([1.0, IMPOSSIBLE, 3.0]).expand(40_000, 3)
    answer, _ = EpsilonGreedy(0.3).act(nn.Identity(), q, {}, torch.Generator().manual_seed(0))
    shares = torch.bincount(answer.action, minlength=3) / 40_000
    assert_close(shares, torch.tensor([0.15, 0.0, 0.85]), atol=5 * (0.15 * 0.85 / 40_000) ** 0.5, rtol=0)
    assert answer.log_prob is not None
    assert_close(answer.log_prob.exp(), torch.tensor([0.15, 0.0, 0.85])[answer.action])
    assert_close(answer.parameters.softmax(-1)[0], torch.tensor([0.15, 0.0, 0.85]))
    assert answer.value.unique().tolist() == [3.0]
    greedy, _ = EpsilonGreedy(0.3).act(nn.Identity(), q, {}, RNG, greedy=True)
    assert greedy.action.unique().tolist() == [2]


def test_each_environment_has_an_epsilon_of_its_own() -> None:
    q = torch.tensor([1.0, 3.0]).expand(4, 2)
    rng = torch.Generator().manual_seed(0)
    policy = EpsilonGreedy((0.0, 0.0, 1.0, 1.0))
    draws = torch.stack([policy.act(nn.Identity(), q, {}, rng)[0].action for _ in range(200)])
    assert draws[:, :2].unique().tolist() == [1]
    assert draws[:, 2:].double().mean(0).tolist() == pytest.approx([0.5, 0.5], abs=0.18)  # 5 standard deviations


@pytest.mark.parametrize("kind", [DQN, NStepQ, OneStepQ, Sarsa, PQN])
def test_epsilon_falls_with_the_position_of_the_run(kind: type[DQN | NStepQ | OneStepQ | Sarsa | PQN]) -> None:
    algorithm = kind(epsilon_start=1.0, epsilon_end=0.2, epsilon_steps=1000)
    epsilons = [algorithm.exploring(position, range(4), 4, 0).epsilon for position in (0, 500, 1000, 5000)]
    assert epsilons == pytest.approx([1.0, 0.6, 0.2, 0.2])
    assert kind(epsilon_steps=0, epsilon_end=0.2).exploring(0, range(4), 4, 0).epsilon == 0.2


@pytest.mark.parametrize("kind", [DQN, NStepQ, PQN])
def test_ape_x_s_epsilons_span_the_environments_of_all_actors(kind: type[DQN | NStepQ | PQN]) -> None:
    """0.4^(1 + 7 i / 7) for eight environments: the second of two actors has the last four."""
    second = kind(exploration="by-environment").exploring(10**6, range(4, 8), 8, 0).epsilon
    assert second == pytest.approx([0.4**5, 0.4**6, 0.4**7, 0.4**8])
    assert apex_epsilon(0, 1) == 0.4


def test_a3c_s_epsilons_fall_to_three_values_for_40_30_and_30_percent_of_the_environments() -> None:
    assert [a3c_epsilon(i, 10) for i in range(10)] == [0.1] * 4 + [0.01] * 3 + [0.5] * 3
    mixed = NStepQ(exploration="mixed", epsilon_start=1.0, epsilon_steps=1000)
    halfway = mixed.exploring(500, range(3, 8), 10, 0).epsilon  # of the second half of two learners, and one before it
    assert halfway == pytest.approx([0.55, 0.505, 0.505, 0.505, 0.75])


def test_epsilon_follows_from_the_probability_of_an_action() -> None:
    q = torch.tensor([[1.0, IMPOSSIBLE, 3.0, 2.0], [1.0, 2.0, 3.0, 4.0], [0.0, IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE]])
    for epsilon in (0.0, 0.3, 1.0):
        for seed in range(20):
            answer, _ = EpsilonGreedy(epsilon).act(nn.Identity(), q, {}, torch.Generator().manual_seed(seed))
            assert answer.log_prob is not None
            found = epsilon_of(answer.log_prob, torch.tensor([3, 4, 1]))[:2]  # a single action has probability 1
            assert_close(found, torch.full((2,), epsilon))


def test_a_tenth_of_a_run_explores() -> None:
    assert explore_a_tenth({"steps": 5_000}, ()) == {"epsilon_steps": 500}
    assert explore_a_tenth({"steps": 10_000_000}, ()) == {"epsilon_steps": 250_000}


def test_epsilon_cannot_be_told_from_a_forced_move() -> None:
    assert epsilon_of(torch.zeros(1), torch.tensor([1])).tolist() == [0.0]
