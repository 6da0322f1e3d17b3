"""Leases of the step budget on their way from the driver to the workers of a host, some ahead of their use."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.program import Answer, Observer

AHEAD_SECONDS = 30.0  # of acting that a host has leases for in advance: so long it can be cut off and go on
RATE_SECONDS = 0.25  # over which used leases are counted at least


@dataclass(frozen=True)
class Demand:
    """What a worker has used of its leases and wants next. Leases are numbered from 0 in each process."""

    steps: int  # of one lease
    received: int  # leases that its host has got
    used: int  # leases that it has begun to act
    ahead: int  # leases that its host wants to have beyond those
    idle: bool  # whether it waits for an answer


@dataclass(frozen=True)
class Grant:
    """The driver's answer to a `Demand`."""

    first: int  # the number of the first lease in `positions`
    positions: tuple[int, ...] = ()  # of leases that the host may not have yet
    limit: int | None = None  # how many leases the worker may use in all; None: all of them
    answer: Answer | None = None  # what it gets where there is no lease to use


class Leases:
    """The host's end, of one worker, which claims the same number of steps each time. The caller locks."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._counted_at = now, now()
        self._positions = deque[int]()  # of leases that wait to be used
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
        """The worker has given the state that it was asked for."""
        self._answer = None

    def take(self, grant: Grant) -> None:
        """The driver's answer; leases that are here already are skipped."""
        received = self._used + len(self._positions)
        self._positions.extend(grant.positions[max(0, received - grant.first) :])
        self._limit, self._answer = grant.limit, grant.answer
        self.idle = self.idle and not self._usable  # it has its answer, even if it has not looked yet

    def demand(self) -> Demand:
        """What the driver is to know; used leases per second tell how many are wanted in advance."""
        now = self._now()
        if (seconds := now - self._counted_at) >= RATE_SECONDS:
            self._rate = (self._used - self._used_before) / seconds
            self._used_before, self._counted_at = self._used, now
        received = self._used + len(self._positions)
        return Demand(self._steps, received, self._used, 1 + math.ceil(self._rate * AHEAD_SECONDS), self.idle)


class Granted:
    """The driver's end, of one worker in one process of its host."""

    def __init__(self) -> None:
        self._positions = deque[int]()  # that the host has not confirmed
        self._first = 0  # the number of the first of them
        self._limit: int | None = None
        self._answer: Answer | None = None

    @property
    def _total(self) -> int:
        return self._first + len(self._positions)

    def meet(self, worker: str, demand: Demand, observer: Observer) -> None:
        """Lease what is wanted from the observer."""
        while self._first < demand.received:
            self._positions.popleft()
            self._first += 1
        wanted = self._total <= demand.used  # else there are leases: the claim asks only whether it may use them
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
        self._answer, self._limit = None, demand.used + 1 if paused else None  # one lease more, for those that wait
        while not paused and self._total < demand.used + demand.ahead:
            more = observer.claim(worker, demand.steps, idle=False)
            if isinstance(more, Answer):
                self._answer = more if more is Answer.END else None
                return
            self._positions.append(more)

    def grant(self) -> Grant:
        """What the host is told; the same until it confirms."""
        return Grant(self._first, tuple(self._positions), self._limit, self._answer)
