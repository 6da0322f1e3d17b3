"""What one member keeps of its own steps, messages and waits, for whoever wants to know how far apart members are."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from gossamer.exchange.gossip.graphs import Members
from gossamer.exchange.gossip.messages import Message
from gossamer.exchange.gossip.records import Cut, InTransit, Record, Tracked, Traffic


class Tracker:
    """Cuts, the windows between them, and counts; see `records` for what they mean."""

    def __init__(self, rank: int, period: int, window: int) -> None:
        """A window of `window` iterations every `period` ones; none where `period` is 0."""
        if period and not 0 < window < period:
            raise ValueError(f"a window of {window} iterations does not fit into a period of {period}")
        self.rank, self.period, self.window = rank, period, window
        self.epoch = 0
        self.sent = self.refused = 0
        self._tracking = False  # from this member's opening cut on, until its closing one
        self._parents: tuple[tuple[int, int, float], ...] = ()
        self._noise = 0.0
        self._records: list[Record] = []
        self._fresh()

    @property
    def open(self) -> bool:
        """Whether a window is open, so that the next step is to be kept."""
        return self._tracking

    def resume(self, k: int) -> None:
        """Continue at iteration k without an open window: what happened before is not known."""
        if self.period:
            self.epoch = max(self.epoch, self._due(k)) | 1

    def _due(self, k: int) -> int:
        """The epoch that iteration k belongs to."""
        return 2 * (k // self.period) + (k % self.period >= self.window)

    def cut(self, k: int, mine: Tensor, members: Members, gradient: Tensor | None = None) -> None:
        """Keep this member's part of the cut of the present epoch: its parameters [P] after its local step k,
        which nobody changes any more."""
        if self.period:
            self._records.append(Cut(self.epoch, self.rank, k, members, mine.cpu(), gradient))
            self._tracking = self.epoch % 2 == 0
            self._parents = ((self.rank, k, 1.0),)

    def stepped(self, k: int, mine: Tensor, before: Tensor) -> None:
        """The local step number k led from `before` [P] to `mine` [P]."""
        if self._tracking:
            moved = float((mine - before).norm()) + self._noise
            self._records.append(Tracked(self.epoch, self.rank, k, self._parents, moved))

    def arrived(
        self, k: int, mine: Tensor, messages: Sequence[Message], members: Members, gradient: Callable[[], Tensor]
    ) -> None:
        """These messages are about to be taken in, at iteration k: is it time for a cut first?"""
        if not self.period:
            return
        latest = max([self._due(k), *(m.epoch for m in messages)])
        while self.epoch < latest:
            self.epoch += 1
            self.cut(k, mine, members, gradient().cpu() if self.epoch % 2 else None)
        if self._tracking:
            self._records += [
                InTransit(self.epoch, m.sender, m.iteration, m.parameters.cpu())
                for m in messages
                if m.epoch < self.epoch
            ]

    def mixed(self, k: int, messages: Sequence[Message], shares: Sequence[float], noise: float) -> None:
        """These were averaged in with these shares; `noise`: what lossy messages may have added, in the 2-norm."""
        parents = [(m.sender, m.iteration, share) for m, share in zip(messages, shares, strict=True)]
        self._parents, self._noise = ((self.rank, k, 1 - sum(shares)), *parents), noise
        self._iterations += 1
        now = time.time()
        for m in messages:
            self._staleness[k - m.iteration] += 1
            self._ages[math.floor(math.log2(max(now - m.published, 1e-6) * 1e3))] += 1

    @contextmanager
    def waiting(self, really: bool) -> Iterator[None]:
        """Count the seconds, where there was something to wait for."""
        start = time.perf_counter()
        yield
        self._waited += (time.perf_counter() - start) * really

    def take(self, weight: float) -> tuple[Record, ...]:
        """What has been kept since the last call."""
        mixed = sum(self._staleness.values())
        traffic = Traffic(
            self._iterations,
            self.sent,
            mixed,
            self.refused,
            self._waited,
            dict(self._staleness),
            dict(self._ages),
            weight,
        )
        records, self._records = (*self._records, traffic), []
        self._fresh()
        return records

    def _fresh(self) -> None:
        self.sent = self.refused = self._iterations = 0
        self._waited = 0.0
        self._staleness, self._ages = Counter[int](), Counter[int]()
