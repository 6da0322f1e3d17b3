"""The protocol of sinks: a sink takes the metrics of one run, and is told how the run ends."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from gossamer.config.config import Config
from gossamer.config.file import flat, to_dict
from gossamer.storage.studies import is_study

RunEnding: TypeAlias = Literal["finished", "interrupted", "failed"]
Scalars: TypeAlias = dict[str, float]

# Options that change neither what is learned nor how: runs that differ only in these are repetitions of each other
REPEATED = ("seed", "steps", "device", "threads", "keep", "checkpoint_every", "log")


@dataclass(frozen=True)
class RunInfo:
    """Facts about a run, for sinks."""

    directory: Path
    env: str
    config: dict[str, Any]  # the content of `config.json`
    options: dict[str, Any]  # every choice and option by its name on the command line
    tags: tuple[str, ...]  # architecture, algorithm and environment
    group: str  # equal for runs of the same `compared`

    @property
    def compared(self) -> dict[str, Any]:
        """The options without those that change neither what is learned nor how."""
        return compared(self.options)

    @property
    def name(self) -> str:
        """The name of the run directory; of a run of a study, its path in there: `paac/pong/seed-1`."""
        path = self.directory.resolve()
        study = next(filter(is_study, path.parents), path.parent)
        return path.relative_to(study).as_posix()


def run_info(directory: Path, config: Config) -> RunInfo:
    """The facts about the run of this configuration."""
    options = flat(config)
    tags = (options["architecture"], options["algorithm"], config.env.name)
    digest = hashlib.sha256(json.dumps(compared(options), sort_keys=True).encode()).hexdigest()
    return RunInfo(directory, config.env.name, to_dict(config), options, tags, "-".join((*tags, digest[:6])))


def compared(options: dict[str, Any]) -> dict[str, Any]:
    """These options without those that change neither what is learned nor how."""
    return {name: v for name, v in options.items() if name not in REPEATED and not name.startswith("eval_")}


class Sink(Protocol):
    """A tool that shows and compares runs. Its methods are called one at a time, on one thread; what they raise is
    handled by the caller."""

    def start(self, run: RunInfo, key: str | None) -> str | None:
        """Begin a run, or continue the one with this key. Returns the key with which a resumed run continues; None if
        the tool needs none."""

    def write(self, scalars: Scalars, steps: int) -> None:
        """Add these values at this step."""

    def close(self, outcome: RunEnding) -> None:
        """The run has ended."""
