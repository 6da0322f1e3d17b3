"""Says which environment does not answer, and for how long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from gossamer.envs.base import VectorEnv, Watchable

HANG_SECONDS = 30.0  # without an answer until an environment is reported; then again after twice as long, and so on
LOOKS = 10  # in HANG_SECONDS

Env = TypeVar("Env", bound=VectorEnv)


@dataclass(frozen=True)
class Silence:
    """An environment that does not answer, or that has answered after all."""

    env: str  # its name
    index: int | None  # None: while the environments are being made
    seconds: float
    over: bool = False  # it has answered

    def __str__(self) -> str:
        which = f"an environment of {self.env}" if self.index is None else f"environment {self.index} of {self.env}"
        if self.over:
            return f"{which} has answered after {self.seconds:.0f} s"
        doing = "is being made and has not answered" if self.index is None else "has not answered"
        return f"{which} {doing} for {self.seconds:.0f} s"


def complain(silence: Silence) -> None:
    """For commands that have no log."""
    print(f"gossamer: {silence}", file=sys.stderr, flush=True)


@dataclass
class Call:
    """What one thread or process is asking, as the watchdog saw it first."""

    index: int | None
    count: int
    since: float  # on the clock
    tell_after: float = 0.0  # seconds
    told: bool = False


class Watchdog:
    """While it is entered, a thread of its own looks at the environments and tells of each that hangs.

    with Watchdog("my:Env", report) as watchdog, closing(watchdog.watch(factory.make(8))) as env: ...
    """

    def __init__(self, name: str, tell: Callable[[Silence], None]) -> None:
        self._name, self._tell = name, tell
        self._env: VectorEnv | None = None
        self._calls: list[Call] = []
        self._closed = threading.Event()

    def __enter__(self) -> Watchdog:
        threading.Thread(target=self._run, name=f"watchdog of {self._name}", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()

    def watch(self, env: Env) -> Env:
        """From now on these, which have been made."""
        self._env = env
        return env

    def _run(self) -> None:
        while not self._closed.wait(HANG_SECONDS / LOOKS):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Compare what is being asked with what was asked at the last look."""
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
