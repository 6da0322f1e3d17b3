"""Whole games and those that do not end, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gossamer.data import Action, Array, Step, Tree
from gossamer.evaluation.games import NEWS, play
from gossamer.spaces import Discrete, Spec
from gossamer.system.errors import EnvironmentFailed


class Idle:
    """A policy that does nothing."""

    def refresh(self) -> int:
        return 0

    def __call__(self, obs: torch.Tensor, state: Tree) -> tuple[Action, Tree]:
        zeros = torch.zeros(len(obs))
        return Action(zeros.long(), zeros, zeros[:, None], zeros), state

    def initial_state(self, num_envs: int) -> Tree:
        return {}

    def value(self, obs: torch.Tensor, state: Tree) -> torch.Tensor:
        return torch.zeros(len(obs))


class Lengths:
    """Environment b plays games of `lengths[reset][b]` steps, each rewarded 1; the game after it is as long."""

    spec, num_envs = Spec((1,), np.dtype(np.float32), Discrete(1)), 2

    def __init__(self, *lengths: tuple[int, int]) -> None:
        self.lengths, self.resets = lengths, list[int]()
        self.age = np.zeros(2, int)

    def reset(self, seed: int) -> Array:
        self.resets.append(seed)
        self.age[:] = 0
        return np.zeros((2, 1), np.float32)

    def step(self, action: Array) -> Step:
        self.age += 1
        over = self.age == np.array(self.lengths[len(self.resets) - 1])
        self.age[over] = 0
        one, never = np.ones(2, np.float32), np.zeros(2, bool)
        return Step(np.zeros((2, 1), np.float32), one, one, over, never, over, None)

    def frames(self) -> Array:
        raise RuntimeError("blind")

    def close(self) -> None: ...


def test_games_that_end_are_all_whole() -> None:
    env = Lengths((2, 3))
    games = play(Idle(), env, 5, max_steps=4, seed=7, device="cpu")
    # three games of the first, at steps 2, 4 and 6, two of the second at 3 and 6
    assert (games.returns, games.cut_off, games.note) == ([2, 3, 2, 2, 3], 0, "")
    assert env.resets == [7]


def test_a_game_that_ends_at_the_limit_is_whole() -> None:
    assert play(Idle(), Lengths((4, 4)), 2, max_steps=4, seed=7, device="cpu").cut_off == 0


def test_what_is_still_due_after_a_cut_begins_anew() -> None:
    env = Lengths((99, 3), (2, 99))
    games = play(Idle(), env, 4, max_steps=4, seed=7, device="cpu")
    # The second ends at 3 and at 6, the first is cut at 4 and plays on uncounted. When the second has done its share,
    # all are reset, and the first plays a whole game of 2 steps.
    assert (games.returns, games.cut_off) == ([3, 4, 3, 2], 1)
    assert len(set(env.resets)) == 2
    assert games.note == "1 of 4 games were cut off after 4 steps; their returns include only these steps"


def test_a_game_that_ends_after_its_cut_is_not_counted_twice() -> None:
    env = Lengths((6, 3))
    games = play(Idle(), env, 4, max_steps=4, seed=7, device="cpu")
    # The first is cut at 4, over at 6 and not counted; the game that begins there is cut at 10.
    assert (games.returns, games.cut_off) == ([3, 4, 3, 4], 2)
    assert env.resets == [7]


def test_it_tells_how_far_it_is() -> None:
    told: list[str] = []
    play(Idle(), Lengths((1, NEWS + 1)), 2, max_steps=99, seed=7, device="cpu", tell=told.append)
    assert told == [f"1 of 2 games have ended, {NEWS} steps of each environment"]


class Failing(Lengths):
    """In the `bad` steps environment 0 fails: its game is truncated, and the next one begins."""

    def __init__(self, lengths: tuple[int, int], bad: range) -> None:
        super().__init__(lengths)
        self.bad, self.steps, self.told = bad, 0, list[EnvironmentFailed]()

    def step(self, action: Array) -> Step:
        step = super().step(action)
        self.steps += 1
        if self.steps not in self.bad:
            return step
        self.told.append(EnvironmentFailed("mine", 0, "no coal left"))
        self.age[0] = 0
        cut = np.array([True, False])
        return Step(step.obs, step.reward, step.score, step.terminated & ~cut, cut, step.terminated | cut, None)

    def failures(self) -> tuple[EnvironmentFailed, ...]:
        told, self.told = tuple(self.told), []
        return told


def test_a_game_in_which_the_environment_fails_does_not_count() -> None:
    games = play(Idle(), Failing((4, 3), range(3, 4)), 4, max_steps=9, seed=7, device="cpu")
    # The second's games end at 3 and 6; the first fails at 3, and plays games of 4 steps after it.
    assert (sorted(games.returns), games.cut_off) == ([3, 3, 4, 4], 0)
    assert games.note == "environments failed 1 times; the games that this ended do not count"


def test_an_environment_that_always_fails_ends_the_evaluation() -> None:
    with pytest.raises(EnvironmentFailed, match="no coal left"):
        play(Idle(), Failing((4, 3), range(1, 99)), 4, max_steps=9, seed=7, device="cpu")
