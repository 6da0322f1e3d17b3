"""What a user is told in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A value that cannot be used; the message names the option, the value and what would do."""


class DamagedCheckpoint(UserError):
    """A checkpoint whose files are not those that were written."""


class NewerCheckpoint(UserError):
    """A checkpoint of a format that this version cannot read."""


class NonFiniteParameter(UserError):
    """A checkpoint with a parameter that is NaN or infinite: it is never written, and never loaded."""


class DirectoryInUse(UserError):
    """A run directory that another process writes."""


class DirectoryGone(UserError):
    """A run directory that was removed or replaced during the run."""


class EnvironmentFailed(UserError):
    """An environment raised an error, or gave an answer that cannot be used.

    The error that it raised is the cause (`__cause__`); `trace` is its traceback as text, which also crosses processes.
    """

    def __init__(self, env: str, index: int | None, what: str, trace: str = "") -> None:
        """`env`: as in `--env`. `index`: its number among the environments of its worker, None where unknown."""
        super().__init__(env, index, what, trace)  # these are what pickle makes it from again
        self.env, self.index, self.what, self.trace = env, index, what, trace
        self.advice = ""  # what was done about it, and what the user can do

    def __str__(self) -> str:
        which = "" if self.index is None else f"environment {self.index}: "
        return f"--env {self.env}: {which}{self.what}{self.advice and '; ' + self.advice}"


def near(name: str, names: Iterable[str]) -> str:
    """`; near: a, b` where something is close."""
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; near: {', '.join(close)}" if close else ""
