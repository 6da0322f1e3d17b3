"""An observer that counts what becomes of steps, as that of a training run does, and checks it against the reports."""

from __future__ import annotations

from typing import Any

from some_parts import Watcher

from gossamer.data import Rollout
from gossamer.task import Left, WorkerReport
from gossamer.training.progress import Progress


class Counting(Watcher):
    """It also takes back what dead workers had leased."""

    def __init__(self, *, steps: int) -> None:
        super().__init__(steps=steps)
        self.progress = Progress(steps, 1)
        self.acted, self.learned = set[Rollout](), list[Rollout]()  # as reported

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, Left):
            self.progress.outcomes.left(record.rollouts)
        if isinstance(record, WorkerReport):
            self.records.append(record)
            self.progress.update(worker, record, self.budget.report(worker, record.steps))
            self.acted |= set(record.handed_over)
            self.learned += record.learned_of

    def died(self, worker: str) -> None:
        self.budget.release(worker)
        self.progress.outcomes.died(worker)

    def check(self) -> dict[str, int]:
        """Every step that was acted is learned from, or dropped for one reason. Returns the dropped steps by reason.

        All that the reports say is named here, so the names make sets: what is in one and not in the other."""
        p, dropped, learned = self.progress, self.progress.outcomes.dropped(), set(self.learned)
        assert sum(dropped.values()) == sum(rollout.steps for rollout in self.acted - learned)
        assert p.outcomes.unreported == sum(rollout.steps for rollout in learned - self.acted)
        assert p.learned == sum(rollout.steps for rollout in learned)
        assert p.steps + p.uncounted + p.outcomes.unreported == p.learned + sum(dropped.values())
        assert min(*dropped.values(), p.uncounted, p.outcomes.unreported) >= 0
        return dropped
