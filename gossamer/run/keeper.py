"""What watches a training program: it counts, records, shows, keeps checkpoints, and says when to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gossamer.data import Tree
from gossamer.run.checkpoint import Store
from gossamer.run.metrics import Progress, Recorder
from gossamer.run.panel import Monitor
from gossamer.task import Note, Report

ROW_SECONDS = 2.0  # between two rows of metrics
CHECKPOINT_SECONDS = 60.0  # between two checkpoints


@dataclass
class Keeper:
    """The program's observer: counts, records, shows, and keeps checkpoints."""

    progress: Progress
    recorder: Recorder
    store: Store
    monitor: Monitor
    log: Callable[[str], None]
    members: frozenset[str] = frozenset()  # the workers whose states make a checkpoint
    saved: dict[str, Tree] = field(default_factory=dict)  # worker -> what it saved before a resume
    stop_at_return: float | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    def __post_init__(self) -> None:
        self.interrupted: str | None = None  # the signal's name
        self.solved_steps: int | None = None
        self._written = self._kept = time.monotonic()
        self._lock = threading.Lock()  # workers are threads
        self._owing: set[str] = set()  # members that the checkpoint under way still waits for
        self._states: dict[str, Tree] = {}

    def restored(self, worker: str) -> Any | None:
        return self.saved.get(worker)

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, Note):
            self.log(record.text)
            self.monitor.note(record.text)
        elif isinstance(record, Report):
            with self._lock:
                self.progress.update(worker, record)
                self._look_for_success()
                if time.monotonic() - self._written >= ROW_SECONDS:
                    self.write()
                self.monitor.tick()

    def _look_for_success(self) -> None:
        p = self.progress
        full = len(p.recent) == p.recent.maxlen
        if self.stop_at_return is not None and self.solved_steps is None and full and p.mean_return is not None:
            if p.mean_return >= self.stop_at_return:
                self.solved_steps = p.steps

    def write(self) -> None:
        """One row of metrics."""
        self._written = time.monotonic()
        self.recorder.write(self.progress.row())

    def due(self, worker: str) -> bool:
        with self._lock:
            if not self._owing and time.monotonic() - self._kept >= self.checkpoint_seconds:
                self._owing = set(self.members)
            return worker in self._owing

    def save(self, worker: str, state: Any) -> None:
        with self._lock:
            self._states[worker] = state
            if worker in self._owing:
                self._owing.remove(worker)
                if not self._owing:
                    self.keep()

    def keep(self) -> None:
        """Write a checkpoint of the states that the members saved last."""
        tree = {"workers": self._states, "progress": self.progress.state_dict()}
        self.store.save(tree, steps=self.progress.steps, score=self.progress.mean_return)
        self._kept = time.monotonic()

    def stopping(self) -> bool:
        return self.interrupted is not None or self.solved_steps is not None
