"""The directory of a run: what lies where, and that nothing in it is half written or lost unasked.

config.json       every option, resolved           metrics.jsonl, tensorboard/   what happened
checkpoints/      the last few and the best        result.json                   how it ended
run.log           notes                            gossip.json, gossip.png       how far members were apart, if many
hosts.json        what each host computes with
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gossamer.config.config import Config
from gossamer.config.file import from_dict, to_dict
from gossamer.config.names import ARCHITECTURES, name_of
from gossamer.errors import UserError

CONFIG, RESULT, GOSSIP, PICTURE = "config.json", "result.json", "gossip.json", "gossip.png"
HOSTS, LOG = "hosts.json", "run.log"


def prepare(config: Config, run_dir: str | Path | None, overwrite: bool) -> Path:
    """An empty run directory with its `config.json`; `UserError` if a run is there already."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    directory = Path(run_dir or f"runs/{title(config).replace(':', '-')}-{stamp}")
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
        write_json(directory / CONFIG, to_dict(config))
    except OSError:
        if not existed:
            directory.rmdir()
        raise
    return directory


def title(config: Config) -> str:
    """Architecture and environment."""
    return f"{name_of(type(config.architecture), ARCHITECTURES)}-{config.env.name}"


def load_config(directory: Path, note: Callable[[str], None] | None = None) -> Config:
    """The configuration of a run; `UserError` if there is none. `note` is told what was missing (else stderr is)."""
    file = directory / CONFIG
    try:
        config, missing = from_dict(json.loads(file.read_text()))
        for text in missing:
            (note or _to_stderr)(f"{file}: {text}")
        return config
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{directory}: not a run directory (no {CONFIG})") from error
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{file}: truncated or altered ({error}); restore it or train again") from error


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


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
