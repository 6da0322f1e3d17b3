"""When a run writes: rows of metrics, its status, and the evaluations that have ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.system.usage import Usage
from gossamer.training.display import evaluation
from gossamer.training.evaluator import Evaluator
from gossamer.training.progress import Progress
from gossamer.training.recorder import Recorder
from gossamer.training.status import status

ROW_SECONDS = 2.0  # between two rows of metrics
STATUS_SECONDS = 0.5  # between two versions of `status.json`


@dataclass
class Writer:
    """Writes rows and the status, at limited rates. While workers run, its callers hold one lock."""

    progress: Progress
    recorder: Recorder
    log: Callable[[str], None]
    consensus: ConsensusMonitor | None = None  # of members that gossip
    evaluator: Evaluator | None = None
    now: Callable[[], float] = time.monotonic
    usage: Usage | None = None  # of this machine; None where workers are elsewhere
    _unwritten: bool = field(default=False, init=False)  # whether there is a report that `status.json` lacks

    def __post_init__(self) -> None:
        self._row_written = self._status_written = self.now()

    def reported(self) -> None:
        """Write what is due after a report: a row, or the status."""
        if self.now() - self._row_written >= ROW_SECONDS:
            self.write_row()
        elif self.now() - self._status_written >= STATUS_SECONDS:
            self.write_status()
        else:
            self._unwritten = True

    def write_row(self) -> None:
        """Record the evaluations that have ended, then write a row of metrics and the status."""
        self._row_written = self.now()
        self.record_evaluations()
        if self.consensus is not None:
            self.progress.gossip = self.consensus.row()
        if self.usage is not None:
            self.progress.usage = self.usage.row()
        self.recorder.write(self.progress.row())
        self.write_status()

    def write_status(self) -> None:
        """Write `status.json`."""
        self._status_written, self._unwritten = self.now(), False
        if self.usage is not None:
            self.usage.sample()
        self.recorder.write_status(status(self.progress, self.consensus))

    def record_evaluations(self) -> int:
        """Record the evaluations that have ended since the last call. Returns their number."""
        rows = [] if self.evaluator is None else self.evaluator.take()
        for row in rows:
            self.recorder.evaluated(row)
            self.progress.evaluation = row
            self.log(f"evaluated {evaluation(self.progress)}")
        return len(rows)

    @contextmanager
    def status_kept(self, lock: threading.Lock) -> Iterator[None]:
        """Write `status.json` now, and inside keep it up to date: each report is in it within `STATUS_SECONDS`, also
        the last of several that arrive together."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(STATUS_SECONDS):
                with lock, suppress(OSError):  # the next report raises it in its worker
                    if self._unwritten:
                        self.write_status()

        self.write_status()
        thread = threading.Thread(target=look, name="status", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
