"""Protocol for the transfer of experience from actors to learners."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor

from gossamer.data import Batch, Trajectory


class Experience(Protocol):
    """Trajectory slots, which are allocated once and filled in place."""

    def slot(self) -> AbstractContextManager[Trajectory]:
        """Return a trajectory to fill, submitted when the context exits without an error. May block (back-pressure)."""

    def batch(self, size: int) -> Batch:
        """Return `size` trajectories to learn from."""

    def trained(self, batch: Batch, priority: Tensor | None = None) -> None:
        """Release the slots of a batch after learning from it. `priority` [B]: its new priorities."""
