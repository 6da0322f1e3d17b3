"""`search.json`: what a search varies, and its trials so far.

{"format": 1, "definition": {"composition": "paac --algorithm ppo", "env": "CartPole-v1", ..},
 "trials": [{"number": 0, "state": "finished", "value": 195.3, "options": {"learning_rate": 0.003}, ..}, ..]}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from gossamer.storage.files import read_json, write_json

SEARCH = "search.json"
FORMAT = 1
TrialState: TypeAlias = Literal["running", "finished", "pruned", "failed"]


@dataclass(frozen=True)
class TrialRecord:
    """One trial of a search."""

    number: int  # from 0
    state: TrialState
    options: dict[str, Any]  # those that vary, with the values of this trial
    value: float | None  # mean over its seeds of the mean return of the last 100 episodes; if pruned: the last reported
    directory: str  # of its runs, relative to the search's folder
    command: str  # that trains with these options, the first seed
    reason: str = ""  # of a failure, in one line
    repeats: int | None = None  # number of the earlier trial with these values, whose value and runs it takes


def is_search(folder: Path) -> bool:
    """Whether the folder has a `search.json`."""
    return (folder / SEARCH).is_file()


def is_complete(content: dict[str, Any]) -> bool:
    """Whether a parsed `search.json` has what `read` needs."""
    try:
        trials = [TrialRecord(**trial) for trial in content["trials"]]
        known = content["format"] == FORMAT and {"composition", "env", "seeds"} <= content["definition"].keys()
        return known and all(isinstance(trial.options, dict) for trial in trials)
    except (KeyError, TypeError, AttributeError):
        return False


def write(folder: Path, definition: dict[str, Any], trials: Sequence[TrialRecord]) -> None:
    """Write `search.json`; the file exists completely or not at all."""
    write_json(
        folder / SEARCH, {"format": FORMAT, "definition": definition, "trials": [asdict(trial) for trial in trials]}
    )


def read(folder: Path) -> tuple[dict[str, Any], list[TrialRecord]]:
    """Definition and trials. Raises `UserError` where `search.json` is missing, damaged or of a later version."""
    return read_json(
        folder / SEARCH,
        "search",
        FORMAT,
        lambda content: (dict(content["definition"]), [TrialRecord(**trial) for trial in content["trials"]]),
    )
