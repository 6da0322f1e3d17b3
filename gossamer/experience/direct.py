"""On-policy experience within one thread: the learner trains on each rollout directly (PAAC, A2C, A3C, GALA)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from gossamer.data import Batch, Trajectory


class Direct:
    """One slot, alternately filled and trained on."""

    def __init__(self, slot: Trajectory) -> None:
        self._slot, self._full = slot, False

    @contextmanager
    def slot(self) -> Iterator[Trajectory]:
        """Return the slot to fill. Raises `RuntimeError` if the last trajectory has not been trained on."""
        if self._full:
            raise RuntimeError("the slot still holds a trajectory that has not been trained on")
        yield self._slot
        self._full = True

    def batch(self, size: int = 1) -> Batch:
        """Return the filled trajectory. Raises `RuntimeError` if there is none or `size` is not 1."""
        if not self._full or size != 1:
            raise RuntimeError(f"{size} trajectories requested from a slot that holds {int(self._full)}")
        return Batch(self._slot, keys=(0,))

    def trained(self, batch: Batch, priority: Tensor | None = None) -> None:
        self._full = False
