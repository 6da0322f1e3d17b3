"""The cores of this process, how it gives way to others, and how it starts others of Gossamer's."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

NICENESS = 10  # about a tenth of the share of a process of normal priority


def cores() -> int:
    """Number of processor cores available to this process, which a container or `taskset` can limit."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def give_way() -> None:
    """Let this process run where a core is idle, or take about a tenth of the only core. On several cores, a thread of
    a run that wakes might have to wait until the slice of this process ends, and the others for that thread at their
    next barrier: beside evaluations with `nice` 10, PAAC trained at a quarter of its speed. Linux compares priorities
    within a session only (`sched_autogroup_enabled`): this process must be in the run's."""
    with suppress(AttributeError, OSError):  # not Linux, or not allowed
        if cores() > 1:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            return
    os.nice(NICENESS)


def python(module: str) -> list[str]:
    """The words that run a module. `-P`: a file in the current folder hides no module; `module_path` has the folder."""
    return [sys.executable, "-P", "-m", module]


def module_path() -> dict[str, str]:
    """The variable with which the other process finds the modules that this one finds, in the same order."""
    return {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
