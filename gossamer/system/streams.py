"""Standard output and error that may have no reader any more."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

LOST = (errno.EPIPE, errno.EIO)  # errors of a stream without a reader: a pipe's, a closed terminal's


class Output:
    """Standard error, which may be lost: a run goes on when its terminal is closed, on a full disk, and when nobody
    reads its pipe any more."""

    def __init__(self) -> None:
        self._stream = sys.stderr  # not a proxy that a live panel puts in its place
        self.encoding = getattr(self._stream, "encoding", "utf-8")

    def write(self, text: str) -> None:
        self._try("write", text)

    def flush(self) -> None:
        self._try("flush")

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def _try(self, method: str, *given: str) -> None:
        try:
            getattr(self._stream, method, lambda *given: None)(*given)
        except OSError as error:
            if error.errno in LOST:  # for good: what others print there is lost, too
                with suppress(OSError):
                    forget(self._stream)


def redrawn(console: Console) -> bool:
    """Whether a panel can be drawn in place: on a terminal that can move its cursor, which TERM=dumb cannot."""
    return console.is_terminal and not console.is_dumb_terminal


def forget(stream: TextIO) -> None:
    """Send what is written to a stream nowhere, from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
