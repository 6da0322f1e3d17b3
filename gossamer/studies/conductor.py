"""Trains runs side by side, each in a process of its own; signals are passed on to them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gossamer.storage.lock import is_held
from gossamer.storage.studies import PlannedRun
from gossamer.studies import jobs
from gossamer.studies.display import StudyDisplay
from gossamer.studies.jobs import Job, JobOutcome
from gossamer.system.errors import UserError

POLL_SECONDS = 0.2
INCOMPLETE = 3  # exit code: runs are missing


class JobSource(Protocol):
    """What is trained: the runs of a study, or those that a search chooses as it goes on."""

    def next_run(self) -> PlannedRun | None:
        """The run to start next; None: there is none, at least until another one ends."""

    def ended(self, outcome: JobOutcome) -> None:
        """A run has ended, or was finished before."""

    def unpromising(self, running: Sequence[Job]) -> Sequence[Job]:
        """Those of the running jobs that are to end now; each is named once."""


class Conductor:
    """Starts runs as others end, and passes signals on."""

    def __init__(self, folder: Path, shares: int, source: JobSource, display: StudyDisplay) -> None:
        """`folder`: of all runs. `shares`: runs at once."""
        self._folder, self._shares, self._source, self._display = folder, shares, source, display
        self._running: list[Job] = []
        self._pruned: list[Job] = []
        self.received: int | None = None  # the first signal that asked to end
        self._stopped: int | None = None  # the signal that runs get

    def conduct(self) -> None:
        """Until the source has no more runs, or a signal has ended those that were running."""
        with self._signals():
            while self._fill():
                self._prune()
                self._reap()
                self._display.update(self._running)
                time.sleep(POLL_SECONDS if self._running else 0)

    def _fill(self) -> bool:
        """Start runs while there is room; those that are finished are left out. Whether a run is being trained."""
        while self._stopped is None and len(self._running) < self._shares and (run := self._source.next_run()):
            directory = self._folder / run.directory
            if jobs.is_finished(directory):
                self._take(jobs.ended(run, directory, "finished before"))
                continue
            if is_held(directory):  # left behind by a study that was killed, or started apart
                self._take(jobs.ended(run, directory, "failed", "another process is training it"))
                continue
            share = min(set(range(self._shares)) - {job.share for job in self._running})
            try:
                job = jobs.start(run, self._folder, share, self._shares)
            except (OSError, UserError) as error:
                self._take(jobs.ended(run, directory, "failed", f"cannot be started: {error}"))
                continue
            self._running.append(job)
            if self._stopped is not None:  # a signal that came while it was started
                job.process.send_signal(self._stopped)
            self._display.started(run)
        return bool(self._running)

    def _prune(self) -> None:
        for job in self._source.unpromising(self._running):
            self._pruned.append(job)
            if job.process.poll() is None:
                job.process.send_signal(signal.SIGTERM)

    def _reap(self) -> None:
        for job in [job for job in self._running if job.process.poll() is not None]:
            self._running.remove(job)
            outcome = job.outcome()
            self._take(replace(outcome, status="pruned", reason="") if job in self._pruned else outcome)

    def _take(self, outcome: JobOutcome) -> None:
        self._display.ended(outcome)
        self._source.ended(outcome)

    def stop(self, number: int, frame: Any = None) -> None:
        """Pass a signal on to the runs, which save a checkpoint and end; start no more."""
        self.received = number if self.received is None else self.received
        self._end_runs(signal.SIGTERM if number == signal.SIGHUP else number)  # of the terminal

    def _end_runs(self, number: int) -> None:
        self._stopped = number
        for job in self._running:
            if job.process.poll() is None:
                job.process.send_signal(number)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Handle Ctrl-C, SIGTERM and a terminal that closes (but not under nohup) meanwhile; only the main thread of a
        process can. However this ends, no run is left behind."""
        main = threading.current_thread() is threading.main_thread()
        closing = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        numbers = (signal.SIGINT, signal.SIGTERM, *closing) if main else ()
        before = {number: signal.signal(number, self.stop) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._end_runs(signal.SIGTERM)
            for job in self._running:
                job.process.wait()
