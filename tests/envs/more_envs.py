"""Environments with observations of several arrays and with action masks, for the tests: importable by workers."""

from __future__ import annotations

import multiprocessing
import threading
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple


class Shows(gymnasium.Env):
    """Shows samples of its observation space. Episodes are truncated after 4 steps, of reward 1 each."""

    def __init__(
        self,
        space: gymnasium.Space[Any],
        actions: gymnasium.Space[Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = deepcopy(space)  # it has a random stream
        self.action_space = actions or Discrete(3)
        self.render_mode = render_mode
        self._age = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._age = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self._age += 1
        return self.observation_space.sample(), 1.0, False, self._age == 4, {}

    def render(self) -> Any:
        return np.full((4, 6, 3), self._age, np.uint8)


PICTURE = Box(0, 255, (2, 3, 4), np.uint8)  # [C, H, W], since 2 < 4
NESTED = Dict(
    {
        "camera": PICTURE,
        "arm": Dict({"angles": Box(-1, 1, (2,)), "gripper": Discrete(3, start=-1)}),
        "rest": Tuple([MultiBinary(5), MultiDiscrete([2, 3])]),
    }
)


def nested(render_mode: str | None = None) -> Shows:
    return Shows(NESTED, render_mode=render_mode)


class Missions(gymnasium.Space[str]):
    """Text, in a space of its own, as MiniGrid has it."""

    def __init__(self) -> None:
        super().__init__(dtype=str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "get the key"

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


def matrix(render_mode: str | None = None) -> Shows:
    return Shows(Box(-1, 1, (2, 3)), render_mode=render_mode)


def float_picture(render_mode: str | None = None) -> Shows:
    return Shows(Box(0, 1, (12, 10, 3)), render_mode=render_mode)


def with_text(render_mode: str | None = None) -> Shows:
    space = Dict({"place": Box(-1, 1, (2,)), "mission": Missions(), "more": Tuple([Text(5), Discrete(2)])})
    return Shows(space, render_mode=render_mode)


def pair(render_mode: str | None = None) -> Shows:
    return Shows(Tuple([Discrete(3), Box(-1, 1, (2,))]), render_mode=render_mode)


def discrete(render_mode: str | None = None) -> Shows:
    return Shows(Discrete(4, start=2), render_mode=render_mode)


def small_picture(render_mode: str | None = None) -> Shows:
    return Shows(Box(0, 255, (5, 5, 3), np.uint8), render_mode=render_mode)


def channels_first(render_mode: str | None = None) -> Shows:
    return Shows(Box(0, 255, (3, 11, 12), np.uint8), render_mode=render_mode)


UNSUPPORTED = {
    "text": Text(5),
    "sequence": Sequence(Discrete(2)),
    "graph": Graph(Box(0, 1, (2,)), None),
    "only text": Dict({"words": Text(5)}),
    "huge": Discrete(65_537),
    "empty": Dict(),
    "only a mask": Dict({"action_mask": MultiBinary(3)}),
    "wrong mask": Dict({"observation": Discrete(2), "action_mask": MultiBinary(4)}),
    "twice": Dict({"a": Dict({"b": Discrete(2)}), "a/b": Discrete(2)}),
    "nested mask": Dict({"inner": Dict({"x": Discrete(2), "action_mask": MultiBinary(3)}), "y": Discrete(2)}),
}


class Doors(gymnasium.Env):
    """Some of the doors are open at each step; a closed one must not be taken. The reward is the door's number.
    An episode ends after 7 steps, by truncation and termination in turn."""

    def __init__(self, doors: tuple[int, ...] = (5,), *, kind: str = "array") -> None:
        self.action_space: Any = Discrete(doors[0]) if len(doors) == 1 else MultiDiscrete(doors)
        if kind == "switches":
            self.action_space = MultiBinary(len(doors))
        self.observation_space = Box(0, 1, (1,))
        self._doors, self._kind, self._age, self._episode = doors, kind, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._age, self._episode = 0, self._episode + 1
        return self._seen()

    def step(self, action: Any) -> Any:
        chosen = np.atleast_1d(action)
        if not all(door[choice] for door, choice in zip(self._open, chosen, strict=True)):
            raise RuntimeError(f"door {action} is closed")
        self._age += 1
        over = self._age == 7
        obs, info = self._seen()
        return obs, float(chosen.sum()), over and self._episode % 2 == 0, over and self._episode % 2 == 1, info

    def _seen(self) -> Any:
        self._open = [self.np_random.integers(0, 2, n) for n in self._doors]
        for door in self._open:
            door[self.np_random.integers(len(door))] = 1
        obs = np.zeros(1, np.float32)
        if self._kind == "observation":
            return {"action_mask": np.concatenate(self._open).astype(np.int8), "observation": obs}, {}
        if self._kind == "switches":
            return obs, {"action_mask": np.stack(self._open)}
        mask = tuple(self._open) if self._kind == "tuple" else np.concatenate(self._open).astype(bool)
        return obs, {"action_mask": mask}


def doors() -> Doors:
    return Doors()


def two_doors() -> Doors:
    return Doors((3, 4))


def tuple_of_doors() -> Doors:
    return Doors((3, 4), kind="tuple")


def switches() -> Doors:
    """Three switches. The mask has a row for each: whether it may be off, and whether it may be on."""
    return Doors((2, 2, 2), kind="switches")


def doors_in_observation() -> Doors:
    env = Doors(kind="observation")
    mask = Box(0, 1, (5,), np.int8)
    env.observation_space = Dict({"action_mask": mask, "observation": env.observation_space})
    return env


class MaskedBox(Shows):
    """Its masks are of no use: actions are continuous."""

    def __init__(self) -> None:
        super().__init__(Box(0, 1, (1,)), Box(-1, 1, (2,)))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0], {"action_mask": np.ones(2)}


class BadMask(Shows):
    """The mask of its first step is `wrong`; `ends`: that step ends the episode."""

    def __init__(self, wrong: Any, ends: bool = False) -> None:
        super().__init__(Box(0, 1, (1,)), MultiDiscrete([2, 2]))
        self._wrong, self._ends = wrong, ends

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0], {"action_mask": np.ones(4, np.int8)}

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated or self._ends, truncated, self._wrong


class OtherInWorkers(Shows):
    """In worker processes its observations are shorter."""

    def __init__(self) -> None:
        size = 3 if multiprocessing.current_process().name == "MainProcess" else 1
        super().__init__(Box(0, 1, (size,)), Discrete(2))


class HangsSoon(Shows):
    """Its second step never ends."""

    def __init__(self) -> None:
        super().__init__(Box(0, 1, (1,)), Discrete(2))
        self._age = 0

    def step(self, action: Any) -> Any:
        self._age += 1
        if self._age == 2:
            threading.Event().wait()
        return super().step(action)
