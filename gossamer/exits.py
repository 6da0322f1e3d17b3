"""How the command ends: errors in one line, exit codes, and an exit that no thread can turn into an abort."""

from __future__ import annotations

import errno
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from gossamer.errors import UserError

BAD_VALUE, INTERRUPTED = 2, 130
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
    """The exit code of a command. What a user can mend is told in one line on stderr; other errors pass."""
    try:
        return command()
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            raise
        where = f" ({error.filename})" if error.filename else ""
        told = f"cannot write{where}: {error.strerror}; free some room or give another directory"
        return _told(told, BAD_VALUE)
    except KeyboardInterrupt as error:
        return _told(str(error) or "interrupted", INTERRUPTED)
    except Exception as error:
        if not _for_the_user(error):
            raise
        return _told(str(error), BAD_VALUE)


def _for_the_user(error: Exception) -> bool:
    """Whether its message is meant for users. Most commands end without these modules: torch takes seconds to load."""
    if isinstance(error, UserError):
        return True
    from gossamer.envs.base import MissingExtra, UnknownEnv, UnsupportedSpace
    from gossamer.exchange import LayoutMismatch
    from gossamer.launch.ray.errors import HostFailed
    from gossamer.learner import NonFinite

    return isinstance(error, MissingExtra | UnknownEnv | UnsupportedSpace | LayoutMismatch | HostFailed | NonFinite)


def _told(text: str, code: int) -> int:
    print("gossamer:", *text.split(), file=sys.stderr)  # on one line, whatever torch put into it
    return code


def leave(code: int) -> NoReturn:
    """End the process. Where worker threads still run, as after a second Ctrl-C, it ends without the interpreter's
    clean-up, in which a thread that is inside torch aborts the process."""
    if code and threading.active_count() > 1:
        for child in multiprocessing.active_children():  # environments, which a normal exit would end
            child.terminate()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
