"""The ends of a queue: an actor's, on the learner's host or on another one, and a learner's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from gossamer.data import Batch, NoBatch, Packed, Stamp, Trajectory, Updated, Version
from gossamer.experience.base import Kept, Timer, untimed
from gossamer.experience.handed import Handed
from gossamer.experience.queue.loading import Assembler, NextBatch
from gossamer.experience.queue.old import OldRollouts
from gossamer.experience.queue.queue import Lease, TrajectoryQueue
from gossamer.experience.queue.replay import Mixing
from gossamer.experience.queue.slots import Slots
from gossamer.runtime import Context, Reaching, Stopped
from gossamer.task import Left


class QueueWriter:
    """An actor's end of a queue on its host."""

    def __init__(self, queue: TrajectoryQueue, actor: int, restarts: int, clock: Timer) -> None:
        """`clock`: measures the time that the actor waits for a free slot."""
        self._queue, self._who, self._clock = queue, (actor, restarts), clock
        self._slots, self._handed = queue.join(*self._who), Handed(*self._who)

    @contextmanager
    def slot(self, position: int) -> Iterator[Trajectory]:
        """See `Writer`. Raises `Stopped` if the learner has ended, or if the program is stopped while it waits."""
        with self._clock("actors_wait"):
            key = _granted(self._queue.lease(*self._who)).slot
        try:
            yield self._slots.slot(key)
        except BaseException:
            self._queue.give_back(key, *self._who)
            raise
        rollout = self._handed.next(position, self._slots.slot(key).steps)
        self._handed.add(rollout, self._queue.put(key, rollout))

    def kept(self) -> Kept:
        """See `Writer`."""
        return self._handed.kept()

    def close(self) -> None:
        """The actor ends."""
        self._queue.leave(*self._who)


class RemoteWriter:
    """An actor's end of a queue on another host: a rollout is filled here, then sent."""

    def __init__(
        self,
        ctx: Context,
        queue: TrajectoryQueue,
        slot: Trajectory,
        at_least: Callable[[Stamp], bool],
        clock: Timer,
        old: OldRollouts | None = None,
    ) -> None:
        """`slot`: memory for a rollout. `at_least`: waits until parameters with this stamp are on this host; whether
        newer ones may follow. `clock`: measures the time that the actor waits for a free slot and for these parameters,
        and the time that it sends. `old`: keeps what was sent."""
        self._ctx, self._queue, self._slot, self._at_least, self._clock = ctx, queue, slot, at_least, clock
        self._old = old
        self._who, self._reach = (ctx.rank, ctx.restarts), Reaching(ctx)
        self._handed = Handed(*self._who)
        self._reach(lambda: queue.register(*self._who))

    @contextmanager
    def slot(self, position: int) -> Iterator[Trajectory]:
        """See `Writer`. Raises `Stopped` if the learner has ended or its host does not answer for `GONE` seconds, or if
        the program is stopped while it waits."""
        with self._clock("actors_wait"):
            lease = _granted(self._reach(lambda: self._queue.lease(*self._who)))
        with self._clock("parameters_wait"):
            if not self._at_least(lease.stamp):
                raise Stopped("the learner has ended")
        yield self._slot
        with self._clock("send"):
            packed = Packed.of(self._slot)
            rollout = self._handed.next(position, self._slot.steps)
            taken = self._reach(lambda: self._queue.deliver(lease.slot, rollout, packed))
            if self._old is not None:
                self._old.keep(packed)
        self._handed.add(rollout, taken)

    def kept(self) -> Kept:
        """See `Writer`."""
        handed = self._handed.kept()
        if self._old is None:
            return handed
        kept = self._old.kept()
        return replace(handed, stored=kept.stored, held=kept.held)

    def close(self) -> None:
        """The actor ends."""
        with suppress(Stopped):
            self._reach(lambda: self._queue.leave(*self._who))


def _granted(lease: Lease | None) -> Lease:
    """Raises `Stopped` if the learner has ended."""
    if lease is None:
        raise Stopped("the learner has ended")
    return lease


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
