"""What goes wrong in a simulation: hosts that die and come back, workers that are slow, networks that fall apart."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from gossamer.launch.simulation.network import Partition
from gossamer.program import Program


class Crashed(BaseException):
    """Raised in a worker whose host has died. No `except Exception` catches it; it is no failure of the program."""


@dataclass(frozen=True)
class Faults:
    """What goes wrong, and when: all times in virtual seconds. No host dies or comes back once the program is stopped.

    A crash takes a host's services with all they hold, and its workers at once. Those of other hosts that call it, or
    are in a call to it, get `Unreachable` (`Network.timeout`). `down` seconds later the services are made anew, and the
    workers that had not ended run again from the start, with `Context.restarts` one higher and what the observer
    restores. A host that is down does not crash again.
    """

    slow: Mapping[str, float] = field(default_factory=dict)  # worker -> how many times longer its sleeps take
    crashes: Sequence[tuple[float, str, float]] = ()  # (when, host, down); down=inf: it never comes back
    crash_rate: float = 0.0  # crashes per second of every host that is up, at times the seed decides
    down_seconds: float = 30.0  # of the crashes that `crash_rate` makes
    partitions: Sequence[Partition] = ()  # from start until end, calls between the two sides are lost

    def __post_init__(self) -> None:
        for worker, factor in self.slow.items():
            if not 0 < factor < inf:
                raise ValueError(f"slow[{worker!r}]={factor}: how many times longer, above 0")
        if not 0 <= self.crash_rate < inf:
            raise ValueError(f"crash_rate={self.crash_rate}: crashes per second, not negative")
        if not self.down_seconds >= 0:
            raise ValueError(f"down_seconds={self.down_seconds}: not negative; inf where hosts never come back")
        for when, host, down in self.crashes:
            if not (0 <= when < inf and down >= 0):
                raise ValueError(f"crashes: ({when}, {host!r}, {down}): (when, host, seconds down), none negative")
        for start, end, _ in self.partitions:
            if not 0 <= start <= end:
                raise ValueError(f"partitions: from {start} to {end}: a start and an end after it, not negative")

    def check(self, program: Program) -> None:
        """Raises ValueError where a worker or host is named that the program has not."""
        workers = {copy.name for copy in program.crew}
        hosts = {host for _, host, _ in self.crashes}.union(*(side for _, _, side in self.partitions))
        if unknown := sorted(set(self.slow) - workers):
            raise ValueError(f"slow: no workers {unknown} in {program.name!r}; there are {sorted(workers)[:20]}")
        if unknown := sorted(hosts - set(program.hosts)):
            known = sorted(program.hosts)[:20]
            raise ValueError(f"crashes, partitions: no hosts {unknown} in {program.name!r}; there are {known}")


@dataclass(order=True, frozen=True)
class Event:
    """A host dies, or comes back."""

    when: float
    back: bool  # at the same second crashes come first
    host: str
    down: float = 0.0  # seconds; of a crash
    drawn: bool = False  # a crash that `crash_rate` made


class FaultSchedule:
    """The crashes and returns of one run, in order of time."""

    def __init__(self, faults: Faults, hosts: Iterable[str], seed: int) -> None:
        self._faults = faults
        self._rngs = {host: random.Random(f"{seed} crashes of {host}") for host in hosts}
        self._events = [Event(when, False, host, down) for when, host, down in faults.crashes]
        heapq.heapify(self._events)
        for host in self._rngs:
            self._draw(host, 0.0)

    def first(self) -> Event | None:
        return self._events[0] if self._events else None

    def take(self) -> Event:
        """The earliest event, off the faults_due."""
        event = heapq.heappop(self._events)
        if event.drawn:  # a Poisson process, whether or not the host is up at the time: it forgets
            self._draw(event.host, event.when)
        return event

    def down(self, crash: Event) -> None:
        """The crash has been carried out: note when the host comes back."""
        if crash.down < inf:
            heapq.heappush(self._events, Event(crash.when + crash.down, True, crash.host))
        else:
            self._events = [event for event in self._events if event.host != crash.host]
            heapq.heapify(self._events)

    def clear(self) -> None:
        self._events.clear()

    def _draw(self, host: str, now: float) -> None:
        if self._faults.crash_rate:
            when = now + self._rngs[host].expovariate(self._faults.crash_rate)
            heapq.heappush(self._events, Event(when, False, host, self._faults.down_seconds, drawn=True))
