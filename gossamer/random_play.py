"""Random play of a few environments, beside those that an agent learns in, and what is measured in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import closing
from typing import Any, Generic, TypeVar

import numpy as np

from gossamer.data import Array
from gossamer.envs.base import EnvFactory
from gossamer.envs.watchdog import Silence, Watchdog

BACKGROUND_ENVS = 4
BACKGROUND_STEPS = 250  # of each

T = TypeVar("T")


class OncePerProcess(Generic[T]):
    """The result for the last key, computed by the first thread that asks; others wait for it."""

    def __init__(self) -> None:
        self._computing = threading.Lock()
        self._last: tuple[Hashable, T] | None = None

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        with self._computing:
            if self._last is None or self._last[0] != key:
                self._last = key, compute()
            return self._last[1]


_background = OncePerProcess[Array]()


def background(env: EnvFactory, seed: int, tell: Callable[[Silence], Any]) -> Array:
    """The mean observation [*O] (float32) of uniformly random play of four environments, 250 steps each.

    It is measured once in each process: the members there share it. `tell` hears of an environment that hangs."""

    def measure() -> Array:
        total = count = 0.0
        for obs in play(env, BACKGROUND_ENVS, seed, BACKGROUND_STEPS, tell):
            total, count = total + obs.sum(0, dtype=np.float64), count + len(obs)
        mean: Array = np.asarray(total / count).astype(np.float32)
        return mean

    return _background.get((env, seed), measure)


def play(env: EnvFactory, num_envs: int, seed: int, steps: int, tell: Callable[[Silence], Any]) -> Iterator[Array]:
    """The observations [B, *O] of so many environments and steps of uniformly random play, the first ones included."""
    rng = np.random.default_rng(seed)
    with Watchdog(env.name, tell) as watchdog, closing(watchdog.watch(env.make(num_envs))) as playing:
        yield playing.reset(seed)
        for _ in range(steps):
            yield playing.step(rng.integers(0, playing.spec.actions, num_envs)).obs
