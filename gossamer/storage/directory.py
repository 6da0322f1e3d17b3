"""The directory of a run: what lies where, and how it is made, taken over and read.

config.json       every option, resolved           metrics.jsonl, tensorboard/   what happened
checkpoints/      the last few and the best        result.json                   how it ended
run.log           notes                            gossip.json, gossip.png       how far members were apart, if many
hosts.json        what each host computes with     episodes.csv                  every episode: when, where, its return
sinks.json        keys of the run in its sinks     evaluations.jsonl             evaluations while it trained
spec.json         observation and action spaces    status.json                   members, hosts, gossip as of now
.lock             held while it trains             result-earlier.json           of the session before, while it trains
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gossamer.config.config import Config
from gossamer.config.file import from_dict, to_dict
from gossamer.config.names import ARCHITECTURES, name_of
from gossamer.storage.contents import CONFIG, EXPORTED, clear, is_empty, is_run, listed
from gossamer.storage.files import write_json
from gossamer.storage.lock import RunLock, held
from gossamer.system.errors import UserError
from gossamer.system.paths import shown


@contextmanager
def prepared(config: Config, run_dir: str | Path | None, overwrite: bool) -> Iterator[RunLock]:
    """Hold the lock of a run directory that has a new `config.json` and nothing else of a run.

    `run_dir`: None for a new directory under `runs/`. Raises `UserError` where something is there already, unless it is
    a run and `overwrite` is given; then what that run wrote is removed, and all else is left and named."""
    with _named(run_dir):
        directory, made = (Path(run_dir), _make(Path(run_dir))) if run_dir else _new(config)
    try:
        with _named(run_dir):
            _check_free(directory, overwrite)  # before a lock file is written: this may be somebody else's directory
        with held(directory) as lock:
            _check_free(directory, overwrite)
            if not is_empty(directory) and (left := clear(directory)):
                print(f"--overwrite: left in {shown(directory)}, as no run writes it: {listed(left)}", file=sys.stderr)
            write_json(directory / CONFIG, to_dict(config))
            made.clear()
            yield lock
    finally:
        for folder in reversed(made):  # nothing is left where the run could not begin
            with suppress(OSError):
                folder.rmdir()


def _new(config: Config) -> tuple[Path, list[Path]]:
    """A directory that no other process has, and those that were made for it."""
    stem = f"{re.sub(r'[^A-Za-z0-9.]+', '-', title(config))}-{time.strftime('%Y%m%d-%H%M%S')}"
    runs = Path("runs").absolute()
    made = _make(runs)
    for number in itertools.count(1):
        directory = runs / (stem if number == 1 else f"{stem}-{number}")
        with suppress(FileExistsError):  # several runs start within a second
            directory.mkdir()
            return directory, [*made, directory]
    raise AssertionError("there is always a number left")


def _make(directory: Path) -> list[Path]:
    """Create a directory if it does not exist. Return the directories that were created, outermost first."""
    if directory.is_symlink() and not directory.exists():
        raise UserError(f"--run-dir {shown(directory)}: is a link to {directory.readlink()}, which does not exist")
    if directory.exists() and not directory.is_dir():
        raise UserError(f"--run-dir {shown(directory)}: is a file; give a directory")
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    return missing[::-1]


def _check_free(directory: Path, overwrite: bool) -> None:
    """`UserError` unless the directory is empty, or a run that may be overwritten."""
    if is_empty(directory):
        return
    if not is_run(directory):
        told = "--overwrite" if overwrite else "--run-dir"
        raise UserError(
            f"{told}: {shown(directory)} has files and is not a run ({CONFIG} is missing or not ours); it is left as "
            "it is"
        )
    if not overwrite:
        raise UserError(
            f"--run-dir {shown(directory)}: exists already; go on with `gossamer resume {shown(directory)}`, "
            "add --overwrite, or give another directory"
        )


@contextmanager
def _named(run_dir: str | Path | None) -> Iterator[None]:
    """Have an error name the option: a name that is too long, a place where nothing can be made."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(
            f"--run-dir {shown(Path(run_dir or 'runs'))}: cannot be used ({why}); give another directory"
        ) from error


def title(config: Config) -> str:
    """Architecture and environment."""
    return f"{name_of(type(config.architecture), ARCHITECTURES)}-{config.env.name}"


def load_config(directory: Path, note: Callable[[str], None] | None = None) -> Config:
    """The configuration of a run; `UserError` if there is none. `note` is told what was missing (else stderr is)."""
    file = directory / CONFIG
    try:
        if EXPORTED in (content := json.loads(file.read_text())):
            raise UserError("is that of an export, which gossamer.load reads; give the run's directory here")
        config, missing = from_dict(content)
        for text in missing:
            (note or _to_stderr)(f"{shown(file)}: {text}")
        return config
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{shown(directory)}: not a run directory (no {CONFIG})") from error
    except OSError as error:
        raise UserError(f"{shown(file)}: cannot be read ({error.strerror})") from error
    except UserError as error:
        raise UserError(f"{shown(file)}: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{shown(file)}: truncated or altered ({error}); restore it or train again") from error


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def logger(path: Path) -> Callable[[str], None]:
    """Adds a line with the time to a file, each time it is called."""

    def log(text: str) -> None:
        with open(path, "a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    return log
