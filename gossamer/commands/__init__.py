"""The commands. Each imports what it needs when it is called, so that help texts appear at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gossamer.commands.export import Export
from gossamer.commands.measuring import bench, simulate
from gossamer.commands.playing import Evaluate, Record
from gossamer.commands.reporting import Report
from gossamer.commands.searching import search
from gossamer.commands.showing import List, Show
from gossamer.commands.studying import Runs, study
from gossamer.commands.training import resume, train
from gossamer.commands.watch import Watch
from gossamer.config.command_line import parse
from gossamer.system.errors import UserError, near

COMMANDS: dict[str, Any] = {
    "train": train,
    "resume": resume,
    "evaluate": Evaluate,
    "record": Record,
    "watch": Watch,
    "study": study,
    "search": search,
    "runs": Runs,
    "export": Export,
    "report": Report,
    "bench": bench,
    "simulate": simulate,
    "show": Show,
    "list": List,
}


def call(command: Any, name: str, words: Sequence[str]) -> int | None:
    """Parse the words of a command that is a dataclass, and run it. Returns its exit code; None means 0."""
    code: int | None = parse(command, words, prog=f"gossamer {name}", description=command.__doc__)()
    return code


def run(name: str, words: Sequence[str]) -> int:
    """Run one command with the words after it; returns its exit code. Raises `UserError` for invalid words."""
    if name not in COMMANDS:
        raise UserError(f"unknown command {name}{near(name, COMMANDS)}; available: {', '.join(COMMANDS)}")
    command = COMMANDS[name]
    if isinstance(command, type):
        return call(command, name, words) or 0
    return command(words) or 0


def overview() -> str:
    """The help text of `gossamer` itself."""
    lines = [f"  {name:<10} {(command.__doc__ or ' ').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: gossamer COMMAND [OPTIONS]\n", DESCRIPTION, "\nCommands:", *lines, "", *MORE])


DESCRIPTION = "Train and compare parallel actor-learner architectures for deep reinforcement learning."
MORE = ("Options of a command: gossamer COMMAND --help", "The version:          gossamer --version")
