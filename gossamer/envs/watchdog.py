"""Watchdog that reports environments that do not respond."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from gossamer.envs.base import VectorEnv, Watchable

HANG_SECONDS = 30.0  # duration of a call after which it is reported; doubles after each report
LOOKS = 10  # checks per HANG_SECONDS
LAST_REPORT_SECONDS = 1.0  # that the end of the context waits for a report in progress

Env = TypeVar("Env", bound=VectorEnv)


@dataclass(frozen=True)
class Silence:
    """An environment that does not respond, or has responded late."""

    env: str  # environment name
    index: int | None  # None: during creation of the environments
    seconds: float  # duration of the call
    over: bool = False  # whether it has responded

    def __str__(self) -> str:
        which = f"an environment of {self.env}" if self.index is None else f"environment {self.index} of {self.env}"
        if self.over:
            return f"{which} has responded after {self.seconds:.0f} s"
        doing = "is being created and has not responded" if self.index is None else "has not responded"
        return f"{which} {doing} for {self.seconds:.0f} s"


def complain(silence: Silence) -> None:
    """Print to stderr, for commands without a log."""
    print(f"gossamer: {silence}", file=sys.stderr, flush=True)


@dataclass
class Call:
    """The current call of one thread or process."""

    index: int | None
    count: int
    since: float  # time of the first check that saw it, seconds
    tell_after: float = 0.0  # seconds until the next report
    told: bool = False


class Watchdog:
    """Context in which a background thread checks the environments and reports each one that hangs to `tell`.

    with Watchdog("my:Env", report) as watchdog, closing(watchdog.watch(factory.make(8))) as env: ...
    """

    def __init__(self, name: str, tell: Callable[[Silence], None]) -> None:
        self._name, self._tell = name, tell
        self._env: VectorEnv | None = None
        self._calls: list[Call] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watchdog of {name}", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        # The thread refers to the environments. If it frees native ones while the interpreter ends, the process aborts.
        self._thread.join(LAST_REPORT_SECONDS)

    def watch(self, env: Env) -> Env:
        """Monitor these environments, whose creation is complete, and return them."""
        self._env = env
        return env

    def _run(self) -> None:
        while not self._closed.wait(HANG_SECONDS / LOOKS):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Check the calls in progress at time `now` (seconds)."""
        for place, (index, count) in enumerate(self._asked()):
            if place == len(self._calls):
                self._calls.append(Call(index, count, now, HANG_SECONDS))
            call = self._calls[place]
            if (index, count) != (call.index, call.count):
                if call.told:
                    self._tell(Silence(self._name, call.index, now - call.since, over=True))
                self._calls[place] = Call(index, count, now, HANG_SECONDS)
            elif index != -1 and now - call.since >= call.tell_after:
                call.told, call.tell_after = True, 2 * call.tell_after
                self._tell(Silence(self._name, index, now - call.since))

    def _asked(self) -> Sequence[tuple[int | None, int]]:
        if self._env is None:
            return [(None, 0)]
        return self._env.calls() if isinstance(self._env, Watchable) else []
