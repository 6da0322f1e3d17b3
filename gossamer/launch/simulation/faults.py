"""Faults of a simulation: hosts that crash and restart, slow workers, network partitions."""

from __future__ import annotations

import heapq
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from gossamer.launch.simulation.network import Partition
from gossamer.program import Program


class Crashed(BaseException):
    """Raised in a worker whose host has crashed. A BaseException, so that `except Exception` does not catch it. It does
    not count as a failure of the program."""


@dataclass(frozen=True)
class Faults:
    """The faults of one run. All times are in virtual seconds. No fault happens once the program is stopped.

    A crash ends a host's services and workers at once, and their state is lost. Calls from other hosts raise
    `Unreachable` (`Network.timeout`), also calls that were in progress. `down` seconds later the host restarts with new
    services. Its unfinished workers run again from the start; their `Context.restarts` is one higher, and
    `Context.restored` returns what the observer restores. A host that is down does not crash again.
    """

    slow: Mapping[str, float] = field(default_factory=dict)  # worker -> factor by which its sleeps take longer
    crashes: Sequence[tuple[float, str, float]] = ()  # (when, host, down); down=inf: the host never restarts
    crash_rate: float = 0.0  # random crashes per second of each running host
    down_seconds: float = 30.0  # duration of the random crashes
    spared: Collection[str] = ()  # hosts without random crashes
    partitions: Sequence[Partition] = ()  # from start until end, calls between the two sides are lost

    def __post_init__(self) -> None:
        for worker, factor in self.slow.items():
            if not 0 < factor < inf:
                raise ValueError(f"slow[{worker!r}]={factor}: must be a positive, finite factor")
        if not 0 <= self.crash_rate < inf:
            raise ValueError(f"crash_rate={self.crash_rate}: must be at least 0 and finite (crashes per second)")
        if not self.down_seconds >= 0:
            raise ValueError(f"down_seconds={self.down_seconds}: must be at least 0; inf: hosts never restart")
        for when, host, down in self.crashes:
            if not (0 <= when < inf and down >= 0):
                raise ValueError(f"crashes: ({when}, {host!r}, {down}): must be (when, host, down), times at least 0")
        for start, end, _ in self.partitions:
            if not 0 <= start <= end:
                raise ValueError(f"partitions: from {start} to {end}: must be 0 <= start <= end")

    def check(self, program: Program) -> None:
        """Raises ValueError if a fault names a worker or host that is not in the program."""
        workers = {copy.name for copy in program.crew}
        hosts = {host for _, host, _ in self.crashes}.union(self.spared, *(side for _, _, side in self.partitions))
        if unknown := sorted(set(self.slow) - workers):
            raise ValueError(f"slow: no workers {unknown} in {program.name!r}; there are {sorted(workers)[:20]}")
        if unknown := sorted(hosts - set(program.hosts)):
            known = sorted(program.hosts)[:20]
            raise ValueError(f"crashes, partitions, spared: no hosts {unknown} in {program.name!r}; there are {known}")


@dataclass(order=True, frozen=True)
class Event:
    """A host crashes or restarts."""

    when: float  # virtual seconds
    restart: bool  # at the same second, crashes come before restarts
    host: str
    down: float = 0.0  # of a crash: its duration in seconds
    drawn: bool = False  # whether it is a random crash (`crash_rate`)


class FaultSchedule:
    """The crashes and restarts of one run, in order of time."""

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
        """Remove and return the earliest event."""
        event = heapq.heappop(self._events)
        if event.drawn:  # a Poisson process is memoryless: draw the next crash even if the host is down now
            self._draw(event.host, event.when)
        return event

    def schedule_restart(self, crash: Event) -> None:
        """Schedule the host's restart after a crash. If it never restarts, remove its other events."""
        if crash.down < inf:
            heapq.heappush(self._events, Event(crash.when + crash.down, True, crash.host))
        else:
            self._events = [event for event in self._events if event.host != crash.host]
            heapq.heapify(self._events)

    def clear(self) -> None:
        self._events.clear()

    def _draw(self, host: str, now: float) -> None:
        if self._faults.crash_rate and host not in self._faults.spared:
            when = now + self._rngs[host].expovariate(self._faults.crash_rate)
            heapq.heappush(self._events, Event(when, False, host, self._faults.down_seconds, drawn=True))
