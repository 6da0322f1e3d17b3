"""Reads files that grow or are replaced meanwhile. Links and special files are never opened."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

PIECE = 1 << 20  # bytes that are read at a time
HEAD = 512  # bytes that tell two files apart
MOST = 1 << 24  # bytes of a JSON file; larger ones are not read


def open_file(path: Path) -> int | None:
    """Open a regular file for reading: a file descriptor, None where there is none. A link is not followed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
    os.close(handle)
    return None


class Lines:
    """The lines of a file that is appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: tuple[int, int] | None = None  # device and inode of what has been read
        self._offset = self._size = 0  # bytes, read and seen
        self._head = b""  # how it begins: a new file may have the number of one that was removed
        self.behind = False  # whether there may be more, after a piece that was read in full
        self.restarts = 0  # how often the file was replaced or cut off, as when a run is resumed: all is read again

    def read(self, size: int = PIECE) -> list[str]:
        """The complete lines since the last call, of about `size` bytes at most; none where there is no such file."""
        if not self._may_have_more():
            return []
        handle = open_file(self._path)
        if handle is None:
            return []
        try:
            self._look(os.fstat(handle), os.pread(handle, HEAD, 0))
            piece = os.pread(handle, size, self._offset)
        except OSError:  # of a network file system, say: the next look may succeed
            return []
        finally:
            os.close(handle)
        self.behind = len(piece) == size
        whole = piece[: piece.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()

    def _may_have_more(self) -> bool:
        """Without opening it, as most files have not changed at most looks."""
        try:
            stat = os.lstat(self._path)
        except OSError:
            self._forget()
            return False
        unread = self._offset < self._size
        return unread or stat.st_size != self._size or (stat.st_dev, stat.st_ino) != self._file

    def _forget(self) -> None:
        """The file is gone, as after `train --overwrite`: what was read of it counts no longer."""
        if self._file is not None:
            self._file, self._offset, self._size, self._head = None, 0, 0, b""
            self.restarts += 1

    def _look(self, stat: os.stat_result, head: bytes) -> None:
        same = self._file == (stat.st_dev, stat.st_ino) and head.startswith(self._head)
        self._head = head
        if self._file is not None and not (same and stat.st_size >= self._offset):
            self._offset = 0
            self.restarts += 1
        self._file, self._size = (stat.st_dev, stat.st_ino), stat.st_size


class Document:
    """The JSON object in a file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, (0, 0, 0)
        self.content: dict[str, Any] = {}  # empty where there is no such file, or it is damaged

    def read(self) -> bool:
        """Look again; whether `content` is new."""
        try:
            stat = os.lstat(self._path)
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        except OSError:
            seen = (0, 0, 0)
        if seen == self._seen:
            return False
        try:
            self.content = self._load() if 0 < seen[2] <= MOST else {}
        except OSError:  # of a network file system, say: the next look may succeed
            return False
        self._seen = seen
        return True

    @property
    def changed_at(self) -> float:
        """Unix time of the last change; 0 where there is no such file."""
        return self._seen[1] / 1e9

    def _load(self) -> dict[str, Any]:
        handle = open_file(self._path)
        if handle is None:
            return {}
        with os.fdopen(handle, "rb") as file:
            try:
                content = json.load(file)
            except (ValueError, RecursionError):
                return {}
        return content if isinstance(content, dict) else {}
