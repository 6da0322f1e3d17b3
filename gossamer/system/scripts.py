"""The main script and the user's modules: under which names they are imported, and that none of them trains by that."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

from gossamer.system.errors import UserError

GUARD = 'put its calls of gossamer under `if __name__ == "__main__":`'
_importing = ContextVar("importing", default=False)


def script() -> str | None:
    """The name by which other processes import the main script: `mine` of `python mine.py`, `mine.env` of `python -m
    mine.env`. None in a console or a notebook, which has no file, and in the command `gossamer`."""
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):
        return None if spec.name.partition(".")[0] == __package__.partition(".")[0] else str(spec.name)
    file = getattr(main, "__file__", None)
    return Path(file).stem if file and Path(file).suffix == ".py" and Path(file).is_file() else None


def own_module(name: str) -> ModuleType:
    """Import a module that may be the user's. The main script runs already, and is not run a second time. Raises what
    the module raises, and `UserError` from a call of Gossamer in it: see `check_guard`."""
    if name == script():
        return sys.modules["__main__"]
    token = _importing.set(True)
    try:
        return importlib.import_module(name)
    finally:
        _importing.reset(token)


def is_absent(module: str, error: BaseException) -> bool:
    """Whether this error of the import says that there is no such module, and not that one of its own is missing."""
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    return absent is not None and f"{module}.".startswith(f"{absent}.")


def check_guard() -> None:
    """Raise `UserError` in a script that is being imported for a part that it defines, and would train again.

    A worker process of multiprocessing, which imports the main script, ends with this error. Its traceback is left out,
    as each of many workers prints it."""
    if _importing.get():
        raise UserError(f"it would train when it is imported: {GUARD}")
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # what multiprocessing itself looks at
        sys.tracebacklimit = 0
        raise UserError(f"worker processes import this script: {GUARD}")
