"""What a run writes into its directory, so that nothing else is ever removed from there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.storage.lock import LOCK
from gossamer.system.errors import UserError
from gossamer.system.paths import shown

CONFIG, RESULT, GOSSIP, PICTURE = "config.json", "result.json", "gossip.json", "gossip.png"
EXPORTED = "gossamer_export"  # only the `config.json` of an export has it
EARLIER = "result-earlier.json"  # `RESULT` of the session before, while a resumed run trains
METRICS, EPISODES, LOG = "metrics.jsonl", "episodes.csv", "run.log"
FILM, HOSTS, SPEC = "video.mp4", "hosts.json", "spec.json"
SINKS, EVALUATIONS, STATUS = "sinks.json", "evaluations.jsonl", "status.json"
TENSORBOARD, CHECKPOINTS = "tensorboard", "checkpoints"
SAVED = "step_" + 12 * "[0-9]"  # the folders of checkpoints

_OURS = (
    *(CONFIG, SPEC, RESULT, EARLIER, GOSSIP, PICTURE, METRICS, EPISODES, EVALUATIONS),
    *(LOG, FILM, HOSTS, SINKS, STATUS, LOCK),
)
_NAMES = "|".join(map(re.escape, _OURS))
_STEP = r"checkpoints/(step_\d{12}|\.step_\d{12}[^/]*)"  # whole, or left by a process that was killed
_FILE = re.compile(
    rf"{_NAMES}"
    r"|evaluation-(noop|sticky|plain)(-\d+)?(-[^/]+)?\.json"  # of a member, of one of several games
    r"|tensorboard/events\.out\.tfevents\.[^/]+"
    rf"|{_STEP}/(tensors\.safetensors|state\.json|manifest\.json)"
    r"|\.[^/]+\.part(\.[a-z0-9]+)?"  # left by a process that was killed while it wrote
    r"|\.[^/]+\.jsonl?\.\d+"  # the same, of 0.1.0
)
_FOLDER = re.compile(rf"{TENSORBOARD}|{CHECKPOINTS}|{_STEP}")
_IN_A_CHECKPOINT = re.compile(rf"{_STEP}/.+")
SHOWN = 5  # names in a message
MOST_FOLDERS = 20_000  # that a command's search for runs looks into
TELL_EVERY = 5_000


@dataclass
class Survey:
    """What lies in a run directory."""

    files: list[Path] = field(default_factory=list)  # that a run writes
    folders: list[Path] = field(default_factory=list)  # that a run makes, each before those in it
    others: list[str] = field(default_factory=list)  # all else: names relative to the directory

    @property
    def blocking(self) -> list[str]:
        """Those of the others that a new run would write to or take for its own."""
        kinds = (_FILE, _FOLDER, _IN_A_CHECKPOINT)
        return [name for name in self.others if any(kind.fullmatch(name) for kind in kinds)]


def survey(directory: Path) -> Survey:
    """Look through a run directory, without following links and without looking into folders that no run makes."""
    found, pending = Survey(), [directory]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                name = Path(entry.path).relative_to(directory).as_posix()
                if _FILE.fullmatch(name) and entry.is_file(follow_symlinks=False):
                    found.files.append(Path(entry.path))
                elif _FOLDER.fullmatch(name) and entry.is_dir(follow_symlinks=False):
                    found.folders.append(Path(entry.path))
                    pending.append(Path(entry.path))
                else:
                    found.others.append(name)
    return found


def is_empty(directory: Path) -> bool:
    """Whether nothing is there but a lock and temporary files."""
    found = survey(directory)
    return not found.others and not found.folders and all(path.name.startswith(".") for path in found.files)


def newest(directory: Path) -> int:
    """The step of a run's newest checkpoint, by its name; 0 if there is none."""
    return max((int(path.name.removeprefix("step_")) for path in (directory / CHECKPOINTS).glob(SAVED)), default=0)


def is_run(directory: Path) -> bool:
    """Whether `config.json` is one that this library wrote: of format 1, which has no format number, or later."""
    file = directory / CONFIG
    try:
        config: Any = json.loads(file.read_text()) if file.is_file() else None  # a named pipe would block
    except (OSError, ValueError, RecursionError):
        return False
    if not isinstance(config, dict) or not isinstance(config.get("gossamer"), str):
        return False
    return isinstance(config.get("format"), int) or {"architecture", "env", "steps"} <= config.keys()


def search(
    folder: Path,
    is_run: Callable[[Path], bool] = is_run,
    *,
    most: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Path]:
    """The run directories in a folder, at any depth, in the order of their names; the folder itself where it is one. A
    directory that has metrics and no `config.json` of a run is a damaged run, and included. Links are not followed, and
    runs are not looked for inside of runs.

    `is_run`: a caller that searches often may remember the answers. `tell`: called with a line after each `TELL_EVERY`
    folders. Raises `UserError` after `most` folders."""
    found, pending, seen = list[Path](), [os.fspath(folder)], 0
    while pending:
        path = pending.pop()
        seen += 1
        if most is not None and seen > most:
            raise UserError(f"{folder}: more than {most:,} folders are in it; give a folder closer to the runs")
        if seen % TELL_EVERY == 0:
            tell(f"looking for runs in {folder}: {seen:,} folders so far")
        with suppress(OSError), os.scandir(path) as content:
            entries = list(content)
            names = {entry.name for entry in entries}
            whole = CONFIG in names and is_run(Path(path))
            found += [Path(path)] * (whole or METRICS in names)
            pending += [] if whole else [entry.path for entry in entries if _may_hold_runs(entry)]
    return sorted(found)


def _may_hold_runs(entry: os.DirEntry[str]) -> bool:
    hidden = entry.name.startswith(".") or entry.name in (CHECKPOINTS, TENSORBOARD)
    return not hidden and entry.is_dir(follow_symlinks=False)


def clear(directory: Path) -> list[str]:
    """Remove what a run wrote, but not `config.json`, which is replaced later, nor the lock. Returns the names of what
    is left because no run writes it. `UserError`, and nothing removed, where such a thing is in a new run's way."""
    found = survey(directory)
    if found.blocking:
        raise UserError(
            f"--overwrite: {shown(directory)} has {listed(found.blocking)} where a run has its own files; move it away "
            "first"
        )
    for path in found.files:
        if path.name not in (CONFIG, LOCK):
            path.unlink()
    for folder in reversed(found.folders):
        with suppress(OSError):  # something else lies in it
            folder.rmdir()
    return found.others


def listed(names: list[str]) -> str:
    """The first few names."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
