"""`study.json`: the runs of a study, in the order in which they are trained.

    {"format": 1, "runs": [{"directory": "paac-ppo/pong/seed-1", "label": "paac --algorithm ppo", "env": "pong",
     "seed": 1, "command": "paac --algorithm ppo --env pong --seed 1 --steps 1000000"}, ..]}

`directory` is relative to the folder of `study.json`. It may not exist yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gossamer.storage.files import read_json, write_json

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
    return read_json(folder / STUDY, "study", FORMAT, lambda content: [_planned(run) for run in content["runs"]])


def _planned(found: dict[str, Any]) -> PlannedRun:
    run = PlannedRun(**found)
    for name, kind in {"directory": str, "label": str, "env": str, "seed": int, "command": str}.items():
        if not isinstance(getattr(run, name), kind):
            raise TypeError(f"{name} {getattr(run, name)!r}")
    return run
