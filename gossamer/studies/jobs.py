"""Processes that train the runs of a study, each `gossamer train` or `gossamer resume` of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from gossamer.config.file import flat
from gossamer.storage.contents import CHECKPOINTS
from gossamer.storage.runs import RunRecord
from gossamer.storage.studies import PlannedRun
from gossamer.studies.plan import resuming
from gossamer.studies.plan import words as words_of
from gossamer.system.errors import UserError
from gossamer.system.processes import module_path, python

Status: TypeAlias = Literal["finished", "finished before", "interrupted", "failed", "pruned"]
TAIL_BYTES = 4000  # of a log, which its last line is looked for in


@dataclass(frozen=True)
class JobOutcome:
    """How a run of a study ended."""

    run: PlannedRun
    status: Status
    reason: str = ""  # of a failure, in one line
    steps: int = 0
    mean_return: float | None = None  # of the last 100 training episodes


@dataclass
class Job:
    """A run that is being trained by a process of its own."""

    run: PlannedRun
    directory: Path
    log: Path  # the output of the process
    process: subprocess.Popen[bytes]
    share: int  # the number of its share of this machine's cores
    logged: int = 0  # bytes of the log that were there before
    began: float = field(default_factory=time.monotonic)

    def outcome(self) -> JobOutcome:
        """How it ended. The process has ended."""
        code = self.process.returncode
        if code == 0:  # also if a signal has ended its last evaluation
            status: Status = "interrupted" if _left_out(RunRecord(self.directory)) else "finished"
            return ended(self.run, self.directory, status)
        if code in (129, 130, 143) or -code in (signal.SIGINT, signal.SIGTERM):
            return ended(self.run, self.directory, "interrupted")
        why = _killed(-code) if code < 0 else last_line(self.log, self.logged) or f"exit code {code}"
        return ended(self.run, self.directory, "failed", why)


def _killed(number: int) -> str:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"killed by {name}" + (" (out of memory?)" if number == signal.SIGKILL else "")


def ended(run: PlannedRun, directory: Path, status: Status, reason: str = "") -> JobOutcome:
    """An outcome with what the run's files say."""
    record = RunRecord(directory)
    try:
        return JobOutcome(run, status, reason, record.steps, record.mean_return)
    except UserError as error:
        return JobOutcome(run, "failed", reason or str(error))


def is_finished(directory: Path) -> bool:
    """Whether the run has ended as planned, with its last evaluation if it was to be evaluated."""
    record = RunRecord(directory)
    try:
        return record.state == "ended" and (not flat(record.config)["eval_every"] or _evaluated(record))
    except UserError:
        return False


def _evaluated(record: RunRecord) -> bool:
    """Whether its last evaluation has ended; a signal, or the end of its process, may have come during it. One that has
    reached the return asked for does without: it would go on to train."""
    result = record.result or {}
    return _solved(result) or (isinstance(result.get("evaluations"), dict) and not _left_out(record))


def _solved(result: Mapping[str, Any]) -> bool:
    return any(result.get(name) is not None for name in ("solved_steps", "eval_solved_steps"))


def _left_out(record: RunRecord) -> bool:
    """Whether a signal has ended its last evaluation, without which it is not finished. False for a result that cannot
    be read."""
    try:
        result = record.result or {}
    except UserError:
        return False
    evaluations = result.get("evaluations")
    return isinstance(evaluations, dict) and bool(evaluations.get("left_out")) and not _solved(result)


def start(run: PlannedRun, folder: Path, share: int, shares: int) -> Job:
    """Train a run from its last checkpoint, or from its beginning. The process is pinned to its share of the cores."""
    directory = folder / run.directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    log = directory.with_name(f"{directory.name}.log")
    with open(log, "ab") as output:
        logged = output.tell()
        process = subprocess.Popen(  # a session of its own: a Ctrl-C of the terminal reaches it through the study
            command(run, directory),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **module_path()},
            start_new_session=True,
        )
    _pin(process.pid, share, shares)
    return Job(run, directory, log, process, share, logged)


def command(run: PlannedRun, directory: Path) -> list[str]:
    """The command that trains a run: from its last checkpoint where there is one."""
    program = python("gossamer.cli")
    if any(directory.glob(f"{CHECKPOINTS}/step_*")):
        return [*program, "resume", str(directory), *resuming(run, RunRecord(directory).last_row.get("seconds", 0.0))]
    return [*program, "train", *words_of(run), "--run-dir", str(directory), "--overwrite"]


def _pin(process: int, share: int, shares: int) -> None:
    """Give a process its share of the cores, so that runs side by side do not compete for them. Without effect where
    there are fewer cores than shares, or no way to do so."""
    with suppress(OSError, AttributeError):
        cores = sorted(os.sched_getaffinity(0))
        if shares <= len(cores):
            os.sched_setaffinity(process, cores[share::shares])


def last_line(log: Path, start: int = 0) -> str:
    """The last line of a log after so many bytes; empty where there is none."""
    try:
        lines = log.read_bytes()[start:][-TAIL_BYTES:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
