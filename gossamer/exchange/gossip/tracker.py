"""Records one member's steps, messages and waiting times, to compute the distance between members."""

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
    """Takes cuts, observes the windows between them, and counts messages; see `records` for definitions.

    Per window it records three projections of 16 KB, the policy outputs, one projection for each message in transit,
    and two numbers for each step and message. Outside a window a step needs no vector operation."""

    def __init__(
        self,
        rank: int,
        period: int,
        window: int,
        gradient: Callable[[], Tensor],
        policy: Callable[[], PolicyOutputs | None],
        trained: int | None = None,
        bounded: bool = True,
    ) -> None:
        """Open a window of `window` iterations every `period` iterations; none if `period` is 0.

        `gradient` returns the member's current gradient [P], `policy` its policy outputs. Both are called at closing
        cuts only. Distances are those of the first `trained` elements (None: of all), without running statistics.
        Without `bounded` there are no records of steps and messages: weights of sparse messages are not those of whole
        vectors, so the bound would not hold. Nor does that of a window in which a merged message was averaged, whose
        parts have weights of their own.
        Raises `ValueError` unless 0 < `window` < `period`."""
        if period and not 0 < window < period:
            raise ValueError(f"a window of {window} iterations does not fit into a period of {period}")
        self.rank, self.period, self.window = rank, period, window
        self.epoch = 0
        self.sent = self.sent_whole = self.sent_bytes = self.refused = 0
        self._gradient, self._policy, self._trained, self._bounded = gradient, policy, trained, bounded
        self._opening: Tensor | None = None  # [P] parameters at the opening cut, while a window is open
        self._before: Tensor | None = None  # [P] buffer of `start`
        self._parents: tuple[tuple[int, int, float], ...] = ()
        self._noise = 0.0  # see `mixed`
        self._merged = False  # whether a merged message was averaged since the last cut
        self._records: list[Record] = []
        self._cpu = time.thread_time()
        self._reset()

    @property
    def open(self) -> bool:
        """Whether this member records steps and messages: it is between an opening and a closing cut."""
        return self._bounded and self._opening is not None

    def resume(self, k: int) -> None:
        """Continue at iteration k without an open window, since earlier steps are unknown."""
        if self.period:
            self.epoch = max(self.epoch, self._due(k)) | 1

    def _due(self, k: int) -> int:
        """Return the epoch of iteration k."""
        return 2 * (k // self.period) + (k % self.period >= self.window)

    def cut(self, k: int, mine: Tensor, members: Members) -> None:
        """Record this member's part of the current epoch's cut: its parameters [P] after local step k. The tensor must
        not be modified afterwards."""
        if not self.period:
            return
        with self._cost():
            weights, bounded = mine[: self._trained], self._bounded and not self._merged
            cut = Cut(self.epoch, self.rank, k, members, len(weights), project(weights), bounded=bounded)
            if self._opening is not None:
                gradient = project(self._gradient()[: self._trained])
                moved = distance(weights, self._opening[: self._trained])
                cut = replace(cut, gradient=gradient, moved=moved, policy=self._policy())
            self._records.append(cut)
            self._opening = None if self.epoch % 2 else mine
            self._parents, self._merged = ((self.rank, k, 1.0),), False

    def start(self, vector: Tensor) -> Tensor:
        """Copy the parameters [P] before a local step. The next call overwrites the copy."""
        with self._cost(self.open):
            if self._before is None:
                self._before = vector.clone()
            return self._before.copy_(vector)

    def stepped(self, k: int, mine: Tensor, before: Tensor) -> None:
        """Record local step k from `before` [P] to `mine` [P]."""
        if self.open:
            with self._cost():
                moved = distance(mine[: self._trained], before[: self._trained]) + self._noise
                self._records.append(Tracked(self.epoch, self.rank, k, self._parents, moved))

    def arrived(self, k: int, mine: Tensor, messages: Sequence[Message], members: Members) -> None:
        """Take a due cut before these messages are averaged at iteration k, and record messages in transit."""
        if not self.period:
            return
        latest = max([self._due(k), *(m.epoch for m in messages)])
        while self.epoch < latest:
            self.epoch += 1
            self.cut(k, mine, members)
        if self.open:
            with self._cost():
                late = [m for m in messages if m.epoch < self.epoch]
                vectors = [project(on_device(m, mine.device)[: self._trained]) for m in late]
                self._records += [
                    InTransit(self.epoch, m.sender, m.iteration, v) for m, v in zip(late, vectors, strict=True)
                ]

    def mixed(self, k: int, messages: Sequence[Message], shares: Sequence[float], noise: float) -> None:
        """Record messages averaged with these shares. `noise`: L2 bound of the rounding error of lossy messages."""
        with self._cost():
            parents = [(m.sender, m.iteration, share) for m, share in zip(messages, shares, strict=True)]
            self._parents, self._noise = ((self.rank, k, 1 - sum(shares)), *parents), noise
            self._iterations += 1
            self._merged |= any(m.merged for m in messages)
            now = time.time()
            for m in messages:
                self._staleness[k - m.iteration] += 1
                count, staleness = self._edges.get((m.sender, self.rank), (0, 0))
                self._edges[m.sender, self.rank] = count + 1, staleness + max(0, k - m.iteration)
                self._ages[math.floor(math.log2(max(now - m.published, 1e-6) * 1e3))] += 1

    @contextmanager
    def waiting(self, really: bool) -> Iterator[None]:
        """Measure the time spent in the block; `really`: whether it counts as waiting."""
        start = time.perf_counter()
        yield
        self._waited += (time.perf_counter() - start) * really

    @contextmanager
    def _cost(self, counts: bool = True) -> Iterator[None]:
        """Measure the CPU time that this thread spends on records."""
        start = time.thread_time()
        yield
        self._spent += (time.thread_time() - start) * counts

    def take(self, weight: float) -> tuple[Record, ...]:
        """Return the records since the last call."""
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
            self._edges,
            self.sent_bytes,
            self.sent_whole,
        )
        records, self._records, self._cpu = (*self._records, traffic), [], now
        self._reset()
        return records

    def _reset(self) -> None:
        self.sent = self.sent_whole = self.sent_bytes = self.refused = self._iterations = 0
        self._waited = self._spent = 0.0
        self._staleness, self._ages = Counter[int](), Counter[int]()
        self._edges = dict[tuple[int, int], tuple[int, int]]()
