"""Collects the reports of actors and learners in virtual time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gossamer.launch.simulation import Simulation
from gossamer.runtime import Silent
from gossamer.task import Note


@dataclass(frozen=True)
class Span:
    """What a worker did. Times are virtual seconds."""

    what: str  # act, actors_wait, parameters_wait, send; update, learner_waits, average
    start: float
    end: float


@dataclass(frozen=True)
class Acted:
    """A rollout that has been handed over."""

    position: int  # in the run's budget
    spans: Sequence[Span]  # of the actor, since its last report


@dataclass(frozen=True)
class Learned:
    """A pass over a batch."""

    positions: Sequence[int]  # of its rollouts, if they are learned from for the first time
    rollouts: int
    lag: Mapping[int, int]  # policy lag in optimizer steps -> rollouts, of each optimizer step
    waiting: int  # further batches that are full
    spans: Sequence[Span]  # of the learner, since its last report


@dataclass
class Totals:
    """What happened from `start` on."""

    start: float = 0.0  # virtual seconds
    end: float = 0.0
    acted: int = 0  # rollouts
    learned: int = 0  # rollouts, for the first time
    reused: int = 0  # rollouts, once more
    lag: Counter[int] = field(default_factory=Counter)
    waiting: list[int] = field(default_factory=list)  # for each new batch
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # what -> time of all workers
    first_call: int = 0  # in the simulation's trace
    end_call: int = 0  # the one after the last

    def add(self, record: Acted | Learned) -> None:
        """Add a worker's record: of its times, the part after `start`."""
        for span in record.spans:
            self.seconds[span.what] += max(0.0, span.end - max(self.start, span.start))
            self.end = max(self.end, span.end)
        if isinstance(record, Acted):
            self.acted += 1
            return
        self.learned += len(record.positions)
        self.reused += record.rollouts - len(record.positions)
        self.lag.update(record.lag)
        if record.positions:
            self.waiting.append(record.waiting)


class Ledger(Silent):
    """Observer: counts rollouts and adds up times, after a warm-up. It ends the program when every learner has taken
    its batches; rollouts in the queue or in transit are then not learned from."""

    def __init__(self, learners: int, batches: int, simulation: Simulation) -> None:
        """`batches`: of each learner; the first quarter is the warm-up."""
        self._learners, self._batches, self._simulation = learners, batches, simulation
        self._taken = Counter[str]()  # learner -> batches
        self._claimed = 0
        self._ended = False
        self.totals = Totals()
        self.updates: list[Span] = []  # of all learners, since the start
        self.queue: list[tuple[float, int]] = []  # (virtual second, full batches behind the one that is taken)

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int:
        position, self._claimed = self._claimed, self._claimed + steps
        return position

    def stopping(self) -> bool:
        return self._ended

    def report(self, worker: str, record: Any) -> None:
        if self._ended or isinstance(record, Note):
            return  # transfers that were under way; a host that does not answer
        self.totals.add(record)
        self.totals.end_call = len(self._simulation.trace)
        if isinstance(record, Learned):
            self._learned(worker, record)

    def _learned(self, worker: str, record: Learned) -> None:
        self.updates += [span for span in record.spans if span.what == "update"]
        if not record.positions:
            return
        self.queue.append((record.spans[-1].end, record.waiting))
        self._taken[worker] += 1
        if self._taken[worker] == self._batches // 4 and self._all(self._batches // 4):
            now = record.spans[-1].end
            self.totals = Totals(now, now, first_call=len(self._simulation.trace))
        self._ended = self._ended or self._all(self._batches)

    def _all(self, batches: int) -> bool:
        """Whether every learner has taken so many batches."""
        return len(self._taken) == self._learners and min(self._taken.values()) >= batches
