"""Environments of a user's, for the tests: importable by worker processes."""

import multiprocessing
import os
import threading
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple


class Walk(gymnasium.Env):
    """A random walk [place, last action]. Below -3 it terminates, after 6 steps it is truncated, maybe both at once.
    Its whole state can be saved."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Discrete(3, start=-1)
        self.render_mode = render_mode
        self._place, self._age, self._last = 0.0, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._place, self._age, self._last = float(self.np_random.normal()), 0, 0
        return self._obs(), {}

    def step(self, action: int) -> Any:
        assert self.action_space.contains(action)
        self._place += action + float(self.np_random.normal())
        self._age, self._last = self._age + 1, action
        return self._obs(), self._place, self._place < -3, self._age >= 6, {}

    def render(self) -> Any:
        return np.full((4, 6, 3), self._age, np.uint8)

    def state_dict(self) -> Any:
        random = self.np_random.bit_generator.state
        return {"random": random, "place": self._place, "age": self._age, "last": self._last}

    def load_state_dict(self, state: Any) -> None:
        self.np_random.bit_generator.state = state["random"]
        self._place, self._age, self._last = state["place"], state["age"], state["last"]

    def _obs(self) -> Any:
        return np.array([self._place, self._last])


class Fails(Walk):
    """Its third step goes wrong."""

    def step(self, action: int) -> Any:
        if self._age == 2:
            raise OSError("no coal left")
        return super().step(action)


class UnpicklableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("of two arguments")


class FailsOddly(Walk):
    """Its first step raises what does not survive being sent between processes."""

    def step(self, action: int) -> Any:
        raise UnpicklableError(1, 2)


class FailsSilently(Walk):
    """Its first step raises an error without a text."""

    def step(self, action: int) -> Any:
        raise NotImplementedError


class Dies(Walk):
    """Its third step ends the process."""

    def step(self, action: int) -> Any:
        if self._age == 2:
            os._exit(7)
        return super().step(action)


class DiesAtOnce(Walk):
    def step(self, action: int) -> Any:
        os._exit(7)


class FailsToStart(Walk):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        raise OSError("no coal yet")


class NoSpaces(gymnasium.Env):
    pass


class Made:
    """How many environments this process has made."""

    count = 0


def third_fails() -> Walk:
    Made.count += 1
    if Made.count % 3 == 0:
        raise OSError("no room for three")
    return Walk()


def of_two_kinds() -> gymnasium.Env:
    Made.count += 1
    return Walk() if Made.count % 2 else Picture()


def refuses() -> Walk:
    raise RuntimeError("no licence")


class Answers(Walk):
    """Its step gives `wrong` in place of one of its values."""

    def __init__(self, wrong: Callable[[Any], Any]) -> None:
        super().__init__()
        self._wrong = wrong

    def step(self, action: int) -> Any:
        return self._wrong(super().step(action))


WRONG: dict[str, Callable[[Any], Any]] = {
    "shape": lambda answer: (np.zeros(1), *answer[1:]),
    "scalar": lambda answer: (0.0, *answer[1:]),
    "text": lambda answer: (np.array(["a", "b"]), *answer[1:]),
    "ragged": lambda answer: ([[0.0], [0.0, 1.0]], *answer[1:]),
    "nan": lambda answer: (np.array([0.0, np.nan]), *answer[1:]),
    "beyond float32": lambda answer: (np.array([1e300, 0.0]), *answer[1:]),
    "four values": lambda answer: (answer[0], answer[1], answer[2], {}),
    "one value": lambda answer: answer[0],
    "no reward": lambda answer: (answer[0], None, *answer[2:]),
    "two rewards": lambda answer: (answer[0], np.zeros(2), *answer[2:]),
    "a reward that is no number": lambda answer: (answer[0], float("nan"), *answer[2:]),
    "a reward beyond float32": lambda answer: (answer[0], 1e39, *answer[2:]),
    "a reward beyond float64": lambda answer: (answer[0], 10**400, *answer[2:]),
    "no flag": lambda answer: (*answer[:2], None, *answer[3:]),
    "a dict": lambda answer: (*answer[:3], {}, {}),
}


def answers(wrong: str) -> Answers:
    return Answers(WRONG[wrong])


class OldReset(Walk):
    """As in Gym before 0.26."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0]


class Seedless(Walk):
    """As written by those who have not met seeds."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class Hangs(Walk):
    """The second step of environment 1 of two waits until `released`."""

    released = threading.Event()
    count = 0

    def __init__(self) -> None:
        super().__init__()
        self._second = Hangs.count % 2 == 1
        Hangs.count += 1

    def step(self, action: int) -> Any:
        if self._second and self._age == 1:
            Hangs.released.wait()
        return super().step(action)


class SecondProcessHangs(Walk):
    """Of four in two processes, the last one hangs."""

    def __init__(self) -> None:
        super().__init__()
        Made.count += 1
        self._hangs = Made.count == 2 and multiprocessing.current_process().name == "environments 1"

    def step(self, action: int) -> Any:
        if self._hangs:
            threading.Event().wait()
        return super().step(action)


class Picture(gymnasium.Env):
    """Shows `shape`, counted through in its own order."""

    def __init__(self, shape: tuple[int, ...] = (3, 4, 2)) -> None:
        self.observation_space = Box(0, 255, shape, np.uint8)
        self.action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.arange(np.prod(self.observation_space.shape), dtype=np.uint8).reshape(
            self.observation_space.shape
        ), {}


def grey() -> Picture:
    return Picture((3, 4))


def stacked() -> Picture:
    return Picture((2, 3, 4))


def words() -> Picture:
    env = Picture()
    env.observation_space = Text(5)
    return env


def nothing_seen() -> Picture:
    env = Picture()
    env.observation_space = Dict({"a": Box(-1, 1, (0,)), "b": Discrete(2)})
    return env


def nothing_done() -> Picture:
    env = Picture()
    env.action_space = MultiDiscrete(np.zeros(0, np.int64))
    return env


def pair_of_actions() -> Picture:
    env = Picture()
    env.action_space = Tuple([Discrete(2), Discrete(2)])
    return env


class Echo(gymnasium.Env):
    """Observes the last action; raises where its action space does not contain it."""

    def __init__(self, space: gymnasium.Space[Any], size: int) -> None:
        self.action_space = space
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)
        self.size = size

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(self.size, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        return np.asarray(action, np.float32).reshape(self.size), 0.0, False, False, {}


def from_five() -> Echo:
    return Echo(Discrete(3, start=5), 1)


def multi_discrete() -> Echo:
    return Echo(MultiDiscrete([[2, 3], [2, 3]], start=[[1, 1], [1, 1]]), 4)


def multi_binary() -> Echo:
    return Echo(MultiBinary([2, 3]), 6)


def box() -> Echo:
    low, high = np.array([[-1, -2], [-1, -2]], np.float64), np.array([[1, 2], [1, 2]], np.float64)
    return Echo(Box(low, high, dtype=np.float64), 4)


def half_open() -> Echo:
    return Echo(Box(0.0, np.inf, (1,), np.float32), 1)


def no_env() -> str:
    return "no env"


def unit_pixels() -> Picture:
    """Says uint8, and shows floats between 0 and 1."""

    class Unit(Picture):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return super().reset(seed=seed)[0] / 24, {}

    return Unit()


def large_pixels() -> Picture:
    class Large(Picture):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return super().reset(seed=seed)[0].astype(np.int64) + 250, {}

    return Large()


def wide_pixels() -> Picture:
    """Says uint8, and gives these numbers as int64."""

    class Wide(Picture):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return super().reset(seed=seed)[0].astype(np.int64), {}

    return Wide()
