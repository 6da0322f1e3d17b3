"""Leases of the step budget. The driver grants them to a host's workers, some of them before they are needed."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.runtime import Answer, Observer

AHEAD_SECONDS = 30.0  # a worker gets leases for this time in advance, so it can act as long without the driver
RATE_SECONDS = 0.25  # shortest interval over which the rate of used leases is measured


@dataclass(frozen=True)
class Demand:
    """A worker's use of its leases and its need for more. Leases are numbered from 0 in each process."""

    steps: int  # size of one lease
    received: int  # number of leases that its host has received
    used: int  # number of leases that the worker has claimed
    ahead: int  # number of unused leases that its host wants to hold
    idle: bool  # whether the worker waits for an answer


@dataclass(frozen=True)
class Grant:
    """The driver's answer to a `Demand`."""

    first: int  # the number of the first lease in `positions`
    positions: tuple[int, ...] = ()  # of leases that the host has not confirmed
    limit: int | None = None  # total number of leases that the worker may use; None: all
    answer: Answer | None = None  # the answer to a claim when no lease may be used


class Leases:
    """The leases of one worker, on its host. All claims must have the same number of steps. Not thread-safe."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._counted_at = now, now()
        self._positions = deque[int]()  # of unused leases
        self._steps = self._used = self._used_before = 0
        self._rate = 0.0  # leases used per second
        self._limit: int | None = None
        self._answer: Answer | None = None
        self.idle = False  # whether the worker waits for an answer

    def claim(self, steps: int) -> int | Answer:
        """The worker's claim: see `Observer.claim`."""
        self._steps = steps
        if self._answer is Answer.SAVE:
            return Answer.SAVE
        if self._usable:
            self._used, self.idle = self._used + 1, False
            return self._positions.popleft()
        if self._answer is Answer.END and not self._positions:
            return Answer.END
        self.idle = True
        return Answer.WAIT

    @property
    def _usable(self) -> bool:
        return bool(self._positions) and (self._limit is None or self._used < self._limit)

    def saved(self) -> None:
        """The worker has saved the requested state."""
        self._answer = None

    def take(self, grant: Grant) -> None:
        """Apply the driver's answer. Leases received before are skipped."""
        received = self._used + len(self._positions)
        self._positions.extend(grant.positions[max(0, received - grant.first) :])
        self._limit, self._answer = grant.limit, grant.answer
        self.idle = self.idle and not self._usable  # it can act now, even if it has not claimed again yet

    def demand(self) -> Demand:
        """The worker's current demand. The rate of used leases decides how many are wanted in advance."""
        now = self._now()
        if (seconds := now - self._counted_at) >= RATE_SECONDS:
            self._rate = (self._used - self._used_before) / seconds
            self._used_before, self._counted_at = self._used, now
        received = self._used + len(self._positions)
        return Demand(self._steps, received, self._used, 1 + math.ceil(self._rate * AHEAD_SECONDS), self.idle)


class Granted:
    """The leases that the driver has granted to one worker, for one process of its host."""

    def __init__(self) -> None:
        self._positions = deque[int]()  # of leases that the host has not confirmed
        self._first = 0  # the number of the first of them
        self._limit: int | None = None
        self._answer: Answer | None = None

    @property
    def _total(self) -> int:
        return self._first + len(self._positions)

    def satisfy(self, worker: str, demand: Demand, observer: Observer) -> None:
        """Claim the demanded leases from the observer."""
        while self._first < demand.received:
            self._positions.popleft()
            self._first += 1
        wanted = self._total <= demand.used  # else a claim of 0 steps: it asks whether the worker may go on
        answer = observer.claim(worker, demand.steps if wanted else 0, idle=demand.idle)
        if answer is Answer.GO:
            answer = observer.claim(worker, demand.steps if wanted else 0, idle=demand.idle)
        if isinstance(answer, Answer):
            self._answer = answer
            self._limit = demand.used if self._limit is None else max(demand.used, self._limit)
            return
        if wanted:
            self._positions.append(answer)
        paused = demand.idle and observer.claim(worker, 0, idle=False) is Answer.WAIT
        # During a checkpoint an idle worker may use one more lease, because others may wait for it.
        self._answer, self._limit = None, demand.used + 1 if paused else None
        while not paused and self._total < demand.used + demand.ahead:
            more = observer.claim(worker, demand.steps, idle=False)
            if isinstance(more, Answer):
                self._answer = more if more is Answer.END else None
                return
            self._positions.append(more)

    def grant(self) -> Grant:
        """The grant to send to the host. It repeats all leases that the host has not confirmed."""
        return Grant(self._first, tuple(self._positions), self._limit, self._answer)
