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


def near(name: str, names: Iterable[str]) -> str:
    """`; near: a, b` where something is close."""
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; near: {', '.join(close)}" if close else ""
