"""The cores of this process, and how it starts others of Gossamer's."""

from __future__ import annotations

import os
import sys


def cores() -> int:
    """Number of processor cores available to this process, which a container or `taskset` can limit."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def python(module: str) -> list[str]:
    """The words that run a module. `-P`: a file in the current folder hides no module; `module_path` has the folder."""
    return [sys.executable, "-P", "-m", module]


def module_path() -> dict[str, str]:
    """The variable with which the other process finds the modules that this one finds, in the same order."""
    return {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
