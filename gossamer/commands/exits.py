"""How the command ends: one-line errors, exit codes, and an exit that is safe while worker threads run."""

from __future__ import annotations

import errno
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from gossamer.system.errors import UserError
from gossamer.system.streams import LOST, forget

BAD_VALUE, INTERRUPTED, UNREAD = 2, 130, 141
CALLBACK = "callback "  # begins the names of callbacks' threads
CANNOT_WRITE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
)


def guarded(command: Callable[[], int]) -> int:
    """Run a command and return its exit code. Errors that a user can fix print one line on stderr; others propagate.
    Where the reader leaves early, as in `gossamer runs | head`, it ends quietly, with 141 as in shells if there was
    nothing worse."""
    code = 0
    try:
        code = command()
        _flush()
        return code
    except OSError as error:
        if error.errno in LOST and _unread():
            return code or UNREAD
        if error.errno not in CANNOT_WRITE:
            raise
        where = f" ({error.filename})" if error.filename else ""
        told = f"cannot write{where}: {error.strerror}; free disk space or use another directory"
        return _told(told, BAD_VALUE)
    except KeyboardInterrupt as error:
        return _told(str(error) or "interrupted", getattr(error, "code", INTERRUPTED))
    except UserError as error:
        return _told(str(error), BAD_VALUE)


def _flush() -> None:
    for output in (sys.stdout, sys.stderr):
        if output is not None:  # closed, as by `>&-`
            output.flush()


def _unread() -> bool:
    """Whether the output has no reader any more. What is left of it is dropped: Python would complain at its end."""
    output = select.poll()
    output.register(sys.stdout, select.POLLOUT)
    broken = any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))
    if broken:
        forget(sys.stdout)
    return broken


def _told(text: str, code: int) -> int:
    print("gossamer:", *text.split(), file=sys.stderr)  # on one line: messages of torch may have several
    return code


def leave(code: int) -> NoReturn:
    """End the process. If workers still run, as after a second Ctrl-C, or callbacks that were left out, skip the
    interpreter's clean-up: it would abort the process while a thread is inside torch."""
    if code:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more Ctrl-C would show a traceback
    others = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
    if others and (code or any(name.startswith(CALLBACK) for name in others)):
        for child in multiprocessing.active_children():  # environments; a normal exit would end them
            child.terminate()
        _flush()
        os._exit(code)
    sys.exit(code)
