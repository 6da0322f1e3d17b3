"""Selects sinks by name (`--log`) and starts them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from gossamer.config.names import load
from gossamer.storage.contents import SINKS
from gossamer.storage.files import write_json
from gossamer.system.errors import UserError
from gossamer.system.installation import install
from gossamer.training.sinks.background import Background
from gossamer.training.sinks.base import RunEnding, RunInfo, Scalars, Sink

KNOWN = {
    "tensorboard": "gossamer.training.sinks.tensorboard:TensorBoard",
    "wandb": "gossamer.training.sinks.wandb:WandB",
    "trackio": "gossamer.training.sinks.trackio:Trackio",
    "mlflow": "gossamer.training.sinks.mlflow:MLflow",
}
NONE = "none"
DIRECT = "tensorboard"  # a file of the run directory, written like the others there
CLOSE_SECONDS = 30.0  # that the tools may take together at the end of a run


def chosen(log: str) -> list[str]:
    """The names in the value of `--log`, each once; their packages are imported, because that takes seconds of all
    threads' time. Raises `UserError` for an unknown one, and for a package that is not installed: each of the tools is
    an extra of its own name."""
    names = list(dict.fromkeys(name.strip() for name in log.split(",")))
    if names == [NONE]:
        return []
    if NONE in names:
        raise UserError(f"--log {log}: {NONE} stands alone")
    for name in names:
        if name in KNOWN and not _installed(name):
            raise UserError(f"--log {name}: not installed; run {install(name)}")
        load("--log", name, KNOWN)
    return names


def _installed(package: str) -> bool:
    """Whether a package is installed; a mere folder of its name, as wandb makes for its runs, is none."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


@dataclass(frozen=True)
class Unmade:
    """Stands for a user's sink whose constructor has failed: it cannot start."""

    error: Exception

    def start(self, run: RunInfo, key: str | None) -> str | None:
        """Raise the constructor's error."""
        raise self.error

    def write(self, scalars: Scalars, steps: int) -> None: ...
    def close(self, outcome: RunEnding) -> None: ...


def _made(kind: Callable[[], Sink]) -> Sink:
    try:
        return kind()
    except Exception as error:
        return Unmade(error)


class Sinks:
    """The sinks of a run. A full disk under TensorBoard's events raises `OSError`; failures of the others are counted
    and told."""

    def __init__(self, log: str = NONE, told: Callable[[str, str], None] = lambda name, why: None) -> None:
        """`log`: as `--log`. `told` is called with the name of a sink and its first failure, by another thread."""
        self._names, self._told = chosen(log), told
        self._direct, self._background = list[Sink](), dict[str, Background]()  # those that were started

    def start(self, run: RunInfo) -> None:
        """Start all of them. A resumed run continues with the keys in its directory."""
        keys = Keys(run.directory / SINKS)
        for name in self._names:
            made = _made(load("--log", name, KNOWN))
            if name == DIRECT:
                made.start(run, None)
                self._direct.append(made)
            else:
                beside = Background(made, partial(self._told, name), partial(keys.keep, name))
                beside.start(run, keys.get(name))
                self._background[name] = beside

    def write(self, scalars: Scalars, steps: int) -> None:
        """Add these values at this step."""
        for sink in self._direct:
            sink.write(scalars, steps)
        for beside in self._background.values():
            beside.write(scalars, steps)

    def close(self, outcome: RunEnding) -> None:
        """Tell all how the run ended."""
        for beside in self._background.values():
            beside.end(outcome)
        for sink in self._direct:
            sink.close(outcome)
        deadline = time.monotonic() + CLOSE_SECONDS
        for beside in self._background.values():
            beside.wait(max(0.0, deadline - time.monotonic()))

    @property
    def failures(self) -> dict[str, int]:
        """Failed calls by sink; only of those that failed."""
        return {name: sink.failures for name, sink in self._background.items() if sink.failures}


class Keys:
    """The keys of a run in its sinks, in a file: sink -> key."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, threading.Lock()  # sinks start on threads of their own
        try:
            self._keys: dict[str, str] = json.loads(file.read_text())
        except (OSError, ValueError):  # a new run; a damaged file lets the tools begin a new run, too
            self._keys = {}

    def get(self, name: str) -> str | None:
        """The key of the run in this sink; None for a run that is new to it."""
        return self._keys.get(name)

    def keep(self, name: str, key: str) -> None:
        """Write the key of a sink."""
        with self._lock:
            self._keys[name] = key
            write_json(self._file, self._keys)
