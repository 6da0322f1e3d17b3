"""Policy lag and waiting batches at the updates of a run: their histograms, of the whole run and of one interval."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from gossamer.diagnostics.histograms import coarse
from gossamer.task import WorkerReport


@dataclass
class Staleness:
    """Histograms of the whole run, and of the interval since the last call of `row`."""

    lag: Counter[int] = field(default_factory=Counter)  # policy lag in optimizer steps -> trajectories, of each update
    waiting: Counter[int] = field(default_factory=Counter)  # full batches in the queue -> updates

    def __post_init__(self) -> None:
        self._row_lag, self._row_waiting = Counter[int](), Counter[int]()  # since the last row

    def update(self, report: WorkerReport) -> None:
        """Add what a learner reports."""
        for lag, trajectories in report.lag.items():
            self.lag[coarse(lag)] += trajectories
            self._row_lag[coarse(lag)] += trajectories
        if report.waiting is not None:
            self.waiting[report.waiting] += 1
            self._row_waiting[report.waiting] += 1

    def row(self) -> dict[str, Any] | None:
        """Entries of a line of `metrics.jsonl` for the interval since the last call; None if it had no update."""
        lag, waiting = self._row_lag, self._row_waiting
        self._row_lag, self._row_waiting = Counter[int](), Counter[int]()
        if not lag and not waiting:
            return None
        row: dict[str, Any] = {f"policy_lag_{name}": value for name, value in summary(lag).items()}
        row |= {"policy_lag_trajectories": by_value(_coarsened(lag, 5))}
        if waiting:
            row |= {"queue": summary(waiting)["mean"], "queue_updates": by_value(waiting)}
        return row

    def state_dict(self) -> dict[str, list[list[int]]]:
        """Each histogram as pairs of value and count."""
        return {"lag": _pairs(self.lag), "waiting": _pairs(self.waiting)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the histograms. A histogram that an older checkpoint lacks is empty."""
        self.lag, self.waiting = (Counter(dict(state.get(name, []))) for name in ("lag", "waiting"))


def summary(histogram: Counter[int]) -> dict[str, float]:
    """Mean, median, 90th percentile and maximum of a histogram; empty if it is."""
    if not histogram:
        return {}
    mean = sum(value * count for value, count in histogram.items()) / histogram.total()
    return {"mean": mean, "p50": _quantile(histogram, 0.5), "p90": _quantile(histogram, 0.9), "max": max(histogram)}


def by_value(histogram: Counter[int]) -> dict[str, int]:
    """A histogram as JSON: value -> count, in the order of the values."""
    return {str(value): histogram[value] for value in sorted(histogram)}


def _quantile(histogram: Counter[int], fraction: float) -> int:
    """The smallest value v for which at least this fraction of all values is at most v."""
    values = sorted(histogram)
    counts = accumulate(histogram[value] for value in values)
    wanted = fraction * histogram.total()
    return next(value for value, count in zip(values, counts, strict=True) if count >= wanted)


def _coarsened(lags: Counter[int], bits: int) -> Counter[int]:
    rounded = Counter[int]()
    for lag, count in lags.items():
        rounded[coarse(lag, bits)] += count
    return rounded


def _pairs(histogram: Counter[int]) -> list[list[int]]:
    return [list(pair) for pair in sorted(histogram.items())]
