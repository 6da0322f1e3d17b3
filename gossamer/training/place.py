"""Where a run takes place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from gossamer.program import Program
from gossamer.runtime import Observer

Launcher: TypeAlias = Callable[[Program, Observer], None]


@dataclass(frozen=True)
class Place:
    """This process or a cluster."""

    launch: Launcher
    note: str | None = None  # what a user should know of it, for the log
