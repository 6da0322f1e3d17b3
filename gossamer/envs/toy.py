"""Toy environments with known optimal returns, for tests.

    name           observation                optimal return   return of random actions
    catch          [50] float32               1                -0.6
    catch-pixels   [1, 42, 42] uint8          1                -0.6
    identity       [states] float32           length           length / states
    counter        [3] float32                length (length - 1) / 2 for any actions
    recall         [cues + 1] float32         1; 1 / cues without memory or with random actions

All are vectorised in NumPy, exactly resumable, and can be rendered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from gossamer.data import Array, Step, Tree
from gossamer.envs.base import VectorEnv, check_counts
from gossamer.spaces import Discrete, Spec

CELL = 16  # pixels per cell of a board in `frames`


class Game(Protocol):
    """Rules of B games in lock-step; `ToyVector` adds resets, seeds, saving and rendering."""

    spec: Spec

    def begin(self, where: Array, rng: np.random.Generator) -> None:
        """Start a new episode in each game of the mask `where` [B]."""

    def play(self, action: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Take actions [B]; return rewards [B] float32, terminated [B] bool and truncated [B] bool."""

    def observe(self) -> Array:
        """Return observations [B, *O] as a new array."""

    def board(self) -> Array:
        """Return the observations as images [B, rows, columns] in 0..1."""

    def state(self) -> dict[str, Array]:
        """Return the arrays of the complete state, not copies."""


class ToyVector:
    """B games behind the `VectorEnv` and `Resumable` protocols."""

    def __init__(self, new: Callable[[], Game], num_envs: int) -> None:
        self._new, self.num_envs = new, num_envs
        self._game, self._rng = new(), np.random.default_rng(0)
        self.spec = self._game.spec

    def reset(self, seed: int) -> Array:
        self._game, self._rng = self._new(), np.random.default_rng(seed)
        self._game.begin(np.ones(self.num_envs, bool), self._rng)
        return self._game.observe()

    def step(self, action: Array) -> Step:
        reward, terminated, truncated = self._game.play(action, self._rng)
        final_obs = self._game.observe() if truncated.any() else None
        over = terminated | truncated
        self._game.begin(over, self._rng)
        return Step(self._game.observe(), reward, reward.copy(), terminated, truncated, over, final_obs)

    def frames(self) -> Array:
        """Return the boards, [B, H, W, 3] uint8, with `CELL` pixels per cell. Works without `render=True`."""
        grey: Array = np.rint(255 * self._game.board()).astype(np.uint8)
        return grey.repeat(CELL, axis=1).repeat(CELL, axis=2)[..., None].repeat(3, axis=3)

    def close(self) -> None:
        pass

    def state_dict(self) -> Tree:
        game = {name: array.copy() for name, array in self._game.state().items()}
        return {"rng": self._rng.bit_generator.state, "game": game}

    def load_state_dict(self, state: Tree) -> None:
        self._rng.bit_generator.state = state["rng"]
        for name, array in self._game.state().items():
            array[...] = state["game"][name]


ROWS, COLUMNS, PIXELS = 10, 5, 42  # size of Catch's board, and the height and width of its image


@dataclass(frozen=True)
class Catch:
    """Catch, as in bsuite (Osband et al. 2020). A ball falls from a random column of a 10 x 5 board. A paddle starts in
    the middle of the bottom row and moves left, stays or moves right (actions 0, 1, 2). After 9 steps the reward is 1
    if the ball is caught, else -1. The optimal return is 1; a policy that ignores the ball gets -0.6 (1/5 - 4/5).

    `pixels`: observe an image [1, 42, 42] uint8, large enough for a convolutional network, instead of a vector [50].
    """

    pixels: bool = False

    @property
    def name(self) -> str:
        return "catch-pixels" if self.pixels else "catch"

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        check_counts(num_envs, workers)
        return ToyVector(partial(_Catch, num_envs, self.pixels), num_envs)


class _Catch:
    def __init__(self, num_envs: int, pixels: bool) -> None:
        shape, dtype = ((1, PIXELS, PIXELS), np.uint8) if pixels else ((ROWS * COLUMNS,), np.float32)
        self.spec = Spec(shape, np.dtype(dtype), actions=Discrete(3), action_names=("left", "stay", "right"))
        self._row, self._column, self._paddle = (np.zeros(num_envs, np.int64) for _ in range(3))

    def begin(self, where: Array, rng: np.random.Generator) -> None:
        self._row[where] = 0
        self._column[where] = rng.integers(0, COLUMNS, size=int(where.sum()))
        self._paddle[where] = COLUMNS // 2

    def play(self, action: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        self._paddle[:] = np.clip(self._paddle + action - 1, 0, COLUMNS - 1)
        self._row += 1
        landed = self._row == ROWS - 1
        reward = np.where(landed, np.where(self._paddle == self._column, 1.0, -1.0), 0.0).astype(np.float32)
        return reward, landed, np.zeros_like(landed)

    def observe(self) -> Array:
        board = self.board()
        if len(self.spec.obs_shape) == 1:
            return board.reshape(len(board), -1)
        pixel = np.arange(PIXELS)
        large = board[:, pixel * ROWS // PIXELS][:, :, pixel * COLUMNS // PIXELS]
        return (255 * large[:, None]).astype(np.uint8)

    def board(self) -> Array:
        board = np.zeros((len(self._row), ROWS, COLUMNS), np.float32)
        game = np.arange(len(board))
        board[game, self._row, self._column] = 1
        board[game, -1, self._paddle] = 1
        return board

    def state(self) -> dict[str, Array]:
        return {"row": self._row, "column": self._column, "paddle": self._paddle}


@dataclass(frozen=True)
class Identity:
    """One of `states` lights is on. Action i gives reward 1 if light i is on, else 0; then a new light is drawn. An
    episode has `length` steps. The optimal return is `length`, the mean return of random actions `length / states`."""

    states: int = 4
    length: int = 10  # steps

    def __post_init__(self) -> None:
        _positive("Identity", states=self.states, length=self.length)

    @property
    def name(self) -> str:
        return "identity"

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        check_counts(num_envs, workers)
        return ToyVector(partial(_Identity, num_envs, self.states, self.length), num_envs)


class _Identity:
    def __init__(self, num_envs: int, states: int, length: int) -> None:
        self.spec = Spec((states,), np.dtype(np.float32), actions=Discrete(states))
        self._states, self._length = states, length
        self._light, self._age = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)

    def begin(self, where: Array, rng: np.random.Generator) -> None:
        self._age[where] = 0
        self._light[where] = rng.integers(0, self._states, size=int(where.sum()))

    def play(self, action: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        reward = (action == self._light).astype(np.float32)
        self._age += 1
        self._light[:] = rng.integers(0, self._states, size=len(self._light))
        ended = self._age == self._length
        return reward, ended, np.zeros_like(ended)

    def observe(self) -> Array:
        return np.eye(self._states, dtype=np.float32)[self._light]

    def board(self) -> Array:
        return self.observe()[:, None]

    def state(self) -> dict[str, Array]:
        return {"light": self._light, "age": self._age}


@dataclass(frozen=True)
class Counter:
    """Reveals off-by-one errors. The observation is [t, e, b]: step of the episode, episode of the environment (from 0)
    and index of the environment. Any action at step t gives reward t. Episodes terminate after `length` steps; with
    `truncate` they are truncated instead, and `Step.final_obs` is [length, e, b]. The return is length (length - 1) / 2
    for any actions."""

    length: int = 10  # steps
    truncate: bool = False

    def __post_init__(self) -> None:
        _positive("Counter", length=self.length)

    @property
    def name(self) -> str:
        return "counter"

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        check_counts(num_envs, workers)
        return ToyVector(partial(_Counter, num_envs, self.length, self.truncate), num_envs)


class _Counter:
    def __init__(self, num_envs: int, length: int, truncate: bool) -> None:
        self.spec = Spec((3,), np.dtype(np.float32), actions=Discrete(2))
        self._length, self._truncate = length, truncate
        self._age, self._episode = np.zeros(num_envs, np.int64), np.full(num_envs, -1)

    def begin(self, where: Array, rng: np.random.Generator) -> None:
        self._age[where] = 0
        self._episode[where] += 1

    def play(self, action: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        reward = self._age.astype(np.float32)
        self._age += 1
        ended, never = self._age == self._length, np.zeros(len(self._age), bool)
        return (reward, never, ended) if self._truncate else (reward, ended, never)

    def observe(self) -> Array:
        return np.stack([self._age, self._episode, np.arange(len(self._age))], axis=1).astype(np.float32)

    def board(self) -> Array:
        return (np.arange(self._length) < self._age[:, None]).astype(np.float32)[:, None]

    def state(self) -> dict[str, Array]:
        return {"age": self._age, "episode": self._episode}


@dataclass(frozen=True)
class Recall:
    """Needs memory. At the first step one of `cues` lights is on; then all are off for `delay` steps. At the last step
    another light asks for an answer: action i gives reward 1 if light i was on at the beginning, else 0. All other
    actions have no effect. The optimal return is 1; without memory it is 1 / cues."""

    delay: int = 20  # steps
    cues: int = 2

    def __post_init__(self) -> None:
        _positive("Recall", delay=self.delay, cues=self.cues)

    @property
    def name(self) -> str:
        return "recall"

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        check_counts(num_envs, workers)
        return ToyVector(partial(_Recall, num_envs, self.delay, self.cues), num_envs)


class _Recall:
    def __init__(self, num_envs: int, delay: int, cues: int) -> None:
        self.spec = Spec((cues + 1,), np.dtype(np.float32), actions=Discrete(cues))
        self._delay, self._cues = delay, cues
        self._age, self._cue = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)

    def begin(self, where: Array, rng: np.random.Generator) -> None:
        self._age[where] = 0
        self._cue[where] = rng.integers(0, self._cues, size=int(where.sum()))

    def play(self, action: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        asked = self._age == self._delay
        self._age += 1
        return (asked & (action == self._cue)).astype(np.float32), asked, np.zeros_like(asked)

    def observe(self) -> Array:
        lights = np.zeros((len(self._age), self._cues + 1), np.float32)
        first = self._age == 0
        lights[first, self._cue[first]] = 1
        lights[:, -1] = self._age == self._delay
        return lights

    def board(self) -> Array:
        return self.observe()[:, None]

    def state(self) -> dict[str, Array]:
        return {"age": self._age, "cue": self._cue}


def _positive(toy: str, **counts: int) -> None:
    for option, value in counts.items():
        if value < 1:
            raise ValueError(f"{toy}: {option} must be at least 1, not {value}")
