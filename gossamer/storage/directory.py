"""The directory of a run: what lies where, and that nothing in it is half written or lost unasked.

config.json       every setting, resolved          metrics.jsonl, tensorboard/   what happened
checkpoints/      the last few and the best        result.json                   how it ended
run.log           notes                            gossip.json, gossip.png       how far members were apart, if many
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gossamer.config.settings import Settings, check_kinds, check_values
from gossamer.errors import UserError
from gossamer.version import __version__

CONFIG, RESULT, GOSSIP, PICTURE, LOG = "config.json", "result.json", "gossip.json", "gossip.png", "run.log"


def prepare(settings: Settings, run_dir: str | Path | None, overwrite: bool) -> Path:
    """An empty run directory with its `config.json`; `UserError` if a run is there already."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    directory = Path(run_dir or f"runs/{settings.architecture}-{settings.env.replace(':', '-')}-{stamp}")
    if directory.exists() and not directory.is_dir():
        raise UserError(f"--run-dir {directory}: is a file; give a directory")
    if directory.is_dir() and any(directory.iterdir()):
        if not overwrite:
            raise UserError(
                f"--run-dir {directory}: exists already; go on with `gossamer resume {directory}`, "
                "add --overwrite, or give another directory"
            )
        if not (directory / CONFIG).is_file():
            raise UserError(f"--overwrite: {directory} is not a run (no {CONFIG}); it is left as it is")
        shutil.rmtree(directory)
    existed = directory.is_dir()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        write_json(directory / CONFIG, config(settings))
    except OSError:
        if not existed:
            directory.rmdir()
        raise
    return directory


def config(settings: Settings) -> dict[str, Any]:
    """What `config.json` holds."""
    return {"gossamer": __version__, **asdict(settings)}


def load_settings(directory: Path) -> Settings:
    """The settings of a run; `UserError` if there is none."""
    file = directory / CONFIG
    try:
        config = json.loads(file.read_text())
        config.pop("gossamer")
        check_kinds(config)
        check_values(settings := Settings(**config))
        return settings
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{directory}: not a run directory (no {CONFIG})") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{file}: truncated or altered ({error}); restore it or train again") from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all: written beside and renamed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(content, indent=2) + "\n")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def logger(path: Path) -> Callable[[str], None]:
    """Adds a line with the time to a file, each time it is called."""

    def log(text: str) -> None:
        with open(path, "a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    return log
