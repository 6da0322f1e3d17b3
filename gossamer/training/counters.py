"""What shared parameters and replay memories count in a run: gradients, and stored, drawn and lost steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gossamer.task import WorkerReport
from gossamer.training.policy_lag import by_value, summary


@dataclass
class Gradients:
    """Gradients of learners that share parameters, in memory or on a server. Those of an all-reduce have no staleness,
    and only the dropped ones are counted here."""

    staleness: Counter[int] = field(default_factory=Counter)  # in updates of all -> gradients applied
    dropped: Counter[str] = field(default_factory=Counter)  # why they were not applied -> gradients

    def update(self, report: WorkerReport) -> None:
        """Add what a learner reports."""
        self.staleness.update(report.staleness)
        self.dropped.update(report.dropped)

    def row(self) -> dict[str, Any]:
        """Entries of a line of `metrics.jsonl`, of the whole run; empty if there is nothing to count."""
        dropped = {f"dropped_{why}": n for why, n in self.dropped.items()}
        if not self._shared:
            return dropped
        stale = {f"gradient_staleness_{name}": value for name, value in summary(self.staleness).items()}
        return {**stale, "gradients": self.staleness.total(), **dropped}

    def result(self) -> dict[str, Any] | None:
        """For `result.json`; None if there is nothing to count."""
        if not self.row():
            return None
        applied = {"applied": self.staleness.total() if self._shared else None, "dropped": dict(self.dropped)}
        return {**applied, "staleness": {**summary(self.staleness), "gradients": by_value(self.staleness)}}

    def told(self) -> str:
        """In words; empty if there is nothing to count."""
        if not self.row():
            return ""
        stale = summary(self.staleness)
        age = f"{stale['mean']:.1f} updates stale, at most {stale['max']:.0f}" if stale else "none applied"
        counts = ", ".join(f"{count:,} {why}" for why, count in sorted(self.dropped.items()))
        if not self._shared:
            return f"gradients dropped: {counts}"
        return f"gradients {age}" + (f"; dropped: {counts}" if counts else "")

    @property
    def _shared(self) -> bool:
        """Whether learners share parameters. An all-reduce drops gradients for one reason, for which these do not."""
        return bool(self.staleness) or any(why != "replaced" for why in self.dropped)

    def state_dict(self) -> dict[str, Any]:
        """Pairs of value and count."""
        return {name: [list(pair) for pair in sorted(getattr(self, name).items())] for name in ("staleness", "dropped")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.staleness, self.dropped = (Counter(dict(state.get(name, []))) for name in ("staleness", "dropped"))


@dataclass
class Replayed:
    """Environment steps in replay memories. Every acted step is stored, or lost before that."""

    stored: int | None = None  # None: there is no memory
    drawn: int = 0  # each as often as it was drawn
    lost: int = 0  # of the stored: in memories that have failed since

    def __post_init__(self) -> None:
        self._held: dict[str, int] = {}  # worker -> steps in a memory of its own
        self._died = Counter[str]()  # worker -> steps that counted as lost when it died, and may be found again

    def died(self, worker: str) -> int:
        """The worker has died, and a memory of its own with it. Returns how many steps are lost."""
        lost = self._held.pop(worker, 0)
        self._died[worker] += lost
        self.lost += lost
        return lost

    def update(self, worker: str, report: WorkerReport) -> None:
        """Add what a worker reports."""
        if report.held:
            self._held[worker] = report.held
        if report.stored is not None:
            self.stored = (self.stored or 0) + report.stored
        self.drawn += report.drawn
        if report.lost < 0:  # a worker that died before its first report has lost nothing that it could find
            self.lost -= min(-report.lost, self._died.pop(worker, 0))
        else:
            self.lost += report.lost

    def row(self) -> dict[str, Any]:
        """Entries of a line of `metrics.jsonl`; empty without a memory."""
        return {} if self.stored is None else {"stored": self.stored, "drawn": self.drawn, "lost": self.lost}

    def result(self, steps: int) -> dict[str, Any] | None:
        """For `result.json`; None without a memory. `steps`: that were acted."""
        if self.stored is None:
            return None
        return {**self.row(), "unstored": max(0, steps - self.stored), "replay_ratio": self.drawn / max(1, self.stored)}

    def told(self) -> str:
        """In words; empty without a memory, and before anything has been stored."""
        if not self.stored:
            return ""
        lost = f", {self.lost:,} lost" if self.lost else ""
        return f"{self.stored:,} steps stored{lost}, each drawn {self.drawn / self.stored:.1f} times"

    def state_dict(self) -> dict[str, Any]:
        """The counters."""
        return {"stored": self.stored, "drawn": self.drawn, "lost": self.lost}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.stored, self.drawn, self.lost = state.get("stored"), int(state.get("drawn", 0)), int(state.get("lost", 0))
