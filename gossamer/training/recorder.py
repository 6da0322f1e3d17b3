"""The record of a run: metrics, episodes, evaluations and its status in files, for the sinks and for callbacks."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from gossamer.storage.contents import EPISODES, EVALUATIONS, GOSSIP, METRICS, STATUS
from gossamer.storage.files import atomic_write, to_json, write_json
from gossamer.task import Episode
from gossamer.training.callbacks import Callbacks
from gossamer.training.sinks.base import RunEnding
from gossamer.training.sinks.choice import Sinks

COLUMNS = ("steps", "seconds", "member", "environment", "index", "return", "length")  # of `episodes.csv`


class Recorder:
    """Writes rows and episodes. A row, and the episodes before it, are in their files when `write` returns; a full disk
    raises `OSError`."""

    def __init__(
        self,
        directory: Path,
        sinks: Sinks | None = None,
        callbacks: Callbacks | None = None,
        *,
        keep_until: int | None = None,
    ) -> None:
        """`keep_until`: rows of later steps are dropped (a resumed run does those again)."""
        self.kept: int | None = None  # episodes of a resumed run that are in their file; None where there was none
        self.dropped = list[str]()  # the environments of those that were in it after them
        if keep_until is not None:
            for name in (METRICS, EVALUATIONS):
                _keep(directory / name, lambda line: _row_until(line, keep_until))
            lines, dropped = _keep(directory / EPISODES, lambda line: _episode_until(line, keep_until))
            self.kept = lines - 1 if lines else None  # the first one names the columns
            self.dropped = [cells[COLUMNS.index("environment")] for cells in dropped if len(cells) == len(COLUMNS)]
        self._status, self._gossip = directory / STATUS, directory / GOSSIP
        self._file = open(directory / METRICS, "a", buffering=1)  # noqa: SIM115  closed by close()
        self._episodes = open(directory / EPISODES, "a", newline="")  # noqa: SIM115
        self._table = csv.writer(self._episodes, lineterminator="\n")
        if self._episodes.tell() == 0:
            self._table.writerow(COLUMNS)
        self._unwritten: list[tuple[int, float, str, Sequence[Episode]]] = []  # arguments of `add` since the last row
        self._evaluations = directory / EVALUATIONS
        self._sinks, self._callbacks, self._closed = sinks or Sinks(), callbacks or Callbacks(), False

    def write(self, row: dict[str, Any]) -> None:
        """Add one row."""
        self.flush()
        self._file.write(to_json(row) + "\n")
        scalars = {name: float(v) for name, v in row.items() if isinstance(v, int | float) and name != "steps"}
        self._sinks.write(scalars, row["steps"])
        self._callbacks.report(row)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Add the result of an evaluation (`training.evaluator`)."""
        with open(self._evaluations, "a") as file:
            file.write(to_json(row) + "\n")
        scalars = {**row["metrics"], **{name: row[name] for name in ("mean_return", "std_return")}}
        scalars |= {game: of["mean_return"] for game, of in row.get("games", {}).items()}
        self._sinks.write({f"eval/{name}": float(value) for name, value in scalars.items()}, row["steps"])
        self._callbacks.evaluation(row)

    def add(self, worker: str, episodes: Sequence[Episode], *, steps: int, seconds: float) -> None:
        """Add the episodes that a worker has reported, when the run had acted so many `steps` in so many `seconds`."""
        if episodes:
            self._unwritten.append((steps, seconds, worker, episodes))
            self._callbacks.episodes(episodes)

    def flush(self) -> None:
        """Write the episodes that wait for the next row. All at once: short episodes end by the thousand each second,
        and workers wait while theirs are taken."""
        unwritten, self._unwritten = self._unwritten, []
        for steps, seconds, worker, episodes in unwritten:
            when = f"{seconds:.2f}"
            self._table.writerows([(steps, when, worker, e.env, e.index, f"{e.score:.9g}", e.steps) for e in episodes])
        self._episodes.flush()

    def checkpointed(self, checkpoint: Path) -> None:
        """Tell callbacks that a checkpoint was written."""
        self._callbacks.checkpoint(checkpoint)

    def write_status(self, status: dict[str, Any]) -> None:
        """Replace `status.json`. It is not forced to disk: the next one follows within a second."""
        atomic_write(self._status, to_json(status), durable=False)

    def write_gossip(self, gossip: dict[str, Any]) -> None:
        """Replace `gossip.json`: how far members were apart (`ConsensusMonitor.to_dict`)."""
        write_json(self._gossip, gossip)

    def close(self, outcome: RunEnding = "finished") -> dict[str, int]:
        """Close the files and tell the sinks how the run ended; the first call counts. Returns how many calls of each
        sink failed."""
        if not self._closed:
            self._closed = True
            with ExitStack() as stack:
                for close in (partial(self._sinks.close, outcome), self._file.close, self._episodes.close):
                    stack.callback(close)
                self.flush()
        return self._sinks.failures


def _keep(path: Path, wanted: Callable[[str], bool]) -> tuple[int, list[list[str]]]:
    """Keep only the wanted lines of a file, without one that was cut off. Returns their number, and the cells of the
    others. Written beside and renamed, so that a full disk loses none."""
    if not path.exists():
        return 0, []
    whole = [line for line in path.read_text(errors="replace").splitlines(keepends=True) if line.endswith("\n")]
    kept = [line for line in whole if wanted(line.rstrip("\n"))]
    atomic_write(path, "".join(kept))
    return len(kept), list(csv.reader(line for line in whole if not wanted(line.rstrip("\n"))))


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
