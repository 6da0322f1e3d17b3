"""Protocols for the transfer of experience from actors to learners."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeAlias

from gossamer.data import Batch, Trajectory

Timer: TypeAlias = Callable[[str], AbstractContextManager[None]]  # `actor.Clock`


def untimed(what: str) -> AbstractContextManager[None]:
    """A `Timer` that measures nothing."""
    return nullcontext()


class Writer(Protocol):
    """An actor's end: trajectory slots, which are allocated once and filled in place."""

    def slot(self, position: int) -> AbstractContextManager[Trajectory]:
        """Return a trajectory to fill, submitted when the context exits without an error. May block (back-pressure).
        `position`: environment steps in the run's budget before it."""


class Reader(Protocol):
    """A learner's end."""

    def batch(self) -> Batch | None:
        """Return trajectories to learn from; None if there will be no more. May block."""

    def trained(self, batch: Batch) -> None:
        """Release a batch after learning from it."""
