"""What a run has done so far, and its record on disk: `metrics.jsonl` and TensorBoard events."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.task import Episode, Report

RECENT = 100  # episodes that a mean return is taken over


@dataclass
class Progress:
    """Counters and windows, brought up to date by reports.

    Steps are those that were played. A member that starts again from an older state of its own reports fewer of them
    than before: it plays some for a second time, and these count again, so that no total ever goes down."""

    total: int  # agent steps to go to
    frames_per_step: int
    now: Callable[[], float] = time.monotonic
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)  # worker -> its steps and updates
    episodes: int = 0
    recent: deque[Episode] = field(default_factory=lambda: deque(maxlen=RECENT))  # of all members
    members: dict[str, deque[Episode]] = field(default_factory=dict)  # worker -> its own last 100
    again: dict[str, tuple[int, int]] = field(default_factory=dict)  # worker -> steps and updates taken twice
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)  # worker -> of its last update
    gossip: dict[str, float | None] = field(default_factory=dict)  # how far members are apart, as of the last row
    spent: dict[str, float] = field(default_factory=dict)  # seconds since the start, by part
    elapsed_before: float = 0.0  # seconds of the sessions before a resume
    restarts: int = 0  # of environments that failed

    def __post_init__(self) -> None:
        self.started = self.now()
        self._marks: deque[tuple[float, int]] = deque()  # (second, steps), the last minute of them

    @property
    def steps(self) -> int:
        """Agent steps of all members."""
        return sum(steps for steps, _ in self.counts.values()) + self.repeated

    @property
    def updates(self) -> int:
        """Optimiser steps of all members."""
        return sum(updates for _, updates in (*self.counts.values(), *self.again.values()))

    @property
    def repeated(self) -> int:
        """Agent steps that members took for a second time."""
        return sum(steps for steps, _ in self.again.values())

    def update(self, worker: str, report: Report) -> None:
        """Take a member's report in."""
        if not self._marks:
            self._marks.append((self.started, self.steps))
        self._count(worker, report)
        self.episodes += len(report.episodes)
        self.restarts += len(report.failures)
        self.recent.extend(report.episodes)
        self.members.setdefault(worker, deque(maxlen=RECENT)).extend(report.episodes)
        self.metrics[worker] = report.metrics
        for part, seconds in report.seconds.items():
            self.spent[part] = self.spent.get(part, 0.0) + seconds
        now = self.now()
        if now - self._marks[-1][0] >= 0.25:
            self._marks.append((now, self.steps))
            while now - self._marks[0][0] > 65:
                self._marks.popleft()

    def _count(self, worker: str, report: Report) -> None:
        steps, updates = self.counts.get(worker, (0, 0))
        self.counts[worker] = (report.steps, report.updates)
        if report.steps < steps:  # from how far back it went on is not said: this one report's steps are not counted
            more_steps, more_updates = self.again.get(worker, (0, 0))
            self.again[worker] = (more_steps + steps - report.steps, more_updates + max(0, updates - report.updates))

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
        return _mean([e.score for e in self.recent])

    @property
    def member_returns(self) -> dict[str, float | None]:
        """Mean return of each member's own last 100 episodes, by worker; None before its first."""
        return {worker: _mean([e.score for e in episodes]) for worker, episodes in self.members.items()}

    @property
    def left(self) -> float | None:
        """Seconds until the end at the rate of the last minute."""
        rate = self.rate(60)
        return (self.total + self.repeated - self.steps) / rate if rate > 0 else None

    def shares(self) -> dict[str, float]:
        """Fractions of the members' time, by part; `other` is what none of them accounts for."""
        time_of_all = (self.now() - self.started) * max(1, len(self.members))
        whole = max(time_of_all, sum(self.spent.values()), 1e-9)
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
            **self._metrics(),
            **self.gossip,
            **{f"time/{part}": round(share, 4) for part, share in self.shares().items()},
        }

    def _metrics(self) -> dict[str, float]:
        """Of the members' last updates, the mean over those that have them."""
        found: dict[str, list[float]] = {}
        for metrics in self.metrics.values():
            for name, value in metrics.items():
                found.setdefault(name, []).append(value)
        return {name: sum(values) / len(values) for name, values in found.items()}

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run goes on counting from."""
        return {
            "counts": {worker: list(counts) for worker, counts in self.counts.items()},
            "again": {worker: list(counts) for worker, counts in self.again.items()},
            "episodes": self.episodes,
            "recent": _pairs(self.recent),
            "members": {worker: _pairs(episodes) for worker, episodes in self.members.items()},
            "elapsed": self.elapsed,
            "restarts": self.restarts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.counts = {worker: (int(steps), int(updates)) for worker, (steps, updates) in state["counts"].items()}
        self.episodes, self.elapsed_before = int(state["episodes"]), float(state["elapsed"])
        self.restarts = int(state.get("restarts", 0))  # not in checkpoints of 0.2
        self.recent.extend(_episodes(state["recent"]))
        for worker, pairs in state.get("members", {}).items():  # checkpoints of 0.1 have no more than this
            self.members[worker] = deque(_episodes(pairs), maxlen=RECENT)
        self.again = {worker: (int(steps), int(updates)) for worker, (steps, updates) in state.get("again", {}).items()}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _pairs(episodes: Iterable[Episode]) -> list[list[float]]:
    return [[e.score, e.steps] for e in episodes]


def _episodes(pairs: Iterable[Sequence[float]]) -> Iterator[Episode]:
    return (Episode(float(score), int(length)) for score, length in pairs)


class Recorder:
    """Writes rows. A row is on disk when `write` returns; a full disk raises `OSError`."""

    def __init__(self, directory: Path, *, keep_until: int | None = None) -> None:
        """`keep_until`: rows of later steps are dropped (a resumed run does those again)."""
        path = directory / "metrics.jsonl"
        if keep_until is not None and path.exists():
            _keep(path, keep_until)
        self._file = open(path, "a", buffering=1)  # noqa: SIM115  closed by close()
        self._events = Events(directory / "tensorboard")

    def write(self, row: dict[str, Any]) -> None:
        """Add one row."""
        self._file.write(json.dumps(row) + "\n")
        scalars = {name: float(v) for name, v in row.items() if isinstance(v, int | float) and name != "steps"}
        self._events.write(scalars, row["steps"])

    def close(self) -> None:
        """Close the files."""
        with closing(self._events), closing(self._file):
            pass


class Events:
    """A file of TensorBoard events. TensorBoard's own writer has a thread do it, where a full disk is nobody's."""

    def __init__(self, directory: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # takes a while: only where it is used
        from tensorboard.summary.writer.record_writer import RecordWriter

        directory.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._event, self._records = Event, RecordWriter(open(directory / name, "wb"))  # noqa: SIM115
        self._records.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())

    def write(self, scalars: dict[str, float], steps: int) -> None:
        """Add these at that step."""
        event = self._event(wall_time=time.time(), step=steps)
        for name, value in scalars.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._records.write(event.SerializeToString())
        self._records.flush()

    def close(self) -> None:
        """Close the file."""
        self._records.close()


def _keep(path: Path, steps: int) -> None:
    """Drop the rows later than that step; written beside and renamed, so that a full disk loses none."""
    rows = [line + "\n" for line in path.read_text().splitlines() if _until(line, steps)]
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text("".join(rows))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _until(line: str, steps: int) -> bool:
    """Whether this line is whole and not later than that step."""
    try:
        return bool(json.loads(line)["steps"] <= steps)
    except (ValueError, KeyError, TypeError):  # cut off by a crash
        return False
