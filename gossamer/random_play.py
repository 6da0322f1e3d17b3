"""Uniformly random play in a few separate environments, and the mean observation measured in it."""

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
    """Caches the result of the last key. The first thread that requests it computes it; other threads wait."""

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
    """Return the mean observation [*O] (float32) of uniformly random play in four environments, 250 steps each.

    It is measured once per process and shared by the members there. `tell` is called if an environment hangs."""

    def measure() -> Array:
        total = count = 0.0
        for obs in play(env, BACKGROUND_ENVS, seed, BACKGROUND_STEPS, tell):
            total, count = total + obs.sum(0, dtype=np.float64), count + len(obs)
        mean: Array = np.asarray(total / count).astype(np.float32)
        return mean

    return _background.get((env, seed), measure)


def play(env: EnvFactory, num_envs: int, seed: int, steps: int, tell: Callable[[Silence], Any]) -> Iterator[Array]:
    """Yield the observations [B, *O] of uniformly random play, B = `num_envs`: after the reset and after each step."""
    rng = np.random.default_rng(seed)
    with Watchdog(env.name, tell) as watchdog, closing(watchdog.watch(env.make(num_envs))) as playing:
        yield playing.reset(seed)
        for _ in range(steps):
            yield playing.step(playing.spec.actions.random(rng, num_envs)).obs
