"""Records log messages of launchers (a host is gone, is back) with the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Handler(logging.Handler):
    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(record.getMessage())


@contextmanager
def launcher_log(note: Callable[[str], None]) -> Iterator[None]:
    """Pass what launchers log to `note`, in place of the terminal."""
    log, handler = logging.getLogger("gossamer.launch"), _Handler(note)
    before = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before
