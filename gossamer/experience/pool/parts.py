"""Experience through a pool: the configuration of agents' and of trainers' ends, and these ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gossamer.data import Batch, NoBatch, Rollout, Trajectory, Updated
from gossamer.experience.base import Demand, Kept, Participant, Timer
from gossamer.experience.handed import Handed
from gossamer.experience.pool.pool import Nothing, RolloutPool, Sizes
from gossamer.runtime import Context, Stopped
from gossamer.system.machine import settle
from gossamer.task import Left

PARKED = 0.2  # seconds until a parked agent or trainer asks again


@dataclass(frozen=True)
class AgentPool:
    """Agents fill the pool's slots in place."""

    pool: RolloutPool

    def join(self, ctx: Context, worker: Participant) -> PoolWriter:
        """See `ActorExperience`."""
        self.pool.forget(ctx.ended_before)
        slots = self.pool.memory()
        if slots is None:
            raise Stopped("all trainers have ended")
        return PoolWriter(ctx, self.pool, slots, worker.clock)


@dataclass(frozen=True)
class TrainerPool:
    """A trainer trains on copies of what is full."""

    pool: RolloutPool
    sizes: Sizes
    num_envs: int  # environments of each agent
    trainers: int

    def join(self, ctx: Context, worker: Participant) -> PoolReader:
        """See `LearnerExperience`."""
        self.pool.forget(ctx.ended_before)
        if self.pool.provides(ctx.rank):
            slots = [worker.slot(self.num_envs) for _ in range(self.sizes.slots)]
            settle(worker.task.device)  # agents fill this memory
            self.pool.provide(slots)
        slots_of_all = self.pool.memory()
        assert slots_of_all is not None, "this trainer has not ended"
        return PoolReader(ctx, self.pool, slots_of_all, worker.clock)

    def demand(self, num_envs: int) -> Demand:
        """See `LearnerExperience`."""
        columns = self.num_envs * self.sizes.slots // self.trainers  # together they hold all slots
        return Demand(batch_envs=self.num_envs * self.sizes.least, rollout_envs=columns)


class PoolWriter:
    """An agent's end."""

    def __init__(self, ctx: Context, pool: RolloutPool, slots: Sequence[Trajectory], clock: Timer) -> None:
        """`clock`: measures the time that the agent waits for a free slot, and while it is parked."""
        self._ctx, self._pool, self._slots, self._clock = ctx, pool, slots, clock
        self._handed = Handed(ctx.rank, ctx.restarts)

    @contextmanager
    def slot(self, position: int) -> Iterator[Trajectory]:
        """See `Writer`. Raises `Stopped` if all trainers have ended, or if the program is stopped while it waits."""
        with self._clock("actors_wait"):
            while (key := self._pool.lease(self._ctx.rank)) is Nothing.PARKED:
                self._ctx.sleep(PARKED)
        if isinstance(key, Nothing):
            raise Stopped("all trainers have ended")
        try:
            yield self._slots[key]
        except BaseException:
            self._pool.give_back(key)
            raise
        rollout = self._handed.next(position, self._slots[key].steps)
        self._handed.add(rollout, self._pool.put(key, rollout))

    def kept(self) -> Kept:
        """See `Writer`."""
        return self._handed.kept()

    def close(self) -> None:
        """The agent ends."""
        self._pool.leave(self._ctx.rank)


class PoolReader:
    """A trainer's end."""

    def __init__(self, ctx: Context, pool: RolloutPool, slots: Sequence[Trajectory], clock: Timer) -> None:
        """`clock`: measures the time that the trainer waits for a batch or is parked, and that of copying one."""
        self._ctx, self._pool, self._slots, self._clock = ctx, pool, slots, clock
        self._number = 0  # of the next batch
        self._keys: tuple[int, ...] = ()  # slots of the last batch
        self._rollouts: tuple[Rollout, ...] = ()  # in it, until it has been trained on

    def batch(self) -> Batch | NoBatch:
        """See `Reader`."""
        with self._clock("learner_waits"):
            taken = self._pool.take(self._ctx.rank)
            if taken is Nothing.PARKED:
                self._ctx.sleep(PARKED)
        if not isinstance(taken, Nothing):
            with self._clock("load"):
                data = Trajectory.concatenated([self._slots[key] for key in taken.keys])
            self._keys, self._rollouts, self._number = taken.keys, taken.rollouts, self._number + 1
            number = self._number - 1
            return Batch(data, data.steps, taken.position, number, taken.waiting, rollouts=taken.rollouts)
        return NoBatch.YET if taken is Nothing.PARKED else NoBatch.END

    def trained(self, batch: Batch, updated: Updated) -> None:
        """See `Reader`."""
        self._pool.trained(self._keys)
        self._rollouts = ()

    def close(self) -> None:
        """The trainer ends."""
        if left := (*self._rollouts, *self._pool.close(self._ctx.rank)):
            self._ctx.report(Left(left))
