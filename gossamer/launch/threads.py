"""Run a program in this process: every worker a thread, every service a monitor, all hosts this one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from gossamer.launch.base import POLL, Crew, Handle, advance, begin, build, methods
from gossamer.program import SILENT, Copy, Observer, Program, Stopped, WouldBlock


def threads(program: Program, observer: Observer = SILENT) -> None:
    """Run `program` until all its workers have ended. Call it from the main thread: only there are signals handled.

    Raises what the first failing worker raised, after all have ended.
    """
    monitors: list[Monitor] = []

    def wake() -> None:
        for monitor in monitors:
            monitor.wake()

    crew = Crew(observer, wake)
    for node in program.services:
        service = build(node, lambda ref: monitors[ref.index].handle(may_wait=False))
        monitors.append(Monitor(node.name, service, lambda: crew.stopped))

    def body(copy: Copy) -> None:
        crew.work(copy, lambda ref: monitors[ref.index].handle(), lambda: crew.stopped)

    crew.run((copy.name, partial(body, copy)) for copy in program.crew)


class Monitor:
    """A live service: one call at a time; a call that has to wait lets others in meanwhile."""

    def __init__(self, name: str, service: object, stopped: Callable[[], bool]) -> None:
        self.name = name
        self._service = service
        self._stopped = stopped
        self._changed = threading.Condition()

    def handle(self, *, may_wait: bool = True) -> Handle:
        """For workers; for services without `may_wait`."""
        return Handle(self.name, self._service, self.call if may_wait else self.call_at_once)

    def published(self) -> dict[str, bool]:
        """Its public methods, and whether a call of each may have to wait."""
        kind: Any = type(self._service)
        return {name: getattr(getattr(kind, name), "waits", None) is not None for name in methods(kind)}

    def wake(self) -> None:
        """Let those who wait look whether the program has been stopped."""
        with self._changed:
            self._changed.notify_all()

    def call(
        self,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given_up: Callable[[], bool] = lambda: False,
    ) -> Any:
        """The answer, waited for as long as it takes.

        Raises Stopped in a wait once the program is being stopped, or the caller has `given_up`.
        """
        with self._changed, closing(begin(self._service, method, args, kwargs)) as steps:
            try:
                ended, answer = advance(steps)
                if not ended:
                    self._changed.notify_all()  # what it changed on the way may be what another waits for
                while not ended:
                    if self._stopped() or given_up():
                        raise Stopped(f"while waiting for {self.name}.{method}")
                    self._changed.wait(timeout=POLL)  # time-out: for changes between two waits, which none announces
                    ended, answer = advance(steps)
                return answer
            finally:
                self._changed.notify_all()

    def call_at_once(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """From another service, which keeps its own callers out: were this to wait, nobody might ever end the wait."""
        with self._changed, closing(begin(self._service, method, args, kwargs)) as steps:
            try:
                ended, answer = advance(steps)
            finally:
                self._changed.notify_all()
        if not ended:
            raise WouldBlock(f"{self.name}.{method} has to wait, and a service that called it must not")
        return answer
