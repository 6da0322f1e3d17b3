"""A learner's end of a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace

from gossamer.data import Batch, NoBatch, Stamp, Updated, Version
from gossamer.experience.base import Timer, untimed
from gossamer.experience.queue.loading import Assembler, NextBatch
from gossamer.experience.queue.queue import TrajectoryQueue
from gossamer.experience.queue.replay import Mixing
from gossamer.experience.queue.slots import Slots
from gossamer.task import Left


class QueueReader:
    """A learner's end of a queue on its host.

    `reuse`: passes over each batch. Each new batch is trained on in turn with the reuse - 1 before it. `replay`: old
    trajectories that are added to each new batch."""

    def __init__(
        self,
        queue: TrajectoryQueue,
        slots: Slots,
        *,
        version: Callable[[], Version],
        life: int = 0,
        ended: Collection[str] = (),
        clock: Timer = untimed,
        reuse: int = 1,
        replay: Mixing | None = None,
        next_batch: NextBatch | None = None,
        report: Callable[[Left], None] = lambda left: None,
    ) -> None:
        """`version`: of the learner's parameters, now; `life`: restarts of its host; `ended`: workers that had ended
        before the last one. `clock`: measures the time that the learner waits for a batch, and that in which it unpacks
        what other hosts sent and adds old trajectories. `next_batch`: where a worker hands over batches that are
        assembled already. `report`: is told what is left at the end."""
        self._queue, self._version, self._clock, self._reuse, self._report = queue, version, clock, reuse, report
        self._assembler, self._next_batch = Assembler(queue, slots, clock, replay), next_batch
        self._ring = deque[Batch](maxlen=reuse)
        self._round = deque[Batch]()  # batches still to be trained on before the next new one
        queue.forget(ended)
        if next_batch is not None:
            next_batch.forget(ended)
        queue.provide(slots, Stamp(life, version()))

    def batch(self) -> Batch | NoBatch:
        """See `Reader`."""
        if not self._round:
            new = self._new()
            if new is None:
                return NoBatch.END
            self._ring.append(new)
            self._round.extend(self._ring)
        return self._round.popleft()

    def trained(self, batch: Batch, updated: Updated) -> None:
        """See `Reader`."""
        place = next(i for i, each in enumerate(self._ring) if each.key == batch.key)
        self._ring[place] = replace(batch, fresh=0, rollouts=(), windows=None)
        if not self._round and len(self._ring) == self._reuse:
            self._queue.trained(self._ring[0].key, self._version())

    def close(self) -> None:
        """The learner ends."""
        if left := self._queue.close():
            self._report(Left(left))
        if self._next_batch is not None:
            self._next_batch.close()

    def _new(self) -> Batch | None:
        """The next batch that has not been trained on, ready to train."""
        if self._next_batch is None:
            return self._assembler.batch()
        with self._clock("learner_waits"):
            return self._next_batch.take()
