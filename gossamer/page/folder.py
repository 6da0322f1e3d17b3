"""All runs in a folder, read by one thread for all browsers, and only while a browser is connected."""

from __future__ import annotations

import itertools
import os
import secrets
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gossamer.page.files import Document
from gossamer.page.run import RunView
from gossamer.storage.contents import CONFIG, is_run, search
from gossamer.storage.searches import SEARCH, is_complete

POLL_SECONDS = 0.4  # between two looks at the files
SCAN_EVERY = 2  # looks between two that search for new runs, and read those that do not train, too
MANY = 50  # runs; in a larger folder, those that neither train nor are shown in detail are read less often:
MANY_EVERY = 10  # looks between two that read them
BUDGET = 4 << 20  # bytes of runs that are not open, read at each look: a folder of a thousand is read bit by bit


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
        self._found: list[Path] = []  # by the last scan
        self._fresh: set[Path] = set()  # those with a new `config.json` since the last look: a run starts or resumes
        self._thread: threading.Thread | None = None
        self._searches: dict[str, Document] = {}
        self.searches_version = 0  # counts changes

    @property
    def searches(self) -> dict[str, Any]:
        """The content of `search.json` of the searches that have runs here, by their path like runs."""
        return {key: found.content for key, found in self._searches.items() if is_complete(found.content)}

    @contextmanager
    def watched(self, keys: tuple[str, ...]) -> Iterator[None]:
        """Have the files read while this is entered; those of runs `keys` first."""
        with self.changed:
            self._watchers += 1
            for key in keys:
                self._opened[key] = self._opened.get(key, 0) + 1
        try:
            with self.changed:
                self._look()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._follow, name="page reader", daemon=True)
                    self._thread.start()
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
                self._look()
            self.closed = True
            self.changed.notify_all()

    def _follow(self) -> None:
        """Body of the reading thread: it ends when no browser is connected."""
        with self.changed:
            looks = itertools.count(1)
            try:
                while self._watchers and not self.closed:
                    self.changed.wait_for(lambda: self.closed or not self._watchers, timeout=POLL_SECONDS)
                    self._look(0 if self.closed else next(looks))
            finally:
                self._thread = None  # also after an error: the next browser has another one started

    def read_all(self) -> None:
        """Read everything that is there."""
        with self.changed:
            self.scan()
            for run in self.runs.values():
                run.read_all()

    def _look(self, number: int = 0) -> None:
        """The look of this number, from 1 on. Number 0 searches for runs and reads all of them."""
        if number % SCAN_EVERY == 0:
            self.scan()
        budget, before = BUDGET, sum(run.version for run in self.runs.values())
        for key, run in sorted(self.runs.items(), key=lambda each: not self._opened.get(each[0])):
            opened = bool(self._opened.get(key))
            every = SCAN_EVERY if opened or len(self.runs) <= MANY else MANY_EVERY
            thoroughly = number % every == 0 or run.directory in self._fresh
            if opened and run.behind:
                run.read_all()
            elif budget > 0 and (thoroughly or run.behind or run.state == "running"):
                budget -= run.poll(thoroughly=thoroughly or run.behind)
        self._fresh.clear()
        if sum(run.version for run in self.runs.values()) != before:
            self.changed.notify_all()

    def scan(self) -> None:
        """Find runs that have come, and forget those that have gone."""
        with self.changed:
            paths = search(self.path, self._is_run)
            if paths != self._found:
                named = {os.path.relpath(path, self.path): path for path in paths}
                self._find_searches(paths)
                self._found, self.runs = paths, {key: self.runs.get(key) or RunView(key, named[key]) for key in named}
                self.changed.notify_all()
            read = [found.read() for found in self._searches.values()]
            if any(read):
                self.searches_version += 1
                self.changed.notify_all()

    def _find_searches(self, runs: Sequence[Path]) -> None:
        """Runs of a search are in SEARCH/trial-N/ENV/seed-S."""
        folders = {run.parents[2] for run in runs if len(run.relative_to(self.path).parts) >= 3}
        named = {os.path.relpath(folder, self.path): folder / SEARCH for folder in sorted(folders)}
        self._searches = {key: self._searches.get(key) or Document(file) for key, file in named.items()}

    def _is_run(self, folder: Path) -> bool:
        """Whether it is a run; asked again only where `config.json` has changed."""
        try:
            info = os.lstat(os.path.join(folder, CONFIG))
        except OSError:
            return False
        seen = info.st_ino, info.st_mtime_ns
        known, verdict = self._verdicts.get(str(folder), ((0, 0), False))
        if known != seen:
            verdict = stat.S_ISREG(info.st_mode) and is_run(folder)
            self._verdicts[str(folder)] = seen, verdict
            self._fresh.add(folder)
        return verdict
