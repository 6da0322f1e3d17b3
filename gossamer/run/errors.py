"""What a user is told in one line."""

from __future__ import annotations


class UserError(ValueError):
    """A value that cannot be used; the message names the option, the value and what would do."""


class DamagedCheckpoint(UserError):
    """A checkpoint whose files are not those that were written."""
