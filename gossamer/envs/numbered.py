"""Environments whose numbers do not begin with 0, because a worker has others before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gossamer.data import Array, Step
from gossamer.envs.base import InTheMaking, Parted, Restarting, Resumable, Spaced, VectorEnv, Watchable
from gossamer.system.errors import EnvironmentFailed

T = TypeVar("T")


class Numbered:
    """B environments, the first of which has the number `first` in errors and to a watchdog.

    The wrapper has no state. It is `Resumable`, `Watchable`, `Restarting`, `Spaced`, `InTheMaking` and `Parted` if the
    environments are."""

    def __init__(self, env: VectorEnv, first: int) -> None:
        self._env, self._first = env, first
        self.spec, self.num_envs = env.spec, env.num_envs
        self.frames, self.close = env.frames, env.close
        # Instance attributes, so that `isinstance` finds a protocol's methods if the environments have them.
        if isinstance(env, Watchable):
            calls = env.calls
            self.calls = lambda: [(index if index < 0 else first + index, count) for index, count in calls()]
        if isinstance(env, Restarting):
            failures = env.failures
            self.failures = lambda: tuple(error.renumbered(first) for error in failures())
        if isinstance(env, InTheMaking):
            self.made = env.made
        if isinstance(env, Spaced):
            self.spaces = env.spaces
        if isinstance(env, Parted):
            parted = env
            self.send = lambda action: self._renumbered(lambda: parted.send(action))
            self.receive = lambda: self._renumbered(parted.receive)
        if isinstance(env, Resumable):
            self.state_dict, self.load_state_dict = env.state_dict, env.load_state_dict

    def reset(self, seed: int) -> Array:
        return self._renumbered(lambda: self._env.reset(seed))

    def step(self, action: Array) -> Step:
        return self._renumbered(lambda: self._env.step(action))

    def _renumbered(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except EnvironmentFailed as error:
            error.renumbered(self._first)
            raise
