"""Learning curves: the mean return of the last 100 training episodes, or another metric, at every step and second of a
run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gossamer.reporting.statistics import Array
from gossamer.storage.runs import EpisodeRow, Row, RunRecord

WINDOW = 100  # episodes of a mean return, as in training
POINTS = 200  # of a grid
RETURN = "mean_return"  # the metric that curves show, if no other one is asked for

Along: TypeAlias = Literal["steps", "frames", "seconds"]


@dataclass(frozen=True)
class Curve:
    """Mean returns of one run. Its points [E] are in the order of time; before the first one nothing is known."""

    steps: NDArray[np.int64]  # environment steps [E]
    seconds: Array  # of training [E]
    returns: Array  # mean of the last 100 episodes, or of all while there are fewer [E]
    episodes: NDArray[np.int64]  # that have ended [E]

    def at(self, points: Array, along: Literal["steps", "seconds"]) -> Array:
        """The return at each of these steps or seconds [K]: that of the last point before; NaN before the first one."""
        index = np.searchsorted(getattr(self, along), points, side="right") - 1
        return np.where(index >= 0, self.returns[index], np.nan)

    def reached(self, goal: float, least: int = WINDOW) -> tuple[int, float] | None:
        """Steps and seconds at which the mean first was `goal` or more after `least` episodes; None if it never was."""
        places = np.flatnonzero((self.episodes >= least) & (self.returns >= goal))
        return (int(self.steps[places[0]]), float(self.seconds[places[0]])) if places.size else None

    def thinned(self, most: int) -> Curve:
        """At most `most` points, evenly spaced, including the first and the last."""
        if len(self.steps) <= most:
            return self
        kept = np.arange(most) * (len(self.steps) - 1) // (most - 1)
        return Curve(self.steps[kept], self.seconds[kept], self.returns[kept], self.episodes[kept])


def of_run(record: RunRecord) -> Curve:
    """The curve of a run: from `episodes.csv`, or from `metrics.jsonl` where an older version wrote no episodes, or
    not those before a resume. Raises `UserError` where the file is damaged."""
    return of_episodes(record.episodes) if record.episodes and not begins_late(record) else of_rows(record.rows)


def begins_late(record: RunRecord) -> bool:
    """Whether `episodes.csv` lacks the first episodes, as of a run that was begun by a version without this file."""
    logged, ended = len(record.episodes), (record.result or {}).get("episodes")
    if not logged or not ended or logged == ended:
        return False
    before = [row.get("episodes", 0) for row in record.rows if row["steps"] < record.episodes[0].steps]
    return bool(before) and 0 < before[-1] <= ended - logged


def of_episodes(episodes: Sequence[EpisodeRow]) -> Curve:
    """A point for each report that had episodes: they have no order within it."""
    steps = np.array([each.steps for each in episodes], np.int64)
    means = moving_mean(np.array([each.score for each in episodes], np.float64), WINDOW)
    seconds = np.array([each.seconds for each in episodes], np.float64)
    last = np.flatnonzero(np.append(steps[1:] != steps[:-1], True))  # of each report
    return Curve(steps[last], seconds[last], means[last], last + 1)


def of_rows(rows: Sequence[Row], metric: str = RETURN) -> Curve:
    """A point for each row that has the metric; rows are two seconds apart."""
    known = [row for row in rows if isinstance(row.get(metric), int | float)]  # others are histograms
    return Curve(
        np.array([row["steps"] for row in known], np.int64),
        np.array([row["seconds"] for row in known], np.float64),
        np.array([row[metric] for row in known], np.float64),
        np.array([row["episodes"] for row in known], np.int64),
    )


def moving_mean(values: Array, window: int) -> Array:
    """The mean of the last `window` values up to each [E], or of all while there are fewer."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(0, ends - window)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins))


def grid(end: float) -> Array:
    """200 evenly spaced points up to `end`."""
    return np.linspace(0, end, POINTS + 1)[1:]
