"""How this process starts others of Gossamer's."""

from __future__ import annotations

import os
import sys


def python(module: str) -> list[str]:
    """The words that run a module. `-P`: a file in the current folder hides no module; `module_path` has the folder."""
    return [sys.executable, "-P", "-m", module]


def module_path() -> dict[str, str]:
    """The variable with which the other process finds the modules that this one finds, in the same order."""
    return {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
