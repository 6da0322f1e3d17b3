"""Environments that are made once and used by one program after another."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from threading import Lock
from types import TracebackType

from gossamer.envs.base import (
    EnvFactory,
    InTheMaking,
    Restarting,
    Spaces,
    VectorEnv,
    Watchable,
    one_of_each,
    places,
    threads_of,
)
from gossamer.envs.interface import spaces_of
from gossamer.envs.options import EnvOptions


class Reused:
    """A factory that keeps its environments when they are closed, and returns them again from `make`, until its context
    ends."""

    def __init__(self, env: EnvFactory) -> None:
        self._env = env
        self._idle: defaultdict[tuple[int, int, bool], list[VectorEnv]] = defaultdict(list)
        self._lock = Lock()  # workers are threads

    @property
    def name(self) -> str:
        return self._env.name

    @property
    def period(self) -> int:
        """See `Several`."""
        return one_of_each(self._env)

    def places(self, num_envs: int) -> list[int]:
        """See `Several`."""
        return places(self._env, num_envs)

    def threads(self, sharing: int) -> int:
        """See `Threaded`."""
        return threads_of(self._env, sharing)

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """See `EnvFactory.make`. Environments that were used before continue their random streams until `reset`."""
        key = num_envs, workers or self.threads(1), render
        with self._lock:
            idle = self._idle[key]
            env = idle.pop() if idle else None
        return Lent(env or self._env.make(num_envs, workers=workers, render=render), idle)

    def __enter__(self) -> Reused:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


class Lent:
    """Environments of `Reused`; `close` gives them back.

    They are `Watchable`, `Restarting` and `InTheMaking` if the environments are."""

    def __init__(self, env: VectorEnv, idle: list[VectorEnv]) -> None:
        self._env, self._idle, self._closed = env, idle, False
        self.spec, self.num_envs = env.spec, env.num_envs
        self.reset, self.step, self.frames = env.reset, env.step, env.frames
        # Instance attributes, so that `isinstance` finds a protocol's methods if the environments have them.
        if isinstance(env, Watchable):
            self.calls = env.calls
        if isinstance(env, Restarting):
            self.failures = env.failures
        if isinstance(env, InTheMaking):
            self.made = env.made

    def spaces(self) -> Spaces:
        """See `Spaced`."""
        return spaces_of(self._env)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._idle.append(self._env)


@dataclass(frozen=True)
class ReusedEnv:
    """Options of an environment whose factory is `Reused`; see `EnvOptions`."""

    options: EnvOptions
    reused: Reused

    @property
    def name(self) -> str:
        return self.options.name

    def factory(self) -> EnvFactory:
        return self.reused
