"""What a run has done so far, and its record on disk: `metrics.jsonl` and TensorBoard events."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.task import Episode, Report

RECENT = 100  # episodes that a mean return is taken over


@dataclass
class Progress:
    """Counters and windows, brought up to date by reports."""

    total: int  # agent steps to go to
    frames_per_step: int
    now: Callable[[], float] = time.monotonic
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)  # worker -> its steps and updates
    episodes: int = 0
    recent: deque[Episode] = field(default_factory=lambda: deque(maxlen=RECENT))
    metrics: dict[str, float] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)  # seconds since the start, by part
    elapsed_before: float = 0.0  # seconds of the sessions before a resume

    def __post_init__(self) -> None:
        self.started = self.now()
        self._marks: deque[tuple[float, int]] = deque()  # (second, steps), the last minute of them

    @property
    def steps(self) -> int:
        """Agent steps of all members."""
        return sum(steps for steps, _ in self.counts.values())

    @property
    def updates(self) -> int:
        """Optimiser steps of all members."""
        return sum(updates for _, updates in self.counts.values())

    def update(self, worker: str, report: Report) -> None:
        """Take a member's report in."""
        if not self._marks:
            self._marks.append((self.started, self.steps))
        self.counts[worker] = (report.steps, report.updates)
        self.episodes += len(report.episodes)
        self.recent.extend(report.episodes)
        self.metrics = report.metrics
        for part, seconds in report.seconds.items():
            self.spent[part] = self.spent.get(part, 0.0) + seconds
        now = self.now()
        if now - self._marks[-1][0] >= 0.25:
            self._marks.append((now, self.steps))
            while now - self._marks[0][0] > 65:
                self._marks.popleft()

    def rate(self, window: float) -> float:
        """Steps a second over the last `window` seconds."""
        now = self.now()
        inside = [mark for mark in self._marks if now - mark[0] <= window] or list(self._marks)[-1:]
        if not inside or now <= inside[0][0]:
            return 0.0
        return (self.steps - inside[0][1]) / (now - inside[0][0])

    @property
    def elapsed(self) -> float:
        """Seconds of training, those before a resume included."""
        return self.elapsed_before + self.now() - self.started

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 episodes; None before the first."""
        return sum(e.score for e in self.recent) / len(self.recent) if self.recent else None

    @property
    def left(self) -> float | None:
        """Seconds until the end at the rate of the last minute."""
        rate = self.rate(60)
        return (self.total - self.steps) / rate if rate > 0 else None

    def shares(self) -> dict[str, float]:
        """Fractions of the time, by part; `other` is what none of them accounts for."""
        whole = max(self.now() - self.started, sum(self.spent.values()), 1e-9)
        shares = {part: seconds / whole for part, seconds in sorted(self.spent.items())}
        return {**shares, "other": 1 - sum(shares.values())}

    def row(self) -> dict[str, Any]:
        """One line of `metrics.jsonl`."""
        return {
            "steps": self.steps,
            "frames": self.steps * self.frames_per_step,
            "updates": self.updates,
            "seconds": round(self.elapsed, 3),
            "steps_per_second": round(self.rate(10), 1),
            "episodes": self.episodes,
            "mean_return": self.mean_return,
            **self.metrics,
            **{f"time/{part}": round(share, 4) for part, share in self.shares().items()},
        }

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run goes on counting from."""
        return {
            "counts": {worker: list(counts) for worker, counts in self.counts.items()},
            "episodes": self.episodes,
            "recent": [[e.score, e.steps] for e in self.recent],
            "elapsed": self.elapsed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.counts = {worker: (int(steps), int(updates)) for worker, (steps, updates) in state["counts"].items()}
        self.episodes, self.elapsed_before = int(state["episodes"]), float(state["elapsed"])
        self.recent.extend(Episode(float(score), int(length)) for score, length in state["recent"])


class Recorder:
    """Writes rows. A row is on disk when `write` returns; a full disk raises `OSError`."""

    def __init__(self, directory: Path, *, keep_until: int | None = None) -> None:
        """`keep_until`: rows of later steps are dropped (a resumed run does those again)."""
        from tensorboard.summary import Writer  # it takes a second to import: only where it is used

        self._path = directory / "metrics.jsonl"
        if keep_until is not None and self._path.exists():
            lines = [line for line in self._path.read_text().splitlines() if _until(line, keep_until)]
            self._path.write_text("".join(line + "\n" for line in lines))
        self._file = open(self._path, "a", buffering=1)  # noqa: SIM115  closed by close()
        self._events = Writer(str(directory / "tensorboard"))

    def write(self, row: dict[str, Any]) -> None:
        """Add one row."""
        self._file.write(json.dumps(row) + "\n")
        for name, value in row.items():
            if isinstance(value, int | float) and name != "steps":
                self._events.add_scalar(name, float(value), row["steps"])

    def close(self) -> None:
        """Flush everything."""
        self._file.close()
        self._events.close()


def _until(line: str, steps: int) -> bool:
    """Whether this line is whole and not later than that step."""
    try:
        return bool(json.loads(line)["steps"] <= steps)
    except (ValueError, KeyError, TypeError):  # cut off by a crash
        return False
