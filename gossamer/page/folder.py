"""All runs in a folder, read by one thread for all browsers, and only while a browser is connected."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gossamer.page.run import RunView
from gossamer.storage.contents import CONFIG, METRICS, find, is_run

POLL_SECONDS = 0.4  # between two looks at the files
SCAN_EVERY = 5  # looks between two thorough ones, which search for new runs and read those that do not train, too
BUDGET = 4 << 20  # bytes of runs that nobody has opened, read at each look: a folder of a thousand is read bit by bit


class Folder:
    """The runs in a folder, by their path relative to it (`.` if the folder is one).

    Take `changed` to read runs. Only what `scan` has found is ever read: links are not followed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.token = secrets.token_hex(4)  # differs after a restart
        self.runs: dict[str, RunView] = {}
        self.changed = threading.Condition()
        self.closed = False
        self._opened: dict[str, int] = {}  # run -> how many show its details
        self._watchers = 0
        self._verdicts: dict[str, tuple[tuple[int, int], bool]] = {}  # see `_is_run`
        self._thread: threading.Thread | None = None

    @contextmanager
    def watched(self, keys: tuple[str, ...]) -> Iterator[None]:
        """Have the files read while this is entered; those of runs `keys` first."""
        with self.changed:
            self._watchers += 1
            for key in keys:
                self._opened[key] = self._opened.get(key, 0) + 1
            self._look(thoroughly=True)
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="page reader", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self.changed:
                self._watchers -= 1
                for key in keys:
                    self._opened[key] -= 1
                self.changed.notify_all()

    def close(self) -> None:
        """Look once more, so that streams tell how it ended; then they end."""
        with self.changed:
            if self._watchers:
                self._look(thoroughly=True)
            self.closed = True
            self.changed.notify_all()

    def _follow(self) -> None:
        """Body of the reading thread: it ends when no browser is connected."""
        with self.changed:
            looks = itertools.count(1)
            while self._watchers and not self.closed:
                self.changed.wait_for(lambda: self.closed or not self._watchers, timeout=POLL_SECONDS)
                self._look(thoroughly=next(looks) % SCAN_EVERY == 0 or self.closed)
            self._thread = None

    def read_all(self) -> None:
        """Read everything that is there."""
        with self.changed:
            self.scan()
            for run in self.runs.values():
                run.read_all()

    def _look(self, *, thoroughly: bool) -> None:
        if thoroughly:
            self.scan()
        budget, before = BUDGET, sum(run.version for run in self.runs.values())
        for key, run in sorted(self.runs.items(), key=lambda each: not self._opened.get(each[0])):
            if self._opened.get(key) and run.behind:
                run.read_all()
            elif budget > 0 and (thoroughly or run.behind or run.state == "running"):
                budget -= run.poll(thoroughly=thoroughly or run.behind)
        if sum(run.version for run in self.runs.values()) != before:
            self.changed.notify_all()

    def scan(self) -> None:
        """Find runs that have come, and forget those that have gone."""
        with self.changed:
            found = {os.path.relpath(run, self.path): run for run in find(self.path, self._is_run)}
            if found.keys() != self.runs.keys():
                self.runs = {key: self.runs.get(key) or RunView(key, path) for key, path in found.items()}
                self.changed.notify_all()

    def _is_run(self, folder: Path) -> bool:
        """Whether it is a run, also one with a damaged `config.json`; asked again only where the file has changed."""
        file = folder / CONFIG
        try:
            found = os.lstat(file)
        except OSError:
            return False
        seen = found.st_ino, found.st_mtime_ns
        known, verdict = self._verdicts.get(str(folder), ((0, 0), False))
        if known != seen:
            verdict = not file.is_symlink() and (is_run(folder) or _is_damaged(folder))
            self._verdicts[str(folder)] = seen, verdict
        return verdict


def _is_damaged(folder: Path) -> bool:
    """Whether a run has left metrics beside a `config.json` that is no JSON."""
    if not (folder / METRICS).is_file():
        return False
    try:
        json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError):
        return True
    return False
