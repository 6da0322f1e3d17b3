"""What takes turns in virtual time: simulated workers, and the calls that they start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from gossamer.launch.base import CLAIM_POLL, claim
from gossamer.launch.simulation.faults import Crashed
from gossamer.program import Copy

if TYPE_CHECKING:
    from gossamer.launch.simulation.scheduler import Scheduler


class Turning(Protocol):
    """What takes turns: a worker, or a call that it has started."""

    name: str  # of the worker
    clock: float  # virtual seconds
    at: float | None  # its time in the event queue
    waits_for: str  # the call that it waits in, as service.method
    parked: int | None  # index of the service that it waits in
    service: int  # index of the service of its last call that had to wait
    resume: Callable[[], bool] | None  # of the call that it waits in; returns False if it waits again
    dead: bool  # whether its host has crashed
    ended: bool
    moves: int  # how often its clock has advanced since the progress count was `since`
    since: int

    def go_on(self) -> bool:
        """Take the turn. Returns False if the turn is over already."""


class SimulatedWorker:
    """A simulated worker and its `Context`. Its thread runs only during its turn."""

    def __init__(self, scheduler: Scheduler, copy: Copy, slow: float) -> None:
        self.name, self.rank, self.copies, self.host = copy.name, copy.rank, copy.copies, copy.node.host
        self.copy, self.scheduler, self.slow = copy, scheduler, slow
        self.turn = threading.Lock()  # the scheduler releases it to give this worker the turn
        self.turn.acquire()
        self.at: float | None = None  # this and the following: see `Turning`
        self.clock = 0.0
        self.waits_for = ""
        self.parked: int | None = None
        self.service = 0
        self.resume: Callable[[], bool] | None = None
        self.dead = self.ended = False
        self.moves = self.since = 0
        self.waited = 0.0  # virtual seconds parked
        self.sleeping = False
        self.restarts, self.ended_before = 0, frozenset[str]()
        self.started: list[Turning] = []  # its calls that are in progress
        self.awaits: Turning | None = None  # the one of these that it waits for

    def go_on(self) -> bool:
        """See `Turning`."""
        self.turn.release()
        return True

    def check_alive(self) -> SimulatedWorker:
        """Returns the worker. Raises Crashed if its host has crashed; cleanup code that still runs has no effect."""
        if self.dead:
            raise Crashed(f"{self.name}: host {self.host!r} has crashed")
        return self

    @property
    def stopped(self) -> bool:
        self.scheduler.wait_until(self, self.clock)  # give others a turn: a loop on `stopped` would never end otherwise
        return self.scheduler.crew.stopped

    def stop(self) -> None:
        self.check_alive().scheduler.crew.stop()

    def now(self) -> float:
        return self.check_alive().clock

    def sleep(self, seconds: float) -> None:
        if self.scheduler.crew.stopped:
            seconds = 0.0
        self.sleeping, self.waits_for = True, "Context.stopped" if seconds == inf else ""
        try:
            self.scheduler.wait_until(self, self.clock + max(0.0, seconds) * self.slow)
        finally:
            self.sleeping, self.waits_for = False, ""

    def restored(self) -> Any | None:
        return self.check_alive().scheduler.crew.observer.restored(self.name)

    def report(self, record: Any) -> None:
        self.check_alive().scheduler.crew.observer.report(self.name, record)

    def save(self, state: Any) -> None:
        self.check_alive().scheduler.crew.observer.save(self.name, state)

    def claim(self, steps: int, state: Callable[[], Any] = lambda: None) -> int | None:
        crew = self.check_alive().scheduler.crew
        if self.stopped:  # gives others a turn first; the claim below does so only in `_pause`
            return None
        stopped = lambda: crew.stopped  # noqa: E731
        return claim(crew.observer, self.name, steps, state, stopped=stopped, pause=self._pause, go=self._reset_order)

    def _reset_order(self) -> None:
        """Make the rest of the run depend only on the number of steps taken."""
        self.scheduler.reset_order(self, self.scheduler.crew.observer.claim(self.name, 0))

    def _pause(self) -> None:
        self.scheduler.crew.serve()
        self.sleep(CLAIM_POLL)
