"""What every way from actors to learners promises."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor

from gossamer.data import Batch, Trajectory


class Experience(Protocol):
    """Slots are allocated once and filled in place."""

    def slot(self) -> AbstractContextManager[Trajectory]:
        """A trajectory to fill; it is handed over on leaving without an error. May wait: that is back-pressure."""

    def batch(self, size: int) -> Batch:
        """`size` trajectories to learn from."""

    def trained(self, batch: Batch, priority: Tensor | None = None) -> None:
        """The batch has been learned from: its slots are free, its priorities [B] are known."""
