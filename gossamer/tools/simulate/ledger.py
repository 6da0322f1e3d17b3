"""Collects what workers report in virtual time, from the end of a warm-up on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from gossamer.data import Array
from gossamer.launch.simulation import Simulation
from gossamer.runtime import Silent
from gossamer.task import Left, Note, Recovered, Regrouped, ShardRestored


@dataclass(frozen=True)
class Span:
    """An activity of a worker. Times are virtual seconds."""

    what: str  # act, update, wait_for_slots, ...
    start: float
    end: float


class Stopwatch:
    """Records what a worker does, and when, in virtual time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._spans = now, list[Span]()

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        start = self._now()
        yield
        self._spans.append(Span(what, start, self._now()))

    def take(self) -> tuple[Span, ...]:
        """The spans since the last call."""
        spans, self._spans = tuple(self._spans), []
        return spans


class Record(Protocol):
    """A report of a worker, as a ledger counts it."""

    @property
    def spans(self) -> Sequence[Span]: ...  # of the worker, since its last report
    @property
    def counts(self) -> Mapping[str, int]: ...  # what -> how many: {"acted": 1}
    @property
    def lag(self) -> Mapping[int, int]: ...  # updates or iterations behind -> rollouts, gradients or messages
    def progress(self, before: int) -> int: ...  # of the worker, where it was `before`


@dataclass
class Totals:
    """Sums over all workers, from `start` on."""

    start: float = 0.0  # virtual seconds
    end: float = 0.0
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # what -> time of all workers
    counts: Counter[str] = field(default_factory=Counter)
    lag: Counter[int] = field(default_factory=Counter)
    first_call: int = 0  # in the simulation's trace
    end_call: int = 0  # the one after the last

    def add(self, record: Record) -> None:
        """Add a worker's record: of its times, the part after `start`."""
        for span in record.spans:
            self.seconds[span.what] += max(0.0, span.end - max(self.start, span.start))
            self.end = max(self.end, span.end)
        self.counts.update(record.counts)
        self.lag.update(record.lag)


class Ledger(Silent):
    """Observer: keeps the records of all workers, and adds them up after a warm-up. It ends the program when `workers`
    workers have made `target` progress each; later records, of what was still in transit, do not count."""

    def __init__(self, workers: int, target: int, simulation: Simulation, *, warm_up: int = 0) -> None:
        """`target`, `warm_up`: batches, iterations or updates of each worker that makes progress."""
        self._workers, self._target, self._warm_up = workers, target, warm_up
        self._simulation = simulation
        self._progress = Counter[str]()  # by worker
        self._states: dict[str, Any] = {}  # by worker
        self._claimed = 0
        self._ended = False
        self.totals = Totals()
        self.records: list[tuple[str, Any]] = []  # (worker, `Record`), from the start on
        self.told: list[Note | Recovered | Regrouped | ShardRestored] = []  # from the start on

    def restored(self, name: str) -> Any | None:
        return self._states.get(name)

    def save(self, name: str, state: Any) -> None:
        self._states[name] = state

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int:
        position, self._claimed = self._claimed, self._claimed + steps
        return position

    def stopping(self) -> bool:
        return self._ended

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, Note | Recovered | Regrouped | ShardRestored):
            self.told.append(record)
            return
        if self._ended or isinstance(record, Left):  # rollouts that stay in the queue at the end
            return
        self.records.append((worker, record))
        self.totals.add(record)
        self.totals.end_call = len(self._simulation.trace)
        before = self._progress[worker]
        self._progress[worker] = record.progress(before)
        if self._progress[worker] == before:
            return
        if before < self._warm_up and self._all(self._warm_up):
            now, calls = record.spans[-1].end, len(self._simulation.trace)
            self.totals = Totals(now, now, first_call=calls, end_call=calls)
        self._ended = self._all(self._target)

    def ended(self, worker: str) -> None:
        """A worker that comes back may find that it has nothing left to do, and ends without a record."""
        if self._progress[worker]:
            self._progress[worker] = max(self._progress[worker], self._target)
            self._ended = self._ended or self._all(self._target)

    def of(self, kind: type) -> Iterator[tuple[str, Any]]:
        """The records of this class, with their workers."""
        return (each for each in self.records if isinstance(each[1], kind))

    def _all(self, target: int) -> bool:
        """Whether all workers that make progress have made this much."""
        return sum(progress >= target for progress in self._progress.values() if progress) >= self._workers


def busy(spans: Sequence[Span], edges: Array) -> Array:
    """The mean number [N] of spans that are under way, in each interval between the N + 1 edges."""
    starts, ends = (np.array([getattr(span, name) for span in spans]) for name in ("start", "end"))
    inside = [
        np.maximum(np.minimum(ends, after) - np.maximum(starts, before), 0).sum() for before, after in pairwise(edges)
    ]
    mean: Array = np.array(inside) / np.diff(edges)
    return mean
