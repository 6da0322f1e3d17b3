"""Sinks that misbehave, and what a sink is told about a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gossamer.config.resolve import configure
from gossamer.training.sinks.base import RunEnding, RunInfo, Scalars, run_info


def info(directory: Path, **given: Any) -> RunInfo:
    """What sinks are told about a run in this directory."""
    return run_info(directory, configure("paac", env="catch", **given))


def wait(there: Callable[[], bool]) -> None:
    """Until something has come to be; fails after a minute."""
    end = time.monotonic() + 60
    while not there():
        assert time.monotonic() < end
        time.sleep(0.005)


class Kept:
    """Keeps everything that it is given."""

    def __init__(self) -> None:
        self.keys, self.rows, self.ends = list[str | None](), list[tuple[Scalars, int]](), list[RunEnding]()

    def start(self, run: RunInfo, key: str | None) -> str | None:
        self.keys.append(key)
        return "key"

    def write(self, scalars: Scalars, steps: int) -> None:
        self.rows.append((scalars, steps))

    def close(self, outcome: RunEnding) -> None:
        self.ends.append(outcome)


class Refuses(Kept):
    """Cannot start."""

    def start(self, run: RunInfo, key: str | None) -> str | None:
        raise ConnectionError("no such\nserver")


class Unfinished(Kept):
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no key")


class Loses(Kept):
    """Fails for steps that are odd, and at the end."""

    def write(self, scalars: Scalars, steps: int) -> None:
        if steps % 2:
            raise TimeoutError
        super().write(scalars, steps)

    def close(self, outcome: RunEnding) -> None:
        raise ValueError("too late")


class Hangs(Kept):
    """Does not answer until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def start(self, run: RunInfo, key: str | None) -> str | None:
        self.go.wait()
        return super().start(run, key)
