"""What is found out about environments once in each process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, Generic, TypeVar

from gossamer.envs.base import EnvFactory, Masking
from gossamer.envs.watchdog import Silence, Watchdog, complain
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


_giving = dict[str, bool]()  # by what describes the factory
_asking = threading.Lock()


def gives_masks(env: EnvFactory) -> bool:
    """Whether a factory's environments offer action masks, found out on one that is reset and closed again."""
    with _asking:
        if (key := repr(env)) not in _giving:
            with Watchdog(env.name, complain) as watchdog, closing(watchdog.watch(env.make(1))) as one:
                _giving[key] = isinstance(one, Masking) and one.gives_masks()
        return _giving[key]
