"""Paths in a process whose current directory an environment may change, as simulators do that need a folder of their
own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def staying() -> Iterator[None]:
    """Return to the current directory afterwards."""
    before: str | None = None
    with suppress(FileNotFoundError):  # it has been removed
        before = os.getcwd()
    try:
        yield
    finally:
        if before is not None:
            with suppress(OSError):
                os.chdir(before)


def shown(path: Path) -> Path:
    """An absolute path for people: from the current directory on if it lies there."""
    with suppress(FileNotFoundError):
        here = Path.cwd()
        return path.relative_to(here) if path.is_relative_to(here) else path
    return path
