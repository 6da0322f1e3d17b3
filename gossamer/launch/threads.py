"""Run a program in this process: every worker a thread, every service a monitor, all hosts this one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from gossamer.launch.base import POLL, Crew, Handle, advance, begin, build, methods, restore, serve
from gossamer.program import SILENT, Copy, Observer, Program, Stopped, Wait, WouldBlock


def threads(program: Program, observer: Observer = SILENT) -> None:
    """Run `program` until all its workers have ended. Call it from the main thread: only there are signals handled.

    Raises what the first failing worker raised, after all have ended.
    """
    monitors: list[Monitor] = []
    saved: list[Monitor] = []
    serving = threading.Lock()

    def wake() -> None:
        for monitor in monitors:
            monitor.wake()

    def serve_all() -> None:
        if serving.acquire(blocking=False):  # one worker at a time is enough
            try:
                for monitor in saved:
                    serve(observer, monitor.name, monitor.ask)
            finally:
                serving.release()

    crew = Crew(observer, wake, serve_all)
    for node in program.services:
        service = build(node, lambda ref: monitors[ref.index].handle(may_wait=False))
        monitors.append(Monitor(node.name, service, lambda: crew.stopped))
        if node.saved:
            saved.append(monitors[-1])
            restore(service, observer.restored(node.name))

    def body(copy: Copy) -> None:
        crew.work(copy, lambda ref: monitors[ref.index].handle(), lambda: crew.stopped)

    try:
        crew.run((copy.name, partial(body, copy)) for copy in program.crew)
    finally:
        for monitor in saved:
            observer.save(monitor.name, monitor.ask("state_dict"))


class Waiter:
    """A call that has to wait. Whoever changes the service lets it look, so that its thread wakes only at its end."""

    def __init__(self, steps: Wait[Any]) -> None:
        self.steps = steps
        self.woken = threading.Event()
        self.ended = False
        self.answer: Any = None
        self.error: BaseException | None = None

    def look(self) -> bool:
        """Whether it has come to its end, now."""
        try:
            self.ended, self.answer = advance(self.steps)
        except BaseException as error:  # the waiting caller's, not the one's who is here
            self.ended, self.error = True, error
        if self.ended:
            self.woken.set()
        return self.ended

    def close(self) -> None:
        """Give it up."""
        self.ended = True
        self.steps.close()


class Monitor:
    """A live service: one call at a time; a call that has to wait lets others in meanwhile."""

    def __init__(self, name: str, service: object, stopped: Callable[[], bool]) -> None:
        self.name = name
        self._service = service
        self._stopped = stopped
        self._lock = threading.Lock()
        self._waiting: list[Waiter] = []  # who came first looks first

    def handle(self, *, may_wait: bool = True) -> Handle:
        """For workers; for services without `may_wait`."""
        return Handle(self.name, self._service, self.call if may_wait else self.call_at_once)

    def published(self) -> dict[str, bool]:
        """Its public methods, and whether a call of each may have to wait."""
        kind: Any = type(self._service)
        return {name: getattr(getattr(kind, name), "waits", None) is not None for name in methods(kind)}

    def wake(self) -> None:
        """Let those who wait look whether the program has been stopped."""
        with self._lock:
            for waiter in self._waiting:
                waiter.woken.set()

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
        waiter = Waiter(begin(self._service, method, args, kwargs))
        with self._lock:
            self._waiting.append(waiter)
            waiter.look()
            self._changed()
        while not waiter.ended:
            waiter.woken.wait(timeout=POLL)
            with self._lock:
                if not waiter.ended and waiter.look():  # for changes between two waits, which none announces
                    self._changed()
                if not waiter.ended and (self._stopped() or given_up()):
                    waiter.close()
                    self._changed()
                    raise Stopped(f"while waiting for {self.name}.{method}")
                waiter.woken.clear()
        if waiter.error is not None:
            raise waiter.error
        return waiter.answer

    def call_at_once(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """From another service, which keeps its own callers out: were this to wait, nobody might ever end the wait."""
        with self._lock, closing(begin(self._service, method, args, kwargs)) as steps:
            try:
                ended, answer = advance(steps)
            finally:
                self._changed()
        if not ended:
            raise WouldBlock(f"{self.name}.{method} has to wait, and a service that called it must not")
        return answer

    def ask(self, method: str) -> Any:
        """Call a method that takes no arguments and never waits."""
        return self.call_at_once(method, (), {})

    def _changed(self) -> None:
        """Let those who wait look, until nobody gets any further."""
        moved = True
        while moved:
            self._waiting = [waiter for waiter in self._waiting if not waiter.ended]
            moved = sum(waiter.look() for waiter in self._waiting) > 0  # all of them, every time
