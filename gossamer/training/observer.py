"""What watches a training program: it counts, records, shows, keeps checkpoints, and says when to end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gossamer.data import Tree
from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.envs.watchdog import Silence
from gossamer.errors import EnvironmentFailed
from gossamer.launch.base import EndWithout
from gossamer.storage.checkpoint import Store
from gossamer.task import Note, Report
from gossamer.training.display import ProgressDisplay
from gossamer.training.metrics import Progress, Recorder

ROW_SECONDS = 2.0  # between two rows of metrics
CHECKPOINT_SECONDS = 60.0  # between two checkpoints
PATIENCE_SECONDS = 60.0  # that a checkpoint waits for its members; then it goes without those that are silent


@dataclass
class RunObserver:
    """The program's observer: counts, records, shows, and keeps checkpoints.

    A checkpoint holds the state of every member: of one that has ended its last, and of one that is silent (its host
    has died, or starts again) the one it saved last."""

    progress: Progress
    recorder: Recorder
    store: Store
    display: ProgressDisplay
    log: Callable[[str], None]
    members: frozenset[str] = frozenset()  # the workers whose states make a checkpoint
    saved: dict[str, Tree] = field(default_factory=dict)  # worker -> what it saved before a resume
    stop_at_return: float | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    consensus: ConsensusMonitor | None = None  # of members that gossip
    kept: Callable[[], None] = lambda: None  # called after each checkpoint

    def __post_init__(self) -> None:
        self.interrupted: str | None = None  # the signal's name
        self.solved_steps: int | None = None
        self._written = self._kept = self._asked_at = time.monotonic()
        self._lock = threading.Lock()  # workers are threads
        self._owing: set[str] = set()  # members that the checkpoint under way still waits for
        self._asked: set[str] = set()  # those of them that know
        self._gone: set[str] = set()  # members that saved a last state unasked or are silent, until they report again
        self._states: dict[str, Tree] = {}
        self._fresh: set[str] = set()  # members that have reported nothing since they saved a state
        self._hanging: dict[str, Silence] = {}  # member -> its environment that does not answer

    def restored(self, worker: str) -> Any | None:
        with self._lock:
            return self._states.get(worker, self.saved.get(worker))

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, Note):
            self.note(record.text)
        elif isinstance(record, Silence):
            self._take_silence(worker, record)
        elif isinstance(record, Report):
            with self._lock:
                self._gone.discard(worker)
                self._fresh.discard(worker)
                before = self.progress.restarts
                self.progress.update(worker, record)
                self._take_failures(worker, record.failures, before)
                if self.consensus is not None:
                    for each in record.exchange:
                        self.consensus.take(worker, each)
                self._look_for_success()
                if time.monotonic() - self._written >= ROW_SECONDS:
                    self.write()
                self.display.tick()

    def note(self, text: str) -> None:
        """A sentence for the log and for whoever looks on."""
        self.log(text)
        self.display.note(text)

    def _take_silence(self, worker: str, silence: Silence) -> None:
        if silence.over:
            self._hanging.pop(worker, None)
            self.note(f"{worker}: {silence}")
        else:
            self._hanging[worker] = silence
            self.note(f"{worker}: {silence}; Ctrl-C ends the run without it")

    def _take_failures(self, worker: str, failures: tuple[EnvironmentFailed, ...], before: int) -> None:
        """Every one is counted; told are the 1st, 2nd, 4th, 8th, .. of the run."""
        for number, failure in enumerate(failures, start=before + 1):
            if number & (number - 1) == 0:
                self.log(f"{worker}: {failure}\n{failure.trace}")
                self.display.note(f"{worker}: {failure}; restarted (restart {number} of this run)")

    def _look_for_success(self) -> None:
        p = self.progress
        full = len(p.recent) == p.recent.maxlen
        if self.stop_at_return is not None and self.solved_steps is None and full and p.mean_return is not None:
            if p.mean_return >= self.stop_at_return:
                self.solved_steps = p.steps

    def write(self) -> None:
        """One row of metrics."""
        self._written = time.monotonic()
        if self.consensus is not None:
            self.progress.gossip = self.consensus.row()
        self.recorder.write(self.progress.row())

    def due(self, worker: str) -> bool:
        with self._lock:
            now = time.monotonic()
            if self._owing and now - self._asked_at >= PATIENCE_SECONDS:
                self._gone |= self._owing - {worker}
                self._ask(now)  # the others anew, so that theirs are of one time
            elif not self._owing and now - self._kept >= self.checkpoint_seconds:
                self._ask(now)
            owing = worker in self._owing
            (self._asked.add if owing else self._asked.discard)(worker)
            return owing

    def _ask(self, now: float) -> None:
        self._owing, self._asked_at = set(self.members - self._gone), now

    def save(self, worker: str, state: Any) -> None:
        with self._lock:
            self._states[worker] = state
            self._fresh.add(worker)
            if worker in self._asked:
                self._asked.remove(worker)
            else:
                self._gone.add(worker)
            if worker in self._owing:
                self._owing.remove(worker)
                if not self._owing:
                    self.keep()

    def keep(self) -> None:
        """Write a checkpoint of the states that the members saved last."""
        before = {worker: state for worker, state in self.saved.items() if worker in self.members}
        tree = {"workers": {**before, **self._states}, "progress": self.progress.state_dict()}
        self.store.save(tree, steps=self.progress.steps, score=self.progress.mean_return)
        self.kept()
        self._kept = time.monotonic()

    def keep_last(self) -> None:
        """A checkpoint at an end that was not planned, if there is something to keep and the states of all members are
        as new as their reports."""
        with self._lock:
            if self.progress.steps and self.members <= self._fresh:
                self.keep()

    def stopping(self) -> bool:
        """Raises `EndWithout` in the main thread, which launchers wait in, where the run is asked to end and an
        environment hangs: its worker would not end."""
        if self.interrupted and self._hanging and threading.current_thread() is threading.main_thread():
            worker, silence = next(iter(self._hanging.items()))
            raise EndWithout(f"{worker}: {silence}", self._hanging)
        return self.interrupted is not None or self.solved_steps is not None


class _LogHandler(logging.Handler):
    """What launchers log (a host is gone, is back) is noted with the run."""

    def __init__(self, observer: RunObserver) -> None:
        super().__init__(logging.INFO)
        self.observer = observer

    def emit(self, record: logging.LogRecord) -> None:
        self.observer.report("", Note(record.getMessage()))


@contextmanager
def launcher_log(observer: RunObserver) -> Iterator[None]:
    """Have a observer note what launchers log, in place of the terminal."""
    log, handler = logging.getLogger("gossamer.launch"), _LogHandler(observer)
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before
