"""One run directory, read again and again: what has been added since a reader last looked.

`storage.runs` reads a run once and completely; a page looks twice a second, so this remembers what it has read. It
imports no torch, so that `gossamer watch` starts at once."""

from __future__ import annotations

import csv
import itertools
import json
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from gossamer.page.files import Document, Lines
from gossamer.page.series import Series, is_number, numbers
from gossamer.storage.contents import CONFIG, EPISODES, EVALUATIONS, GOSSIP, HOSTS, LOG, METRICS, RESULT, STATUS, is_run
from gossamer.storage.lock import is_held
from gossamer.system.kwargs import titled

DOCUMENTS = {"config": CONFIG, "status": STATUS, "result": RESULT, "hosts": HOSTS, "gossip": GOSSIP}
LOG_LINES = 500  # that are kept
EPOCHS = itertools.count()  # of all runs: one that takes another one's place is told anew
SPARK = 60  # points of the small curve in the table of runs


class Cursor(NamedTuple):
    """How much of a run a browser has received."""

    epoch: int = -1  # an older one is told everything again
    version: int = 0
    rows: int = 0
    episodes: int = 0
    lines: int = 0

    @staticmethod
    def parse(text: str) -> Cursor:
        """The inverse of `str`; a cursor that has seen nothing where the text is none."""
        words = text.split("-")
        known = len(words) == 5 and all(word.isdecimal() and len(word) < 16 for word in words)
        return Cursor(*map(int, words)) if known else Cursor()

    def __str__(self) -> str:
        return "-".join(map(str, self))


class RunView:
    """One run, as the page shows it. The caller locks."""

    def __init__(self, key: str, directory: Path) -> None:
        self.key, self.directory = key, directory
        self.version = 0  # counts changes
        self.state, self._held = "", False  # whether a process holds its lock
        self.epoch = next(EPOCHS)  # changes whenever what has been told before does not hold any more
        self._documents = {name: Document(directory / file) for name, file in DOCUMENTS.items()}
        self._changed = dict.fromkeys((*DOCUMENTS, "evaluations"), 0)  # -> version of its last change
        self._files = [Lines(directory / name) for name in (METRICS, EPISODES, LOG, EVALUATIONS)]
        self.rows, self.episodes = Series(), Series(spread=True)
        self._log, self._lines = deque[str](maxlen=LOG_LINES), 0
        self._evaluations: list[dict[str, Any]] = []

    def poll(self, *, thoroughly: bool = True) -> int:
        """Read what is new; returns how many bytes of lines that was, roughly. Not `thoroughly`: only what changes all
        the time while a run trains."""
        held = is_held(self.directory)
        thoroughly, self._held = thoroughly or held != self._held, held
        for name in self._documents if thoroughly else ("status",):
            if self._documents[name].read():
                self.version += 1
                self._changed[name] = self.version
                if name == "config" and self._documents[name].content and not is_run(self.directory):
                    self._documents[name].content = {}  # another program's
        evaluated, new = self._files[3].restarts, self._read_lines()
        before, self.state = self.state, self._state()
        self.version += any(new) or self.state != before
        if new[3] or self._files[3].restarts > evaluated:
            self.version += 1
            self._changed["evaluations"] = self.version
        if self.state != before:
            self._changed["result"] = self.version  # an old one does not hold while the run goes on
        return sum(len(line) for lines in new for line in lines)

    @property
    def behind(self) -> bool:
        """Whether there is much to read yet."""
        return not self.version or any(file.behind for file in self._files)

    def read_all(self) -> None:
        """Read all that is there."""
        while self.poll():
            pass

    def _read_lines(self) -> list[list[str]]:
        """Read the files that grow. One that was replaced, as when a run is resumed, begins anew."""
        before, thinned = [file.restarts for file in self._files], self.rows.thinned + self.episodes.thinned
        metrics, episodes, log, evaluations = new_lines = [file.read() for file in self._files]
        new = [file.restarts > old for file, old in zip(self._files, before, strict=True)]
        self.rows = Series() if new[0] else self.rows
        self.episodes = Series(spread=True) if new[1] else self.episodes
        if new[2]:
            self._log.clear()
        for row in filter(None, map(_parsed, metrics)):
            self.rows.add(row)
        for line in episodes:
            self._add_episode(line)
        self._evaluations = [] if new[3] else self._evaluations
        self._evaluations += filter(None, map(_evaluation, evaluations))
        self._log.extend(log)
        self._lines += len(log)
        if any(new) or self.rows.thinned + self.episodes.thinned != thinned:
            self.epoch = next(EPOCHS)
        return new_lines

    def _add_episode(self, line: str) -> None:
        """A line of `episodes.csv`: steps, seconds, member, environment, index, return, length."""
        if not self.episodes.due:
            self.episodes.skip()
            return
        try:
            steps, seconds, _, game, _, score, length = next(csv.reader([line]))
            numbers = {"steps": int(steps), "seconds": float(seconds), "length": int(length)}
            numbers[f"return/{game}"] = float(score)
        except (ValueError, csv.Error):  # the first line, or one that was cut off by a crash
            return
        self.episodes.add(numbers)

    def _state(self) -> str:
        """As `storage.runs.RunRecord.state`, but that a run has ended as soon as it says how; `damaged`: it has no
        `config.json` of a run."""
        if not self._documents["config"].content:
            return "damaged"
        written = {name: self._documents[name].changed_at for name in ("status", "result")}
        if self._held and not written["result"] > written["status"]:
            return "running"
        result = self._outcome()
        if not result:
            return "crashed"
        if result.get("short"):
            return "short"
        return "interrupted" if str(result.get("ended")).startswith("SIG") else "ended"

    @property
    def result(self) -> dict[str, Any]:
        """The content of `result.json`; empty where the run has not ended, or goes on since."""
        return {} if self.state == "running" else self._outcome()

    def _outcome(self) -> dict[str, Any]:
        """The content of `result.json`; empty where it is older than the newest row."""
        result = self._documents["result"].content
        steps, later = result.get("steps"), self.rows.newest.get("steps") or 0
        return result if is_number(steps) and steps >= later else {}

    @property
    def now(self) -> dict[str, float | None]:
        """The numbers of the newest row, also if `metrics.jsonl` does not have it yet."""
        row, newest = numbers(_object(self._documents["status"].content.get("row"))), self.rows.newest
        seconds = row.get("seconds")
        return row if is_number(seconds) and seconds > (newest.get("seconds") or 0) else newest

    def summary(self) -> dict[str, Any]:
        """A line of the table of runs."""
        config, status, now = self._documents["config"], self._documents["status"], self.now
        parts = {name: _object(config.content.get(name)) for name in ("run", "env", "architecture", "algorithm")}
        return {
            "key": self.key,
            "name": self.key if self.key != "." else self.directory.resolve().name,
            "state": self.state,
            "activity": status.content.get("activity", "") if self.state == "running" else "",
            "ended": self.result.get("ended", ""),
            "architecture": parts["architecture"].get("name"),
            "algorithm": parts["algorithm"].get("name"),
            "env": titled(parts["env"].get("name", ""), parts["env"].get("env_kwargs")) or None,
            "seed": parts["run"].get("seed"),
            "total": parts["run"].get("steps"),
            "started": config.changed_at,
            "left_seconds": status.content.get("left_seconds"),
            "spark": self._spark(),
            **{name: now.get(name) for name in ("steps", "frames", "seconds", "mean_return")},
            "steps_per_second": self.result.get("steps_per_second", _speed(now)),
            "episodes": now.get("episodes"),
        }

    def _spark(self) -> list[float]:
        """The mean return over time, at most `SPARK` points."""
        known = [value for value in self.rows.columns.get("mean_return", []) if value is not None]
        step = -(-len(known) // SPARK) or 1
        return known[::-1][::step][::-1]

    def update(self, cursor: Cursor) -> tuple[dict[str, Any] | None, Cursor]:
        """The news since the cursor, None if there are none; and the cursor after them."""
        reset = cursor.epoch != self.epoch or cursor.version > self.version
        before = Cursor() if reset else cursor
        after = Cursor(self.epoch, self.version, self.rows.rows, self.episodes.rows, self._lines)
        if after == cursor:
            return None, cursor
        fresh = max(0, len(self._log) - max(0, self._lines - before.lines))
        content = {
            "key": self.key,
            "reset": reset,
            "rows": self.rows.since(before.rows),
            "now": self.now,
            "episodes": self.episodes.since(before.episodes),
            "log": list(itertools.islice(self._log, fresh, None)),
            **{name: self._told(name) for name, at in self._changed.items() if at > before.version or reset},
        }
        return content, after

    def _told(self, name: str) -> Any:
        """A document, without what stands in another one; or the evaluations."""
        if name == "evaluations":
            return self._evaluations
        content = self.result if name == "result" else self._documents[name].content
        return {key: value for key, value in content.items() if key not in ("config", "windows", "row")}


def _object(content: Any) -> dict[str, Any]:
    """Empty where it is no JSON object, as in a damaged file."""
    return content if isinstance(content, dict) else {}


def _evaluation(line: str) -> dict[str, Any]:
    """A line of `evaluations.jsonl`, without the returns of single games."""
    row = _parsed(line)
    return {} if not isinstance(row.get("steps"), int) else {name: row[name] for name in row.keys() - {"returns"}}


def _speed(now: dict[str, float | None]) -> float | None:
    """Steps per second over the run, as `result.json` has them at its end."""
    steps, seconds = now.get("steps"), now.get("seconds")
    return steps / seconds if steps is not None and seconds else now.get("steps_per_second")


def _parsed(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # cut off by a crash
        return {}
    return _object(row)
