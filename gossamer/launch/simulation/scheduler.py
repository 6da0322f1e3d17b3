"""Scheduler in virtual time: which worker of a simulation goes on, and when none can."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from gossamer.launch.base import CLAIM_POLL, Crew, claim
from gossamer.launch.simulation.event_queue import EventQueue
from gossamer.launch.simulation.faults import Crashed, Event, FaultSchedule
from gossamer.program import Copy


class Deadlock(RuntimeError):
    """Nobody gets anywhere any more. `waiting` says what the workers wait for: worker -> service.method."""

    def __init__(self, waiting: dict[str, str]) -> None:
        super().__init__("nobody can go on: " + ", ".join(f"{who} waits for {what}" for who, what in waiting.items()))
        self.waiting = waiting


class SimulatedWorker:
    """A worker on the engine, and its `Context`: it runs from when it is given the turn to when it passes it on."""

    def __init__(self, scheduler: Scheduler, copy: Copy, slow: float) -> None:
        self.name, self.rank, self.copies, self.host = copy.name, copy.rank, copy.copies, copy.node.host
        self.copy, self.scheduler, self.slow = copy, scheduler, slow
        self.turn = threading.Lock()  # held but while it is its turn
        self.turn.acquire()
        self.at: float | None = None  # its place on the agenda
        self.clock = 0.0  # seconds
        self.waited = 0.0  # seconds parked
        self.waits_for = ""
        self.parked: int | None = None  # in which service
        self.sleeping = self.dead = self.ended = False
        self.restarts = 0
        self.moves, self.since = 0, 0  # how often its clock went on `since` that many times somebody got somewhere

    def live(self) -> SimulatedWorker:
        """Raises Crashed once its host has died: what still runs then is only clearing up, and has no effect."""
        if self.dead:
            raise Crashed(f"{self.name}: host {self.host!r} has died")
        return self

    @property
    def stopped(self) -> bool:
        self.scheduler.until(self, self.clock)  # or a loop that only waits for the end would never let the end come
        return self.scheduler.crew.stopped

    def stop(self) -> None:
        self.live().scheduler.crew.stop()

    def now(self) -> float:
        return self.live().clock

    def sleep(self, seconds: float) -> None:
        if self.scheduler.crew.stopped:
            seconds = 0.0
        self.sleeping, self.waits_for = True, "Context.stopped" if seconds == inf else ""
        try:
            self.scheduler.until(self, self.clock + max(0.0, seconds) * self.slow)
        finally:
            self.sleeping, self.waits_for = False, ""

    def restored(self) -> Any | None:
        return self.live().scheduler.crew.observer.restored(self.name)

    def report(self, record: Any) -> None:
        self.live().scheduler.crew.observer.report(self.name, record)

    def save(self, state: Any) -> None:
        self.live().scheduler.crew.observer.save(self.name, state)

    def claim(self, steps: int, state: Callable[[], Any] = lambda: None) -> int | None:
        crew = self.live().scheduler.crew
        if self.stopped:  # lets others have their turn first; those that wait below do so in `_pause` alone
            return None
        stopped = lambda: crew.stopped  # noqa: E731
        return claim(crew.observer, self.name, steps, state, stopped=stopped, pause=self._pause, go=self._align)

    def _align(self) -> None:
        """Let what follows depend on nothing but how many steps have been acted."""
        self.scheduler.align(self, self.scheduler.crew.observer.claim(self.name, 0))

    def _pause(self) -> None:
        self.scheduler.crew.serve()
        self.sleep(CLAIM_POLL)


class Scheduler:
    """Who has the turn. All of it belongs to whoever has, so nothing needs a lock.

    The next is one of those with the smallest clock. A deadlock is when workers are parked (in a call that waits) and

    * nobody can go on and no host is to come back, or
    * for `patience` virtual seconds nobody got anywhere, and since then every worker that is not parked has moved its
      clock on at least twice: it has slept from one turn to the next and that next one was in vain, too.

    To get somewhere is to end a wait, to make a call that could have waited, or to end. So a loop that sleeps and
    looks in turn, for ever, hides no deadlock; neither does it make one of a worker that sleeps for long, once.
    """

    def __init__(
        self,
        crew: Crew,
        faults_due: FaultSchedule,
        happen: Callable[[Event], None],
        rng: random.Random,
        patience: float,
        reseed: Callable[[object], None],
    ) -> None:
        """`happen` carries out a fault; `reseed` lets all randomness follow from the seed and a position."""
        self.crew, self.faults_due, self.patience = crew, faults_due, patience
        self.workers: list[SimulatedWorker] = []
        self.now = 0.0  # seconds; the clock of who has the turn
        self.count = 0
        self._happen, self._reseed = happen, reseed
        self._queue: EventQueue[SimulatedWorker] = EventQueue(rng)
        self._parked: dict[int, list[SimulatedWorker]] = {}  # by the service they wait in
        self._running = 0  # workers that have not ended
        self._news = True  # whether a call has ended since everybody who is parked last looked
        self._fresh: set[int] = set()  # services where one has ended since those parked there last looked twice
        self._stirred: set[int] = set()  # of these, where one that waited on may have changed something for others
        self._gains, self._look_at = 0, patience  # how often somebody got somewhere; when to look for a deadlock
        self._ending = False

    def join(self, worker: SimulatedWorker) -> None:
        self.workers.append(worker)
        self._running += 1
        self._queue.add(worker, 0.0)

    def pass_on(self) -> None:
        """Give the turn to one of the earliest; to nobody when all have ended."""
        while self._running:
            if self.crew.stopped and not self._ending:
                self._end()
            first = self._queue.first()
            if self._last_looks(first):
                continue
            event = self.faults_due.first()
            soon = first is None or (event is not None and (event.when, event.back) <= (first, False))
            upcoming = event.when if soon and event is not None else inf if first is None else first
            if (upcoming > self._look_at or upcoming == inf) and self._hopeless(upcoming):
                waiting = {p.name: p.waits_for for p in self.workers if p.waits_for}
                self.crew.fail("the simulation", Deadlock(dict(sorted(waiting.items()))))
            elif soon and event is not None:
                self.now = max(self.now, event.when)
                self._happen(self.faults_due.take())
            elif first is not None:
                self._give(first)
                return

    def _give(self, second: float) -> None:
        worker = self._queue.take(second)
        if second > self.now:
            self.now = second
        if second > worker.clock:
            worker.clock = second
            worker.moves = worker.moves + 1 if worker.since == self._gains else 1
            worker.since = self._gains
        self.count += 1
        worker.turn.release()

    def until(self, me: SimulatedWorker, second: float) -> None:
        """Give others their turn until it is mine again, at `second`. Raises Crashed."""
        me.live()
        self._queue.add(me, second)
        self.pass_on()
        me.turn.acquire()
        me.live()

    def align(self, me: SimulatedWorker, position: object) -> None:
        """Begin anew, as a run that is resumed at this position does: nobody asleep, all clocks at this second, the
        order decided by the seed and the position."""
        self._reseed(position)
        self._stirred.clear()
        self._fresh.clear()
        self._news = True
        self.gain()
        going = [w for w in self.workers if w.parked is None and not w.ended and not w.dead and w is not me]
        for worker in sorted([*going, me], key=lambda each: each.name):
            self._queue.remove(worker)
            worker.clock = self.now
            self._queue.add(worker, self.now)
        for others in self._parked.values():
            others.sort(key=lambda each: each.name)
        self.pass_on()
        me.turn.acquire()
        me.live()

    def park(self, me: SimulatedWorker, service: int, what: str, *, again: bool) -> None:
        """Wait for a change of the service; `again` where I have waited and looked before. Raises Crashed."""
        others = self._parked.setdefault(service, [])
        if again and others and service in self._fresh:
            self._stirred.add(service)
        others.append(me)
        me.parked, me.waits_for, since = service, what, me.clock
        self.pass_on()
        me.turn.acquire()
        me.waits_for = ""
        me.waited += me.clock - since
        me.live()

    def absent(self, me: SimulatedWorker) -> None:
        """Wait, dead, for my host to come back."""
        self.pass_on()
        me.turn.acquire()

    def wake(self, *services: int) -> None:
        """Let those parked there look again, now."""
        for service in services:
            for worker in self._parked.pop(service, ()):
                worker.parked = None
                self._queue.add(worker, self.now)

    def changed(self, service: int) -> None:
        """A call has ended there."""
        self._news = True
        self._fresh.add(service)
        self.wake(service)

    def gain(self) -> None:
        """Somebody got somewhere."""
        self._gains += 1
        self._look_at = self.now + self.patience

    def rouse(self, worker: SimulatedWorker) -> None:
        """Let a worker go on now, wherever it waits."""
        if worker.parked is not None:
            self._parked[worker.parked].remove(worker)
            worker.parked = None
        self._queue.remove(worker)
        self._queue.add(worker, self.now)

    def leave(self, me: SimulatedWorker) -> None:
        """I have ended."""
        me.ended = True
        self._running -= 1
        self.gain()
        self.pass_on()

    def _last_looks(self, first: float | None) -> bool:
        """Before time goes on: a change between two waits wakes nobody (see `waits`). Whether somebody looks."""
        if first is not None and first <= self.now:
            return False
        services: Iterable[int] = self._stirred
        if first is None and self._news:
            self._news, services = False, tuple(self._parked)
        self._fresh.difference_update(services)
        self.wake(*services)
        self._stirred.clear()
        return self._queue.first() != first

    def _hopeless(self, upcoming: float) -> bool:
        """Whether nothing is to come, or all who are not parked have moved on in vain."""
        if upcoming == inf:
            return True
        self._look_at = upcoming + self.patience
        going = [p for p in self.workers if p.parked is None and not p.ended and p.at != inf]
        in_vain = all(p.since == self._gains and p.moves >= 2 for p in going)
        return in_vain and any(p.parked is not None for p in self.workers)

    def _end(self) -> None:
        """The program is being stopped: nobody sleeps or waits any longer, and nothing goes wrong any more."""
        self._ending = True
        self.faults_due.clear()
        for worker in self.workers:
            absent = worker.dead and worker.at is None
            if not worker.ended and (worker.parked is not None or worker.sleeping or absent):
                self.rouse(worker)
