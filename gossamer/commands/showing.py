"""The commands `show` and `list`."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.commands.words import Architecture


@dataclass(frozen=True)
class Show:
    """Show an architecture: its figure, parts, and defaults with their sources."""

    architecture: Architecture

    def __call__(self) -> None:
        from gossamer.tools.show import console, show

        show(self.architecture, console())


@dataclass(frozen=True)
class List:
    """List architectures, algorithms, networks and environments."""

    def __call__(self) -> None:
        from gossamer.tools.show import console, overview

        overview(console())
