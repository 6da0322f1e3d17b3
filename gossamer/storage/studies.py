"""`study.json`: the runs of a study, in the order in which they are trained.

    {"format": 1, "runs": [{"directory": "paac-ppo/pong/seed-1", "label": "paac --algorithm ppo", "env": "pong",
     "seed": 1, "command": "paac --algorithm ppo --env pong --seed 1 --steps 1000000"}, ..]}

`directory` is relative to the folder of `study.json`. It may not exist yet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gossamer.storage.files import write_json
from gossamer.system.errors import UserError

STUDY = "study.json"
FORMAT = 1


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study."""

    directory: str  # relative to the study's folder
    label: str  # of its composition, the same for all environments and seeds
    env: str
    seed: int
    command: str  # the words after `gossamer train`, without the run's directory


def is_study(folder: Path) -> bool:
    """Whether the folder has a `study.json`."""
    return (folder / STUDY).is_file()


def write(folder: Path, runs: Sequence[PlannedRun]) -> None:
    """Write `study.json`; the file exists completely or not at all."""
    write_json(folder / STUDY, {"format": FORMAT, "runs": [asdict(run) for run in runs]})


def read(folder: Path) -> list[PlannedRun]:
    """The runs of a study. Raises `UserError` where `study.json` is missing, damaged or of a later version."""
    file = folder / STUDY
    try:
        content = json.loads(file.read_text())
        if content["format"] > FORMAT:
            raise UserError(f"{file}: written by a later version of Gossamer; this one reads format {FORMAT}")
        return [_planned(run) for run in content["runs"]]
    except FileNotFoundError as error:
        raise UserError(f"{folder}: not a study (no {STUDY})") from error
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: damaged ({error}); restore it or use another directory") from error


def _planned(found: dict[str, Any]) -> PlannedRun:
    run = PlannedRun(**found)
    for name, kind in {"directory": str, "label": str, "env": str, "seed": int, "command": str}.items():
        if not isinstance(getattr(run, name), kind):
            raise TypeError(f"{name} {getattr(run, name)!r}")
    return run
