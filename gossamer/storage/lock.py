"""One writer for each run directory, and for each study: an advisory lock on the file `.lock` in it.

The kernel releases the lock when its process ends, however it ends, so a dead process never holds it. `evaluate` and
`record` do not take the lock: they read checkpoints, which exist completely or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gossamer.system.errors import DirectoryGone, DirectoryInUse
from gossamer.system.paths import shown

LOCK = ".lock"
WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems that have none

_held: set[int] = set()  # file descriptors


def _close_in_child() -> None:
    """A forked child shares its parent's lock, and would keep it when the parent dies."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_close_in_child)


@dataclass(frozen=True)
class RunLock:
    """The lock of a run directory, held by this process."""

    directory: Path
    handle: int  # file descriptor of the lock file

    def check(self) -> None:
        """Raise `DirectoryGone` where the directory has been removed or replaced since the lock was taken."""
        if not _is(self.handle, self.directory / LOCK):
            raise DirectoryGone(
                f"{shown(self.directory / LOCK)} is gone: the directory was removed or replaced during the run, "
                "which writes nothing more there"
            )


@contextmanager
def held(directory: Path, doing: str = "training this run") -> Iterator[RunLock]:
    """Hold the lock of an existing directory. `DirectoryInUse` names the process that has it, and what it is `doing`.
    An `OSError` inside becomes `DirectoryGone` where the directory is gone."""
    path = directory / LOCK
    lock = RunLock(directory, _acquire(path, doing))
    _held.add(lock.handle)
    try:
        yield lock
    except OSError:
        lock.check()
        raise
    finally:
        if _is(lock.handle, path):
            path.unlink()  # while it is held: who opened it before finds another file at its path, and opens that
        _held.discard(lock.handle)
        os.close(lock.handle)


def is_held(directory: Path) -> bool:
    """Whether a process on this machine holds the lock of a directory, which may not exist. Reads only."""
    try:
        handle = os.open(directory / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)  # which releases it
    return False


def _acquire(path: Path, doing: str) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            _lock(handle, path.parent, doing)
            if _is(handle, path):
                _sign(handle)
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder removed it on leaving


def _sign(handle: int) -> None:
    with suppress(OSError):  # a full disk: the lock holds, only its holder's name is unknown
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def _lock(handle: int, directory: Path, doing: str) -> None:
    try:
        _flock(handle)
    except BlockingIOError as error:
        holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
        raise DirectoryInUse(
            f"{shown(directory)}: {holder} is {doing}; wait for its end, stop it, or give another directory"
        ) from error
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        print(f"{shown(directory)}: no locks here ({error.strerror}); start no second run in it", file=sys.stderr)


def _flock(handle: int) -> None:
    """Take the lock; once more after a moment, as `is_held` holds it for that long."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.02)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is(handle: int, path: Path) -> bool:
    """Whether the open file is the one at that path."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False
