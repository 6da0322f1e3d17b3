"""Reads run directories: settings, rows, episodes, how a run ended. Nothing is written: a run may go on meanwhile."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeAlias

from gossamer.config.config import Config
from gossamer.storage.contents import EPISODES, EVALUATIONS, METRICS, RESULT, newest
from gossamer.storage.directory import load_config
from gossamer.storage.lock import is_held
from gossamer.system.errors import UserError

State: TypeAlias = Literal["running", "ended", "interrupted", "short", "crashed"]
Row: TypeAlias = dict[str, Any]  # a line of metrics.jsonl

TAIL_BYTES = 100_000  # at the end of a file, which hold its last line
NUMBER = (int, float, NoneType)
RESULT_TYPES: dict[str, tuple[type, ...]] = {  # of the fields of `result.json` that are read
    "steps": (int,), "ended": (str,),
    **dict.fromkeys(("machine", "policy_lag", "hosts"), (dict, NoneType)),
    **dict.fromkeys(("short", "frames", "seconds", "steps_per_second", "mean_return"), NUMBER),
    **dict.fromkeys(("stop_at_return", "solved_steps", "episodes"), NUMBER),
}  # fmt: skip


class EpisodeRow(NamedTuple):
    """A line of `episodes.csv`."""

    steps: int  # environment steps of the run when the episode was reported
    seconds: float  # of training, those before a resume included
    member: str  # the worker that acted
    environment: str
    env_index: int  # of the environment within its worker
    score: float  # undiscounted return, unclipped
    length: int  # steps


@dataclass(frozen=True)
class RunRecord:
    """One run directory, as it is on disk. What is read is kept: make a new record to see what has been added."""

    directory: Path

    @cached_property
    def config(self) -> Config:
        """All options. Raises `UserError` where `config.json` is missing, damaged or cannot be read."""
        return load_config(self.directory, lambda text: None)

    @cached_property
    def result(self) -> dict[str, Any] | None:
        """The content of `result.json`; None where the run has not ended, or goes on since. Raises `UserError` where
        it is damaged."""
        try:
            found = json.loads((self.directory / RESULT).read_text())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{self.directory / RESULT}: cannot be read ({error.strerror})") from error
        except ValueError as error:
            raise UserError(f"{self.directory / RESULT}: damaged ({error}); resume the run") from error
        if not isinstance(found, dict) or not {"steps", "short", "ended"} <= found.keys():
            raise UserError(f"{self.directory / RESULT}: damaged (fields are missing); resume the run")
        if wrong := [name for name, kinds in RESULT_TYPES.items() if not isinstance(found.get(name), kinds)]:
            raise UserError(f"{self.directory / RESULT}: damaged ({wrong[0]} is of a wrong type); resume the run")
        return None if self.last_row.get("steps", 0) > found["steps"] else found

    @cached_property
    def state(self) -> State:
        """`running`: a process of this machine holds its lock. `ended`: as planned. `interrupted`: by a signal.
        `short`: steps are missing. `crashed`: no process holds its lock, and it left no result."""
        if is_held(self.directory):
            return "running"
        if self.result is None:
            return "crashed"
        if self.result["short"]:
            return "short"
        return "interrupted" if self.result["ended"].startswith("SIG") else "ended"

    @cached_property
    def last_row(self) -> Row:
        """The last complete line of `metrics.jsonl`, read without the others; empty where there is none. Raises
        `UserError` where it is damaged."""
        lines = _lines(self.directory / METRICS, tail=TAIL_BYTES)
        return _parsed(self.directory / METRICS, lines[-1:])[0] if lines else {}

    @cached_property
    def rows(self) -> list[Row]:
        """The lines of `metrics.jsonl`; a last one that is not complete yet is left out. Raises `UserError` where
        another line is damaged."""
        return _parsed(self.directory / METRICS, _lines(self.directory / METRICS))

    @cached_property
    def evaluations(self) -> list[Row]:
        """The lines of `evaluations.jsonl`, the evaluations while the run trained; read like `rows`."""
        return _parsed(self.directory / EVALUATIONS, _lines(self.directory / EVALUATIONS))

    @cached_property
    def episodes(self) -> list[EpisodeRow]:
        """The lines of `episodes.csv` in their order; none for a run of a version that wrote no such file. Raises
        `UserError` where it is damaged."""
        file = self.directory / EPISODES
        lines = csv.reader(_lines(file)[1:])
        try:
            return [
                EpisodeRow(int(steps), float(seconds), member, env, int(index), float(score), int(length))
                for steps, seconds, member, env, index, score, length in lines
            ]
        except ValueError as error:
            raise UserError(f"{file}: damaged ({error})") from error

    @property
    def steps(self) -> int:
        """Environment steps acted so far, as far as its files say: a run that failed has a checkpoint after its last
        row."""
        if self.result is not None:
            return int(self.result["steps"])
        return max(int(self.last_row.get("steps", 0)), newest(self.directory))

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 episodes; None before the first."""
        return (self.result or self.last_row).get("mean_return")


def _parsed(file: Path, lines: list[str]) -> list[Row]:
    """The rows in lines of a file. Raises `UserError` where one is damaged."""
    try:
        found = [json.loads(line) for line in lines]
    except ValueError as error:
        raise UserError(f"{file}: damaged ({error})") from error
    if not all(isinstance(row, dict) and isinstance(row.get("steps"), int) for row in found):
        raise UserError(f"{file}: damaged (a line has no steps)")
    return found


def _lines(file: Path, tail: int | None = None) -> list[str]:
    """The complete lines of a file, or of its last `tail` bytes; none where it is missing. Raises `UserError` where it
    cannot be read."""
    try:
        with open(file, "rb") as content:
            start = max(0, content.seek(0, os.SEEK_END) - tail) if tail else 0
            content.seek(start)
            lines = content.read().decode(errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from error
    whole = lines[1:] if start else lines  # the first one may be cut off
    return [line.rstrip("\n") for line in whole if line.endswith("\n") and line.strip()]
