"""SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal is closed) end a run after a checkpoint; a second Ctrl-C ends it at
once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

AGAIN_SECONDS = 1.0  # from the first Ctrl-C, until another one is a second one: a terminal and `timeout` send several
HELD_UP_SECONDS = 5.0  # from one that ended the run at once, until another one does: something holds up the end
EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}
ENDED_SHORT = 3


class Interrupted(KeyboardInterrupt):
    """The process ends at once, with this exit code."""

    def __init__(self, told: str, code: int) -> None:
        super().__init__(told)
        self.code = code


class Abandoned(KeyboardInterrupt):
    """A signal came in a part of a run that may be left out."""


class Signals:
    """Handles the signals that ask a run to end. Job schedulers and `timeout` send SIGTERM to a process and again
    to its group, so every SIGTERM after the first request means the same request."""

    def __init__(self, request: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        """`request` is called once, with the name of the first signal: it has the run save a checkpoint and end."""
        self._request, self._now = request, now
        self._requested = self._may_be_left_out = False
        self._at_once_from: float | None = None  # second from which a Ctrl-C ends the run at once

    def __call__(self, number: int, frame: object) -> None:
        is_second, left_out = False, self._may_be_left_out
        if number == signal.SIGINT:
            now, is_second = self._now(), self._at_once_from is not None
            if self._at_once_from is not None and now < self._at_once_from:
                return  # the same one again
            self._at_once_from = now + (HELD_UP_SECONDS if is_second and not left_out else AGAIN_SECONDS)
        if left_out:
            self._may_be_left_out = False
            raise Abandoned
        if is_second:
            raise KeyboardInterrupt("ended at once")
        if not self._requested:
            self._requested = True
            self._request(signal.Signals(number).name)

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals meanwhile, but not SIGHUP under nohup. Only the main thread of a process can; another one
        leaves them alone."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        closing = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        before = {number: signal.signal(number, self) for number in (signal.SIGINT, signal.SIGTERM, *closing)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def may_be_left_out(self) -> Iterator[None]:
        """A signal raises `Abandoned` in here, once."""
        self._may_be_left_out = True
        try:
            yield
        finally:
            self._may_be_left_out = False


@contextmanager
def naming(last: Callable[[], str], asked: Callable[[], str | None]) -> Iterator[None]:
    """Have a `KeyboardInterrupt` say which checkpoint there is, as `last` does once everything inside has ended, with
    the exit code of the signal that has `asked` the run to end."""
    try:
        yield
    except KeyboardInterrupt as error:
        told = "; ".join([*map(str, error.args), last()])
        raise Interrupted(told, EXIT_CODES[asked() or "SIGINT"]) from None


def exit_code(result: Mapping[str, Any]) -> int:
    """Return the exit code for a run with this `result.json`: 0 if it ended as planned, 3 if steps are missing, 130
    after Ctrl-C, 143 after SIGTERM and 129 after SIGHUP; after these a checkpoint was saved."""
    return EXIT_CODES.get(result["ended"], ENDED_SHORT if result["short"] else 0)
