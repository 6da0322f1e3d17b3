"""The cores of this process, how it gives way to others, and how it starts others of Gossamer's."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

NICENESS = 10  # about a tenth of the share of a process of normal priority


def cores() -> int:
    """Number of processor cores available to this process, which `taskset` or a container's quota can limit."""
    if sys.platform == "linux":
        return min(len(os.sched_getaffinity(0)), quota() or sys.maxsize)
    return os.cpu_count() or 1


@cache
def quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """The cores that the control groups of this process allow it on average, rounded up; None if there is no limit.

    Version 2 has `cpu.max` (`max 100000`, or a quota and a period in microseconds) in each group from this process's to
    the root's; version 1 has two files below `cpu`."""
    return _least(_limit, "cpu", root, own)


@cache
def memory_limit(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """The bytes of memory that the control groups of this process allow it; None if there is no limit.

    Version 2 has `memory.max` (`max`, or bytes) in each group, version 1 `memory.limit_in_bytes`, a number near 2^63
    without a limit."""
    return _least(_memory, "memory", root, own)


def _least(limit: Callable[[Path], int | None], kind: str, root: Path, own: Path) -> int | None:
    """The least of the limits of a kind that this process's control groups have; None if there is none."""
    with suppress(OSError, ValueError):
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
        second = next((path for _, kinds, path in lines if not kinds), "/")
        first = next((path for _, kinds, path in lines if kind in kinds.split(",")), "/")
        limits = [*map(limit, _upwards(root, second)), *map(limit, _upwards(root / kind, first))]
        return min((each for each in limits if each is not None), default=None)
    return None


def _memory(group: Path) -> int | None:
    """Of one group, in bytes."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        if (group / name).exists():
            word = (group / name).read_text().strip()
            return None if word == "max" else int(word)
    return None


def _upwards(root: Path, path: str) -> list[Path]:
    """The folder of a group and those above it. A container may see its own group as the root."""
    inner = root / path.lstrip("/")
    return [root, *(folder for folder in (inner, *inner.parents) if root in folder.parents)]


def _limit(group: Path) -> int | None:
    """Of one group, in cores."""
    if (group / "cpu.max").exists():
        words = (group / "cpu.max").read_text().split()
    elif (group / "cpu.cfs_quota_us").exists():
        words = [(group / name).read_text().strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    else:
        return None
    return None if words[0] in ("max", "-1") else max(1, math.ceil(int(words[0]) / int(words[1])))


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
