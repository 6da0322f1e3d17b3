"""Scheduler in virtual time: selects the worker that runs next, and detects deadlocks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from math import inf

from gossamer.launch.base import Crew
from gossamer.launch.simulation.event_queue import EventQueue
from gossamer.launch.simulation.faults import Event, FaultSchedule
from gossamer.launch.simulation.turns import SimulatedWorker, Turning


class Deadlock(RuntimeError):
    """No worker makes progress any more. `waiting`: worker -> the call it waits in, as service.method."""

    def __init__(self, waiting: dict[str, str]) -> None:
        super().__init__("deadlock: " + ", ".join(f"{name} waits for {what}" for name, what in waiting.items()))
        self.waiting = waiting


class Scheduler:
    """Gives workers their turns, one at a time. Only the worker whose turn it is uses it, so it needs no locks.

    The next turn goes to one of the workers with the smallest clock. A worker is parked while it waits in a call. There
    is a deadlock if workers are parked and

    * no worker can continue and no fault is scheduled, or
    * there was no progress for `patience` virtual seconds, and since then every worker that is not parked has advanced
      its clock at least twice.

    Progress is: a wait ends, a call that may wait begins, or a worker ends. So a loop of sleeping and checking does not
    hide a deadlock, and a single long sleep does not count as one.
    """

    def __init__(
        self,
        crew: Crew,
        faults_due: FaultSchedule,
        execute_fault: Callable[[Event], None],
        rng: random.Random,
        patience: float,
        reseed: Callable[[object], None],
    ) -> None:
        """`reseed` derives all randomness from the seed and a position in the run."""
        self.crew, self.faults_due, self.patience = crew, faults_due, patience
        self.workers: list[SimulatedWorker] = []
        self.now = 0.0  # virtual seconds: the clock of the worker whose turn it is
        self.turns = 0
        self._execute_fault, self._reseed = execute_fault, reseed
        self._queue: EventQueue[Turning] = EventQueue(rng)
        self._parked: dict[int, list[Turning]] = {}  # by the service that they wait in
        self._running = 0  # number of workers that have not ended
        self._unchecked = True  # whether a call has ended since all parked workers were last re-checked
        self._changed: set[int] = set()  # services where a call has ended since their last re-check
        self._recheck: set[int] = set()  # of these, where a resumed call waits again and may have changed the state
        self._progress = 0  # count of progress events
        self._check_at = patience  # when to check for a deadlock, in virtual seconds
        self._stopping = False

    @property
    def turning(self) -> Iterable[Turning]:
        """All workers, but calls in progress in place of those that wait for one."""
        for worker in self.workers:
            if worker.awaits is None:
                yield worker
            yield from tuple(worker.started)

    def add(self, worker: SimulatedWorker) -> None:
        self.workers.append(worker)
        self._running += 1
        self._queue.add(worker, 0.0)

    def next_turn(self) -> None:
        """Execute the faults that are due and give the turn to one of the earliest workers, unless all have ended."""
        while self._running:
            if self.crew.stopped and not self._stopping:
                self._stop()
            first = self._queue.first()
            if self._recheck_parked(first):
                continue
            event = self.faults_due.first()
            soon = first is None or (event is not None and (event.when, event.restart) <= (first, False))
            upcoming = event.when if soon and event is not None else inf if first is None else first
            if (upcoming > self._check_at or upcoming == inf) and self._is_deadlock(upcoming):
                waiting = {p.name: p.waits_for for p in self.turning if p.waits_for}
                self.crew.fail("the simulation", Deadlock(dict(sorted(waiting.items()))))
            elif soon and event is not None:
                self.now = max(self.now, event.when)
                self._execute_fault(self.faults_due.take())
            elif first is not None and self._give_turn(first):
                return

    def _give_turn(self, second: float) -> bool:
        """Give the turn to one of the workers at `second`. The calls in which they wait, and those that they have
        started, go on here, because changing threads takes much longer. Returns False if only such calls did."""
        self.now = max(self.now, second)
        while True:
            one = self._queue.take(second)
            if second > one.clock:
                one.clock = second
                one.moves = one.moves + 1 if one.since == self._progress else 1
                one.since = self._progress
            self.turns += 1
            if one.resume is None or one.dead or one.resume() or self._stopping:
                if one.go_on():
                    return True
            else:
                others = self._parked.setdefault(one.service, [])
                if others and one.service in self._changed:
                    self._recheck.add(one.service)
                others.append(one)
                one.parked = one.service
            if second not in self._queue:
                return False

    def wait_until(self, me: SimulatedWorker, second: float) -> None:
        """Give others their turns until it is this worker's turn at `second`. Raises Crashed."""
        me.check_alive()
        self._queue.add(me, second)
        self.next_turn()
        me.turn.acquire()
        me.check_alive()

    def reset_order(self, me: SimulatedWorker, position: object) -> None:
        """Make the order of turns the same as in a run that is resumed at this position: no worker sleeps, all clocks
        are equal, and the randomness follows from the seed and the position. Raises Crashed."""
        self._reseed(position)
        self._recheck.clear()
        self._changed.clear()
        self._unchecked = True
        self.record_progress()
        active = [one for one in self.turning if one.parked is None and not one.ended and not one.dead]
        for worker in sorted(active, key=lambda each: each.name):
            self._queue.remove(worker)
            worker.clock = self.now
            self._queue.add(worker, self.now)
        for others in self._parked.values():
            others.sort(key=lambda each: each.name)
        self.next_turn()
        me.turn.acquire()
        me.check_alive()

    def park(self, me: SimulatedWorker, service: int, what: str, resume: Callable[[], bool]) -> None:
        """Wait in a call. After each change of the service, `resume` is called in any worker's thread. The worker gets
        its turn when it returns True, or when the program is stopped. Raises Crashed."""
        since = me.clock
        self.leave_parked(me, service, what, resume)
        self.next_turn()
        me.turn.acquire()
        me.waits_for, me.resume = "", None
        me.waited += me.clock - since
        me.check_alive()

    def leave_parked(self, one: Turning, service: int, what: str, resume: Callable[[], bool]) -> None:
        """From now on it waits in a call."""
        self._parked.setdefault(service, []).append(one)
        one.parked, one.service, one.waits_for, one.resume = service, service, what, resume

    def leave_until(self, one: Turning, second: float) -> None:
        """It has its next turn at this time."""
        self._queue.add(one, second)

    def wait_for(self, me: SimulatedWorker, call: Turning) -> None:
        """Wait until a call that the worker has started has ended. Raises Crashed."""
        me.awaits = call
        self.next_turn()
        me.turn.acquire()
        me.awaits = None
        me.check_alive()

    def wait_for_restart(self, me: SimulatedWorker) -> None:
        """Wait, after a crash, until the worker's host has restarted or the program is stopped."""
        self.next_turn()
        me.turn.acquire()

    def wake(self, *services: int) -> None:
        """Make all workers ready that are parked in these services."""
        for service in services:
            for worker in self._parked.pop(service, ()):
                worker.parked = None
                self._queue.add(worker, self.now)

    def call_ended(self, service: int) -> None:
        self._unchecked = True
        self._changed.add(service)
        self.wake(service)

    def record_progress(self) -> None:
        self._progress += 1
        self._check_at = self.now + self.patience

    def make_ready(self, one: Turning) -> None:
        """Let it continue now, even if it is parked or sleeping."""
        if one.parked is not None:
            self._parked[one.parked].remove(one)
            one.parked = None
        self._queue.remove(one)
        self._queue.add(one, self.now)

    def end(self, me: SimulatedWorker) -> None:
        """Mark a worker as ended and give the turn to the next."""
        me.ended = True
        self._running -= 1
        self.record_progress()
        self.next_turn()

    def _recheck_parked(self, first: float | None) -> bool:
        """Before time advances, wake parked workers: a change between two yields did not wake them (see `waits`).
        Returns whether a worker has become ready."""
        if first is not None and first <= self.now:
            return False
        services: Iterable[int] = self._recheck
        if first is None and self._unchecked:
            self._unchecked, services = False, tuple(self._parked)
        self._changed.difference_update(services)
        self.wake(*services)
        self._recheck.clear()
        return self._queue.first() != first

    def _is_deadlock(self, upcoming: float) -> bool:
        """Whether nothing is scheduled, or all workers that are not parked run without progress."""
        if upcoming == inf:
            return True
        self._check_at = upcoming + self.patience
        active = [p for p in self.turning if p.parked is None and not p.ended and p.at != inf]
        no_progress = all(p.since == self._progress and p.moves >= 2 for p in active)
        return no_progress and any(p.parked is not None for p in self.turning)

    def _stop(self) -> None:
        """Stop the program: cancel all faults, and make sleeping and waiting workers ready so that they can end."""
        self._stopping = True
        self.faults_due.clear()
        for worker in self.workers:
            absent = worker.dead and worker.at is None
            if not worker.ended and (worker.parked is not None or worker.sleeping or absent):
                self.make_ready(worker)
            for call in worker.started:
                if call.parked is not None:
                    self.make_ready(call)
