"""The memory of trajectories between actors and a learner of one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gossamer.data import Trajectory, merged_finals


class Slots:
    """Preallocated batches. A slot is some columns of one of them, so that a batch whose slots are full is ready
    without a copy. Slots are numbered through; batch n has the slots n * count .. (n + 1) * count - 1, and the memory
    of batch n is that of batch n + depth."""

    def __init__(self, batches: Sequence[Trajectory], count: int) -> None:
        """`count`: slots of a batch; must divide its number of environments."""
        width = batches[0].num_envs // count
        self._batches, self._count = batches, count
        self._slots = [[each.columns(i * width, (i + 1) * width) for i in range(count)] for each in batches]

    def slot(self, key: int) -> Trajectory:
        """The memory of a slot: the same object each time."""
        return self.at(*divmod(key, self._count))

    def at(self, number: int, place: int) -> Trajectory:
        """The memory of a slot of batch `number`."""
        return self._slots[number % len(self._slots)][place]

    def batch(self, number: int, places: Sequence[int]) -> Trajectory:
        """Batch `number`, of which the slots `places` are full. Copies only if these are not all of them."""
        slots = self._slots[number % len(self._slots)]
        if len(places) < self._count:
            return Trajectory.concatenated([slots[place] for place in places])
        return replace(self._batches[number % len(self._batches)], finals=merged_finals(slots))
