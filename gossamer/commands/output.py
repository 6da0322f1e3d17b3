"""What commands write to stdout and stderr."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def only_json(wanted: bool) -> Iterator[None]:
    """While this is active, with `wanted`, all output goes to stderr, also that of C code and worker processes: an
    environment may print, and stdout is for the JSON alone."""
    if not wanted or sys.stdout is None or sys.stderr is None:  # None: closed
        yield
        return
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)  # C code has a buffer of its own
        os.dup2(stdout, 1)
        os.close(stdout)


def tell(text: str) -> None:
    """Tell the user what a command does meanwhile."""
    print(text, file=sys.stderr, flush=True)
