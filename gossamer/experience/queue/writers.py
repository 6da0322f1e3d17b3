"""An actor's end of a queue, on the learner's host or on another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from gossamer.data import Packed, Stamp, Trajectory
from gossamer.experience.base import Kept, Timer
from gossamer.experience.handed import Handed
from gossamer.experience.queue.old import OldRollouts
from gossamer.experience.queue.queue import Lease, TrajectoryQueue
from gossamer.runtime import Context, Reaching, Stopped


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
