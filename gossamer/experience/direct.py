"""On-policy experience within one thread: the learner trains on each rollout directly (PAAC, A2C, A3C, GALA)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gossamer.data import Batch, NoBatch, Trajectory, Tree, Updated
from gossamer.experience.base import Demand, Kept, Participant
from gossamer.runtime import Context


@dataclass(frozen=True)
class Direct:
    """Each rollout is a batch."""

    def join(self, ctx: Context, worker: Participant) -> DirectEnd:
        """See `OwnExperience`."""
        return DirectEnd(worker.slot(worker.num_envs))

    def demand(self, num_envs: int) -> Demand:
        """See `LearnerExperience`."""
        return Demand(batch_envs=num_envs, rollout_envs=num_envs)


class DirectEnd:
    """One slot, alternately filled and trained on."""

    def __init__(self, slot: Trajectory) -> None:
        self._slot, self._position, self._full = slot, 0, False

    @contextmanager
    def slot(self, position: int) -> Iterator[Trajectory]:
        """Return the slot to fill. Raises `RuntimeError` if the last trajectory has not been trained on."""
        if self._full:
            raise RuntimeError("the slot still holds a trajectory that has not been trained on")
        yield self._slot
        self._full, self._position = True, position

    def kept(self) -> Kept:
        """See `Writer`."""
        return Kept()

    def batch(self) -> Batch | NoBatch:
        """Return the filled trajectory, once."""
        if not self._full:
            return NoBatch.YET
        return Batch(self._slot, fresh=self._slot.steps, position=self._position)

    def trained(self, batch: Batch, updated: Updated) -> None:
        self._full = False

    def close(self) -> None: ...
    def state_dict(self) -> Tree:
        """See `End`."""
        return {}
