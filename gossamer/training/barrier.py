"""A checkpoint as a barrier: all workers are idle when their states are saved, so the states belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from enum import IntEnum

from gossamer.runtime import Answer, Stage

STALL_SECONDS = 0.3  # without another worker becoming idle, until one that is idle may act once more
STUCK_SECONDS = 5.0  # the same, also for one that is ahead of all that are not idle
PATIENCE_SECONDS = 10.0  # until a checkpoint goes without the workers that are not idle yet
SETTLE_SECONDS = 5.0  # until a checkpoint goes without what is still on its way between services


class Phase(IntEnum):
    OPEN = 0  # no checkpoint is being taken
    PAUSING = 1  # workers finish what they have leased
    WORKERS = 2  # workers save
    SETTLING = 3  # services let arrive what is on its way
    SETTLED = 4  # once more: what another service had sent may have arrived after a service had answered
    SERVICES = 5  # services save


class Barrier:
    """Where workers wait for a checkpoint. The caller locks, and calls `advance` after every other method.

    A worker that waits in a service for one that is idle here would never become idle itself. So where nothing moves
    for `STALL_SECONDS`, the idle worker that has acted the fewest steps may act once more, and so on: it is the one
    that others wait for. Each waits only for workers that are not ahead of it, so one that is ahead of all that are not
    idle stays idle: otherwise, where rollouts take longer than that, not all would be idle at once. Steps may mislead
    after a restart, so it may act, too, where nothing moves for `STUCK_SECONDS`."""

    def __init__(self, workers: Collection[str], services: Collection[str], now: Callable[[], float]) -> None:
        self.phase = Phase.OPEN
        self.active = set(workers)  # that are running and can be reached
        self._services, self._lost = frozenset(services), set[str]()
        self._now = now
        self._idle, self._todo = set[str](), set[str]()
        self._saving = self._opened = False
        self._acted = Counter[str]()  # worker -> steps; one that restarts is as far as those that have come farthest
        self._began = self._moved = 0.0
        self.missing: frozenset[str] = frozenset()  # workers and services that the last checkpoint went without

    def begin(self, *, save: bool = True) -> None:
        """Ask all workers to become idle. Without `save` they only wait for each other, and for what is on its way."""
        self.phase, self._idle, self.missing, self._saving = Phase.PAUSING, set(), frozenset(), save
        self._began = self._moved = self._now()

    def claim(self, worker: str, idle: bool) -> Answer | None:
        """The answer to a claim; None where it may be granted."""
        self.active.add(worker)
        if self._opened and idle and self.phase is Phase.OPEN:
            self._opened = False
            return Answer.GO
        if self.phase is Phase.OPEN or (self.phase is Phase.PAUSING and self._released(worker, idle)):
            return None
        return Answer.SAVE if idle and self.phase is Phase.WORKERS and worker in self._todo else Answer.WAIT

    def _released(self, worker: str, idle: bool) -> bool:
        if not idle:
            return False
        if worker not in self._idle:
            self._idle.add(worker)
            self._moved = self._now()
        stalled = self._now() - self._moved >= STALL_SECONDS and not self._late(PATIENCE_SECONDS)
        stalled = stalled and not self.active <= self._idle
        if not stalled or worker != min(self._idle & self.active, key=lambda each: (self._acted[each], each)):
            return False
        if self._ahead(worker) and self._now() - self._moved < STUCK_SECONDS:
            return False
        self._idle.discard(worker)
        self._moved = self._now()
        return True

    def _ahead(self, worker: str) -> bool:
        """Whether it has acted more steps than each worker that is not idle, and all of these have acted some."""
        steps = [self._acted[each] for each in self.active - self._idle]
        return 0 < min(steps) <= max(steps) < self._acted[worker]

    def acted(self, worker: str, steps: int) -> None:
        """A worker has acted so many steps more."""
        self._acted[worker] += steps

    def died(self, worker: str) -> None:
        """The worker's process is gone. If it is restarted, it continues where its neighbours are."""
        self._acted[worker] = max(self._acted.values(), default=0)
        self.away(worker)

    def saved(self, name: str) -> None:
        """A worker or service has saved."""
        self._todo.discard(name)

    def due(self, service: str) -> Stage | None:
        """Return the stage that a service must carry out now, or None."""
        self._lost.discard(service)
        if service not in self._todo:
            return None
        stages = {Phase.SETTLING: Stage.SETTLE, Phase.SETTLED: Stage.SETTLE, Phase.SERVICES: Stage.SAVE}
        return stages.get(self.phase)

    def settled(self, service: str) -> None:
        """No message to this service is in transit any more."""
        if self.phase in (Phase.SETTLING, Phase.SETTLED):
            self._todo.discard(service)

    def away(self, name: str) -> None:
        """A worker has ended or is unreachable, or a service is unreachable. The barrier no longer waits for it."""
        if self.phase in (Phase.WORKERS, Phase.SERVICES) and name in self._todo:
            self.missing |= {name}
        self.active.discard(name)
        self._idle.discard(name)
        self._todo.discard(name)
        if name in self._services:
            self._lost.add(name)

    def advance(self) -> bool:
        """Enter the next phase if the current one is complete. Return whether this completes a checkpoint."""
        before = self.phase
        enough = self.active <= self._idle or (self._idle and self._late(PATIENCE_SECONDS))
        if self.phase is Phase.PAUSING and enough:
            self.missing = frozenset(self.active - self._idle)
            self._next(self.active & self._idle if self._saving else ())
        if self.phase is Phase.WORKERS and not self._todo:
            self._next(self._services - self._lost)
        for phase in (Phase.SETTLING, Phase.SETTLED):
            if self.phase is phase and (not self._todo or self._late(SETTLE_SECONDS)):
                last = phase is Phase.SETTLED
                self._next(self._services - self._lost if self._saving or not last else ())
        if self.phase is Phase.SERVICES and not self._todo:
            self.phase, self._opened = Phase.OPEN, True
        return self._saving and before is not Phase.OPEN and self.phase is Phase.OPEN

    def _next(self, todo: Collection[str]) -> None:
        self.phase, self._todo, self._began = Phase(self.phase + 1), set(todo), self._now()
        if self.phase is Phase.SERVICES:
            self.missing |= self._services & self._lost

    def _late(self, seconds: float) -> bool:
        return self._now() - self._began >= seconds
