"""Calls in virtual time: generators that yield when they go on, and return the answer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gossamer.launch.simulation.scheduler import Scheduler
from gossamer.launch.simulation.turns import SimulatedWorker
from gossamer.runtime import Wait


@dataclass(frozen=True)
class Parked:
    """A call waits in a service: see `Scheduler.park`."""

    service: int
    what: str
    resume: Callable[[], bool]


Steps: TypeAlias = Generator[float | Parked, None, Any]  # yields until when it pauses, in virtual seconds, or `Parked`


class PendingCall:
    """A call that may have to wait. It is resumed in the thread of any worker."""

    def __init__(self, steps: Wait[Any], host: str, crash_counts: Mapping[str, int]) -> None:
        """`host`: that of the service."""
        self.ended = False
        self._steps, self._answer = steps, None
        self._error: BaseException | None = None
        self._host, self._crash_counts, self._crashes = host, crash_counts, crash_counts[host]

    @property
    def crashed(self) -> bool:
        """Whether the service's host has crashed during the call."""
        return self._crash_counts[self._host] != self._crashes

    def resume(self) -> bool:
        """Resume the call, unless the service's host has crashed. Returns False if it waits again."""
        if self._crash_counts[self._host] != self._crashes:
            return True
        try:
            next(self._steps)
        except StopIteration as end:
            self.ended, self._answer = True, end.value
        except BaseException as error:  # belongs to the calling worker, which raises it in `result`
            self.ended, self._error = True, error
        return self.ended

    def result(self) -> Any:
        """The answer. Raises the error of a call that has failed."""
        if self._error is not None:
            raise self._error
        return self._answer


class StartedCall:
    """A call that a worker has started and does not wait for yet. It has no thread: see `Turning`."""

    steps: Steps

    def __init__(self, scheduler: Scheduler, worker: SimulatedWorker) -> None:
        self.name, self.clock, self.since = worker.name, worker.clock, worker.since
        self.at: float | None = None
        self.waits_for = ""
        self.parked: int | None = None
        self.service = self.moves = 0
        self.resume: Callable[[], bool] | None = None
        self.dead = self.ended = False
        self._scheduler, self._worker = scheduler, worker
        self._value: Any = None
        self._error: BaseException | None = None
        worker.started.append(self)

    def go_on(self) -> bool:
        """See `Turning`. When the call has ended, the turn is that of the worker that waits for it."""
        self.waits_for, self.resume = "", None
        if self.dead:
            self.steps.close()
            return self._end()
        try:
            pause = next(self.steps)
        except StopIteration as end:
            self._value = end.value
        except BaseException as error:  # raised in `answer`
            self._error = error
        else:
            if isinstance(pause, Parked):
                self._scheduler.leave_parked(self, pause.service, pause.what, pause.resume)
            else:
                self._scheduler.leave_until(self, pause)
            return False
        return self._end()

    def _end(self) -> bool:
        """Returns whether the worker goes on."""
        self.ended, worker = True, self._worker
        worker.started.remove(self)
        if worker.awaits is not self or self.dead:  # a worker that has died goes on without it
            return False
        worker.clock = max(worker.clock, self.clock)
        return worker.go_on()

    def answer(self) -> Any:
        """Wait until the call has ended. Raises its error; Crashed."""
        if not self.ended:
            self._scheduler.wait_for(self._worker, self)
        if self._error is not None:
            raise self._error
        return self._value
