"""An actor's end of a replay memory that several workers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gossamer.data import Packed, Rollout, Trajectory
from gossamer.experience.base import Kept, Timer
from gossamer.experience.replay.limiter import Inserted, Limiter
from gossamer.experience.replay.shard import ReplayShard
from gossamer.runtime import Context, Reaching, Stopped
from gossamer.spaces import Spec
from gossamer.task import Left


class ReplayWriter:
    """An actor's end: a rollout is filled here, then sent to the actor's shard."""

    def __init__(
        self,
        ctx: Context,
        limiter: Limiter,
        shard: ReplayShard,
        slot: Trajectory,
        *,
        spec: Spec,
        clock: Timer,
    ) -> None:
        """`slot`: memory for a rollout; `spec`: of the environments; `clock`: measures the time that the actor waits
        for learners, and that it sends."""
        self._ctx, self._limiter, self._shard, self._slot, self._clock = ctx, limiter, shard, slot, clock
        self._spec = spec
        self._number = 0  # of the last rollout
        self._held = 0  # steps that the shard has of this actor
        self._stored = self._lost = 0  # steps, since the last call of `kept`
        self._rollouts = list[Rollout]()  # stored since then
        self._reach = Reaching(ctx)
        self._reach(self._register)
        self._last = Inserted(held=self._held)

    @contextmanager
    def slot(self, position: int) -> Iterator[Trajectory]:
        """See `Writer`. Raises `Stopped` if the learners have ended, if a host does not answer for `GONE` seconds, or
        if the program is stopped while it waits."""
        who = self._ctx.rank, self._ctx.restarts
        with self._clock("actors_wait"):
            if not self._reach(lambda: self._limiter.insert(*who, self._last, self._slot.steps)):
                raise Stopped("the learners have ended")
        yield self._slot
        with self._clock("send"):
            packed = Packed.of(self._slot)
            self._number += 1
            self._held = self._reach(lambda: self._insert(packed))
        self._stored += self._slot.steps
        self._last = Inserted(self._number, self._slot.steps, position, self._held)
        self._rollouts.append(Rollout(*who, self._number, position, self._slot.steps))

    def kept(self) -> Kept:
        """See `Writer`."""
        kept = Kept(self._stored, self._lost, handed_over=tuple(self._rollouts))
        self._stored = self._lost = 0
        self._rollouts = []
        return kept

    def close(self) -> None:
        """The actor ends."""
        who, last = (self._ctx.rank, self._ctx.restarts), self._last
        with suppress(Stopped):
            if not self._reach(lambda: self._limiter.leave(*who, last)) and last.number:
                self._ctx.report(Left((Rollout(*who, last.number, last.position, last.steps),)))

    def _register(self) -> None:
        self._held = self._shard.register(self._ctx.rank, self._ctx.restarts, self._spec)

    def _insert(self, packed: Packed) -> int:
        """Store the rollout; in a shard that has been restarted and is empty, after saying who this is. Returns how
        many steps of this actor are stored."""
        while (held := self._shard.insert(self._ctx.rank, self._ctx.restarts, self._number, packed)) is None:
            self._lost, self._held = self._lost + self._held, 0  # once, though `_register` may fail
            self._register()
        return held
