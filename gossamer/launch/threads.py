"""Run a program in this process: each worker is a thread, each service a monitor; all hosts are this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from gossamer.launch.base import POLL, Crew, Handle, advance, begin, build, methods, restore, serve_checkpoint
from gossamer.program import Copy, Program
from gossamer.runtime import SILENT, Observer, Stopped, Wait, WouldBlock


def threads(program: Program, observer: Observer = SILENT) -> None:
    """Run `program` until all its workers have ended. Signals are handled only if called from the main thread.

    Raises the error of the first worker that failed, after all have ended.
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
                    serve_checkpoint(observer, monitor.name, monitor.ask)
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
    """A waiting call. Calls that change the service resume it, so that its own thread wakes only when it has ended."""

    def __init__(self, steps: Wait[Any]) -> None:
        self.steps = steps
        self.woken = threading.Event()
        self.ended = False
        self.answer: Any = None
        self.error: BaseException | None = None

    def resume(self) -> bool:
        """Resume the call. Returns whether it has ended."""
        try:
            self.ended, self.answer = advance(self.steps)
        except BaseException as error:  # raised in the waiting thread, not in this one
            self.ended, self.error = True, error
        if self.ended:
            self.woken.set()
        return self.ended

    def close(self) -> None:
        """End the call without an answer."""
        self.ended = True
        self.steps.close()


class Monitor:
    """A running service. It executes one call at a time; other calls may run while a call waits."""

    def __init__(self, name: str, service: object, stopped: Callable[[], bool]) -> None:
        self.name = name
        self._service = service
        self._stopped = stopped
        self._lock = threading.Lock()
        self._waiting: list[Waiter] = []  # in order of arrival

    def handle(self, *, may_wait: bool = True) -> Handle:
        """A handle for a worker, or with `may_wait=False` for another service."""
        return Handle(self.name, self._service, self.call if may_wait else self.call_at_once)

    def published(self) -> dict[str, bool]:
        """The service's public methods, and whether a call of each may wait."""
        kind: Any = type(self._service)
        return {name: getattr(getattr(kind, name), "waits", None) is not None for name in methods(kind)}

    def wake(self) -> None:
        """Make waiting calls check whether the program has been stopped."""
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
        """Call a method and wait for its answer, without a timeout.

        Raises the service's own error; Stopped if the call still waits when the program is stopped or when `given_up`
        returns True.
        """
        waiter = Waiter(begin(self._service, method, args, kwargs))
        with self._lock:
            self._waiting.append(waiter)
            waiter.resume()
            self._resume_waiting()
        while not waiter.ended:
            waiter.woken.wait(timeout=POLL)
            with self._lock:
                if not waiter.ended and waiter.resume():  # changes between two yields wake no thread
                    self._resume_waiting()
                if not waiter.ended and (self._stopped() or given_up()):
                    waiter.close()
                    self._resume_waiting()
                    raise Stopped(f"while waiting for {self.name}.{method}")
                waiter.woken.clear()
        if waiter.error is not None:
            raise waiter.error
        return waiter.answer

    def call_at_once(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method that must not wait. Used for calls between services: the calling service is locked meanwhile,
        so the calls that could end the wait could not run. Raises WouldBlock if the method has to wait."""
        with self._lock, closing(begin(self._service, method, args, kwargs)) as steps:
            try:
                ended, answer = advance(steps)
            finally:
                self._resume_waiting()
        if not ended:
            raise WouldBlock(f"{self.name}.{method} would have to wait, so a service must not call it")
        return answer

    def ask(self, method: str) -> Any:
        """Call a method that takes no arguments and never waits."""
        return self.call_at_once(method, (), {})

    def _resume_waiting(self) -> None:
        """Resume all waiting calls, until none of them ends any more."""
        moved = True
        while moved:
            self._waiting = [waiter for waiter in self._waiting if not waiter.ended]
            moved = sum(waiter.resume() for waiter in self._waiting) > 0  # sum, because `any` would skip some
