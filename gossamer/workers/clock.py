"""Measures the time that a worker spends on each of its activities."""

from __future__ import annotations

import time


class Clock:
    """Accumulates wall-clock seconds per activity: `with clock("env"): ...`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, what: str) -> _Span:
        return _Span(self, what)

    def add(self, what: str, seconds: float) -> None:
        """Count so many seconds more."""
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """Return the seconds per activity since the last call."""
        seconds, self.seconds = self.seconds, {}
        return seconds


class _Span:
    """What `with` enters: a class, because a generator takes four times as long, at each step."""

    __slots__ = ("_clock", "_start", "_what")

    def __init__(self, clock: Clock, what: str) -> None:
        self._clock, self._what, self._start = clock, what, 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._clock.add(self._what, time.perf_counter() - self._start)
