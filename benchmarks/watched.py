"""Trainings in processes of their own: started, watched by their marks, and ended with everything that they started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import psutil

Mark: TypeAlias = tuple[float, int]  # (seconds on some clock, agent steps until then)

STUCK_SECONDS = 300.0  # time limit beyond the measurement, longer than any start takes
POLL_SECONDS = 0.25
END_SECONDS = 60.0  # from the interrupt until the session is killed
LAST_SECONDS = 10.0  # from there until its descendants in other sessions are killed


def rate(marks: Sequence[Mark], warm_up: float) -> float:
    """Steps per second after the first `warm_up` seconds, up to the last mark.

    Raises `ValueError` if fewer than two marks remain."""
    warm = [mark for mark in marks if mark[0] - marks[0][0] >= warm_up]
    if len(warm) < 2:
        raise ValueError(f"{len(warm)} of {len(marks)} marks are after the warm-up of {warm_up} s: measure for longer")
    (start, steps_before), (end, steps_after) = warm[0], warm[-1]
    return (steps_after - steps_before) / (end - start)


def read_marks(file: Path) -> list[Mark]:
    """The marks in a file of JSON lines with `seconds` and `steps`. Rows before the first step do not count."""
    if not file.exists():
        return []
    whole = file.read_text().rpartition("\n")[0]  # the last line may be incomplete
    return [(row["seconds"], row["steps"]) for row in map(json.loads, whole.splitlines()) if row["steps"]]


@dataclass(frozen=True)
class Training:
    """A process that trains, and its files."""

    process: subprocess.Popen[bytes]
    log: Path  # its output
    marks: Path  # written by the process, see `read_marks`

    def wait(self, seconds: float) -> list[Mark]:
        """Wait until the marks span `seconds`, and return them.

        Raises `RuntimeError` with the end of the log if the process ends or hangs before."""
        deadline = time.monotonic() + seconds + STUCK_SECONDS
        marks: list[Mark] = []
        while not marks or marks[-1][0] - marks[0][0] < seconds:
            if self.process.poll() is not None or time.monotonic() > deadline:
                state = "hangs" if self.process.returncode is None else f"ended with {self.process.returncode}"
                raise RuntimeError(f"the training {state}, after {len(marks)} marks:\n{self.log.read_text()[-5000:]}")
            time.sleep(POLL_SECONDS)
            marks = read_marks(self.marks)
        return marks

    def cpu_seconds(self) -> float:
        """CPU time that the process and all that it started have used."""
        return sum(_cpu_seconds(process) for process in family(self.process.pid))


@contextmanager
def training(command: Sequence[str], *, log: Path, marks: Path) -> Iterator[Training]:
    """Start `command` in a session of its own. At the end, interrupt it as Ctrl-C does, and kill what is left of it."""
    with open(log, "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield Training(process, log, marks)
    finally:
        end(process)


def compared(sides: Mapping[str, Callable[[Path], dict[str, Any]]], number: int) -> dict[str, Any]:
    """Round `number` of a comparison: measure the sides `without` and `with` in turn, each in a folder of its own, in
    every second round the other way round. The ratio is that of their `steps_per_second`."""
    found = {}
    for name in ("without", "with") if number % 2 == 0 else ("with", "without"):
        with tempfile.TemporaryDirectory() as folder:
            found[name] = sides[name](Path(folder))
    ratio = found["with"]["steps_per_second"] / found["without"]["steps_per_second"]
    return {**found, "ratio": round(ratio, 3)}


def family(session: int) -> list[psutil.Process]:
    """The processes of a session, and their descendants in other sessions."""
    members = {process for process in psutil.process_iter() if _session(process.pid) == session}
    for process in list(members):
        with suppress(psutil.NoSuchProcess):
            members.update(process.children(recursive=True))
    return list(members)


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the session that `process` leads, and kill what is left of it after `END_SECONDS`.

    Descendants in other sessions are killed last: torch's shared-memory manager frees the memory of the others."""
    members = family(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    members = list({*members, *family(process.pid)})
    _kill([member for member in members if _session(member.pid) == process.pid])
    _, left = psutil.wait_procs(members, timeout=LAST_SECONDS)
    _kill(left)
    psutil.wait_procs(left, timeout=LAST_SECONDS)
    process.wait()


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):  # it has ended, or is not ours
        return None


def _cpu_seconds(process: psutil.Process) -> float:
    """User and system time, its own and that of its ended children."""
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.NoSuchProcess:
        return 0.0
