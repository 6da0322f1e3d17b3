"""On-policy experience within one thread: the learner trains on each rollout directly (PAAC, A2C, A3C, GALA)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gossamer.data import Batch, Trajectory


class Direct:
    """One slot, alternately filled and trained on: both a `Writer` and a `Reader`."""

    def __init__(self, slot: Trajectory) -> None:
        self._slot, self._position, self._full = slot, 0, False

    @contextmanager
    def slot(self, position: int) -> Iterator[Trajectory]:
        """Return the slot to fill. Raises `RuntimeError` if the last trajectory has not been trained on."""
        if self._full:
            raise RuntimeError("the slot still holds a trajectory that has not been trained on")
        yield self._slot
        self._full, self._position = True, position

    def batch(self) -> Batch:
        """Return the filled trajectory. Raises `RuntimeError` if there is none."""
        if not self._full:
            raise RuntimeError("the slot holds no trajectory")
        return Batch(self._slot, fresh=self._slot.steps, position=self._position)

    def trained(self, batch: Batch) -> None:
        self._full = False
