"""The record of a run on disk: `metrics.jsonl`, `episodes.csv`, and TensorBoard events."""

from __future__ import annotations

import csv
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gossamer.storage.contents import EPISODES, METRICS, TENSORBOARD
from gossamer.storage.files import atomic_write, to_json
from gossamer.task import Episode

DT_STRING = 7  # TensorFlow's number of the type
COLUMNS = ("steps", "seconds", "member", "environment", "index", "return", "length")  # of `episodes.csv`


class Recorder:
    """Writes rows and episodes. A row, and the episodes before it, are in their files when `write` returns; a full disk
    raises `OSError`."""

    def __init__(self, directory: Path, *, keep_until: int | None = None, settings: str | None = None) -> None:
        """`keep_until`: rows of later steps are dropped (a resumed run does those again). `settings`: the text of
        `config.json`, for TensorBoard to show."""
        if keep_until is not None:
            _keep(directory / METRICS, lambda line: _row_until(line, keep_until))
            _keep(directory / EPISODES, lambda line: _episode_until(line, keep_until))
        self._file = open(directory / METRICS, "a", buffering=1)  # noqa: SIM115  closed by close()
        self._episodes = open(directory / EPISODES, "a", newline="")  # noqa: SIM115
        self._table = csv.writer(self._episodes, lineterminator="\n")
        if self._episodes.tell() == 0:
            self._table.writerow(COLUMNS)
        self._events = Events(directory / TENSORBOARD)
        if settings is not None:
            self._events.text("config", settings, keep_until or 0)

    def write(self, row: dict[str, Any]) -> None:
        """Add one row."""
        self._episodes.flush()
        self._file.write(to_json(row) + "\n")
        scalars = {name: float(v) for name, v in row.items() if isinstance(v, int | float) and name != "steps"}
        self._events.write(scalars, row["steps"])

    def add(self, worker: str, episodes: Iterable[Episode], *, steps: int, seconds: float) -> None:
        """Add the episodes that a worker has reported, when the run had acted so many `steps` in so many `seconds`."""
        for e in episodes:
            self._table.writerow((steps, f"{seconds:.2f}", worker, e.env, e.index, f"{e.score:.9g}", e.steps))

    def close(self) -> None:
        """Close the files."""
        with ExitStack() as stack:
            for each in (self._events, self._file, self._episodes):
                stack.callback(each.close)


class Events:
    """A file of TensorBoard events. TensorBoard's own writer has a thread do it, where a full disk is nobody's."""

    def __init__(self, directory: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # takes a while: only where it is used
        from tensorboard.summary.writer.record_writer import RecordWriter

        directory.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._event, self._records = Event, RecordWriter(open(directory / name, "wb"))  # noqa: SIM115
        self._records.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())

    def write(self, scalars: dict[str, float], steps: int) -> None:
        """Add these at that step."""
        event = self._event(wall_time=time.time(), step=steps)
        for name, value in scalars.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._records.write(event.SerializeToString())
        self._records.flush()

    def text(self, tag: str, text: str, steps: int) -> None:
        """Add a text, shown as it is: TensorBoard reads Markdown, where four spaces mean code."""
        event = self._event(wall_time=time.time(), step=steps)
        value = event.summary.value.add(tag=tag)
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = DT_STRING
        value.tensor.tensor_shape.SetInParent()  # one text
        value.tensor.string_val.append("".join(f"    {line}\n" for line in text.splitlines()).encode())
        self._records.write(event.SerializeToString())
        self._records.flush()

    def close(self) -> None:
        """Close the file."""
        self._records.close()


def _keep(path: Path, wanted: Callable[[str], bool]) -> None:
    """Keep only the wanted lines of a file, without one that was cut off. Written beside and renamed, so that a full
    disk loses none."""
    if path.exists():
        whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        atomic_write(path, "".join(line for line in whole if wanted(line.rstrip("\n"))))


def _row_until(line: str, steps: int) -> bool:
    """Whether this line of `metrics.jsonl` is whole and not later than that step."""
    try:
        return bool(json.loads(line)["steps"] <= steps)
    except (ValueError, KeyError, TypeError):  # cut off by a crash
        return False


def _episode_until(line: str, steps: int) -> bool:
    """The same for a line of `episodes.csv`; its first line names the columns."""
    cells = line.split(",")
    try:
        return cells == list(COLUMNS) or (len(cells) == len(COLUMNS) and int(cells[0]) <= steps)
    except ValueError:
        return False
