"""On policy, in one place: what was acted is what is learned from (PAAC, A2C, A3C, GALA)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from gossamer.data import Batch, Trajectory


class Direct:
    """One slot, acted into and learned from in turn."""

    def __init__(self, slot: Trajectory) -> None:
        self._slot, self._full = slot, False

    @contextmanager
    def slot(self) -> Iterator[Trajectory]:
        """The slot to fill; `RuntimeError` if the last trajectory has not been learned from."""
        if self._full:
            raise RuntimeError("the slot still holds a trajectory that nobody has trained on")
        yield self._slot
        self._full = True

    def batch(self, size: int = 1) -> Batch:
        """The trajectory just acted; `RuntimeError` if there is none, or more than one is asked for."""
        if not self._full or size != 1:
            raise RuntimeError(f"{size} trajectories asked of a slot that holds {int(self._full)}")
        return Batch(self._slot, keys=(0,))

    def trained(self, batch: Batch, priority: Tensor | None = None) -> None:
        self._full = False
