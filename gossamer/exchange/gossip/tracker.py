"""Records one member's steps, messages and waits, from which the distance between members is computed."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor

from gossamer.exchange.gossip.graphs import Members
from gossamer.exchange.gossip.messages import Message, on_device
from gossamer.exchange.gossip.projection import distance, project
from gossamer.exchange.gossip.records import Cut, InTransit, PolicyOutputs, Record, Tracked, Traffic


class Tracker:
    """Cuts, the observation windows between them, and counts; see `records` for their meaning.

    What it records is bounded: three projections of 16 KB and the policy's outputs for each window, one projection for
    each late message, two numbers for each step and message of a window. Outside a window a step costs no vector
    operation."""

    def __init__(
        self,
        rank: int,
        period: int,
        window: int,
        gradient: Callable[[], Tensor],
        policy: Callable[[], PolicyOutputs | None],
    ) -> None:
        """A window of `window` iterations every `period` ones; none if `period` is 0. `gradient` gives this member's
        present gradient [P], `policy` its policy's outputs; both are called at closing cuts only."""
        if period and not 0 < window < period:
            raise ValueError(f"a window of {window} iterations does not fit into a period of {period}")
        self.rank, self.period, self.window = rank, period, window
        self.epoch = 0
        self.sent = self.refused = 0
        self._gradient, self._policy = gradient, policy
        self._opening: Tensor | None = None  # [P] this member's parameters at the opening cut, while a window is open
        self._before: Tensor | None = None  # [P] a buffer
        self._parents: tuple[tuple[int, int, float], ...] = ()
        self._noise = 0.0
        self._records: list[Record] = []
        self._cpu = time.thread_time()
        self._reset()

    @property
    def open(self) -> bool:
        """Whether a window is open: from this member's opening cut to its closing one."""
        return self._opening is not None

    def resume(self, k: int) -> None:
        """Continue at iteration k without an open window: what happened before is not known."""
        if self.period:
            self.epoch = max(self.epoch, self._due(k)) | 1

    def _due(self, k: int) -> int:
        """The epoch that iteration k belongs to."""
        return 2 * (k // self.period) + (k % self.period >= self.window)

    def cut(self, k: int, mine: Tensor, members: Members) -> None:
        """Record this member's part of the cut of the present epoch: its parameters [P] after its local step k. They
        must not be changed any more."""
        if not self.period:
            return
        with self._cost():
            cut = Cut(self.epoch, self.rank, k, members, len(mine), project(mine))
            if self._opening is not None:
                moved = distance(mine, self._opening)
                cut = replace(cut, gradient=project(self._gradient()), moved=moved, policy=self._policy())
            self._records.append(cut)
            self._opening = None if self.epoch % 2 else mine
            self._parents = ((self.rank, k, 1.0),)

    def start(self, vector: Tensor) -> Tensor:
        """A copy of the parameters [P] that a local step starts from. It is overwritten by the next call."""
        with self._cost(self.open):
            if self._before is None:
                self._before = vector.clone()
            return self._before.copy_(vector)

    def stepped(self, k: int, mine: Tensor, before: Tensor) -> None:
        """The local step number k led from `before` [P] to `mine` [P]."""
        if self.open:
            with self._cost():
                moved = distance(mine, before) + self._noise
                self._records.append(Tracked(self.epoch, self.rank, k, self._parents, moved))

    def arrived(self, k: int, mine: Tensor, messages: Sequence[Message], members: Members) -> None:
        """Take a cut first, if one is due, before these messages are averaged in at iteration k."""
        if not self.period:
            return
        latest = max([self._due(k), *(m.epoch for m in messages)])
        while self.epoch < latest:
            self.epoch += 1
            self.cut(k, mine, members)
        if self.open:
            with self._cost():
                late = [m for m in messages if m.epoch < self.epoch]
                vectors = [project(on_device(m, mine.device)) for m in late]
                self._records += [
                    InTransit(self.epoch, m.sender, m.iteration, v) for m, v in zip(late, vectors, strict=True)
                ]

    def mixed(self, k: int, messages: Sequence[Message], shares: Sequence[float], noise: float) -> None:
        """These were averaged in with these shares; `noise`: what lossy messages may have added, in the 2-norm."""
        with self._cost():
            parents = [(m.sender, m.iteration, share) for m, share in zip(messages, shares, strict=True)]
            self._parents, self._noise = ((self.rank, k, 1 - sum(shares)), *parents), noise
            self._iterations += 1
            now = time.time()
            for m in messages:
                self._staleness[k - m.iteration] += 1
                self._ages[math.floor(math.log2(max(now - m.published, 1e-6) * 1e3))] += 1

    @contextmanager
    def waiting(self, really: bool) -> Iterator[None]:
        """Count the seconds, if there was something to wait for."""
        start = time.perf_counter()
        yield
        self._waited += (time.perf_counter() - start) * really

    @contextmanager
    def _cost(self, counts: bool = True) -> Iterator[None]:
        """Count the processor time that this thread spends on records."""
        start = time.thread_time()
        yield
        self._spent += (time.thread_time() - start) * counts

    def take(self, weight: float) -> tuple[Record, ...]:
        """The records since the last call."""
        now = time.thread_time()
        traffic = Traffic(
            self._iterations,
            self.sent,
            sum(self._staleness.values()),
            self.refused,
            self._waited,
            dict(self._staleness),
            dict(self._ages),
            weight,
            max(0.0, now - self._cpu),
            self._spent,
        )
        records, self._records, self._cpu = (*self._records, traffic), [], now
        self._reset()
        return records

    def _reset(self) -> None:
        self.sent = self.refused = self._iterations = 0
        self._waited = self._spent = 0.0
        self._staleness, self._ages = Counter[int](), Counter[int]()
