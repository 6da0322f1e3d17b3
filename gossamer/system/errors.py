"""Errors with one-line messages for users."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """An invalid value. The message names the option, the value and the valid values."""


class DamagedCheckpoint(UserError):
    """A checkpoint with missing or altered files."""


class NewerCheckpoint(UserError):
    """A checkpoint of a format that this version cannot read."""


class NonFiniteParameter(UserError):
    """A checkpoint with a parameter that is NaN or infinite. It is never written and never loaded."""


class DirectoryInUse(UserError):
    """A run directory that another process is writing to."""


class DirectoryGone(UserError):
    """A run directory that was removed or replaced during the run."""


class EnvironmentFailed(UserError):
    """An environment raised an error or returned an invalid value.

    The environment's error is the cause (`__cause__`). `trace` is its traceback as text, which also crosses processes.
    """

    def __init__(self, env: str, index: int | None, what: str, trace: str = "") -> None:
        """`env`: as in `--env`. `index`: its number among the environments of its worker, None if unknown."""
        super().__init__(env, index, what, trace)  # pickle calls the constructor with these arguments
        self.env, self.index, self.what, self.trace = env, index, what, trace
        self.advice = ""  # what the run did about it, and what the user can do

    def renumbered(self, first: int) -> EnvironmentFailed:
        """This error, with `first` added to the index."""
        self.index = None if self.index is None else first + self.index
        self.args = self.env, self.index, self.what, self.trace
        return self

    def __str__(self) -> str:
        which = "" if self.index is None else f"environment {self.index}: "
        return f"--env {self.env}: {which}{self.what}{self.advice and '; ' + self.advice}"


def near(name: str, names: Iterable[str]) -> str:
    """`; near: a, b` if there are names that differ in a few letters, or that begin with `name`; else an empty string.
    Dashes before the names of options do not count."""
    known = {each.lstrip("-"): each for each in names}
    wanted = name.lstrip("-")
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.7)
    begun = [each for each in known if each.startswith(wanted) and len(wanted) > 2]
    found = [known[each] for each in dict.fromkeys([*close, *begun])][:3]
    return f"; near: {', '.join(found)}" if found else ""
