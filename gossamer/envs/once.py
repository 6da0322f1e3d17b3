"""What is found out about environments once in each process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, Generic, TypeVar

from gossamer.envs.base import EnvFactory
from gossamer.envs.watchdog import Silence, Watchdog
from gossamer.spaces import Spec

T = TypeVar("T")


class OncePerProcess(Generic[T]):
    """Caches the result of the last key. The first thread that requests it computes it; other threads wait."""

    def __init__(self) -> None:
        self._computing = threading.Lock()
        self._last: tuple[object, T] | None = None

    def get(self, key: object, compute: Callable[[], T]) -> T:
        with self._computing:
            if self._last is None or self._last[0] != key:
                self._last = key, compute()
            return self._last[1]


_spec = OncePerProcess[Spec]()


def spec_of(env: EnvFactory, tell: Callable[[Silence], Any]) -> Spec:
    """Return the observations and actions of a factory's environments, read from one that is closed again unless they
    are known. `tell` is called if its making hangs."""

    def read() -> Spec:
        with Watchdog(env.name, tell) as watchdog, closing(watchdog.watch(env.make(1))) as one:
            return one.spec

    return _spec.get(env, read)


def remember(env: EnvFactory, spec: Spec) -> None:
    """Keep the spec of an environment that has been made for another reason."""
    _spec.get(env, lambda: spec)
