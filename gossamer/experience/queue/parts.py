"""Experience through a queue: the configuration of its actors' ends and of its learner's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from gossamer.data import Stamp
from gossamer.experience.base import Demand, Participant
from gossamer.experience.queue.loading import NextBatch
from gossamer.experience.queue.old import OldOnHosts, OldRollouts
from gossamer.experience.queue.queue import Batching, TrajectoryQueue
from gossamer.experience.queue.reader import QueueReader
from gossamer.experience.queue.replay import Mixing, Replay
from gossamer.experience.queue.slots import Slots
from gossamer.experience.queue.writers import QueueWriter, RemoteWriter
from gossamer.experience.replay.shard import ReplayShard
from gossamer.runtime import Context
from gossamer.system.machine import settle
from gossamer.task import Task


class Copied(Protocol):
    """The copy of a learner's parameters on an actor's host."""

    def at_least(self, stamp: Stamp) -> bool:
        """Wait until the copy is so new; whether newer ones may follow."""


@dataclass(frozen=True)
class ActorQueue:
    """Actors on the learner's host fill the queue's slots in place."""

    queue: TrajectoryQueue

    def join(self, ctx: Context, worker: Participant) -> QueueWriter:
        """See `ActorExperience`."""
        return QueueWriter(self.queue, ctx.rank, ctx.restarts, worker.clock)


@dataclass(frozen=True)
class RemoteActorQueue:
    """Actors on another host fill a slot of their own and send its content to the queue."""

    queue: TrajectoryQueue
    copy: Copied  # of the parameters that they act with
    memory: ReplayShard | None = None  # of old trajectories, on their host; None: there is none

    def join(self, ctx: Context, worker: Participant) -> RemoteWriter:
        """See `ActorExperience`."""
        slot = worker.slot(worker.num_envs)
        old = None if self.memory is None else OldRollouts(ctx, self.memory, worker.spec, slot.steps)
        return RemoteWriter(ctx, self.queue, slot, self.copy.at_least, worker.clock, old)


@dataclass(frozen=True)
class Replaying:
    """Old trajectories that are added to each new batch."""

    share: float = 0.0  # fraction of them in a batch; 0: none
    size: int = 0  # newest trajectories that are kept, by the learner or by each host of actors
    hosts: Sequence[ReplayShard] | None = None  # memories on the hosts of actors; None: the learner keeps them

    def memory(self, ctx: Context, task: Task) -> Mixing | None:
        """What a worker that assembles batches draws from, with a generator of the CPU; None if nothing is replayed."""
        if not self.share:
            return None
        rng = torch.Generator().manual_seed(task.stream("replay", ctx.rank))
        if self.hosts is not None:
            return OldOnHosts(ctx, self.share, self.hosts, rng)
        return Replay(self.share, self.size, rng)


@dataclass(frozen=True)
class LearnerQueue:
    """A learner trains on the queue's batches, and provides the memory that actors of its host fill."""

    queue: TrajectoryQueue
    batching: Batching
    reuse: int = 1  # passes over each batch
    replaying: Replaying = Replaying()
    next_batch: NextBatch | None = None  # where the worker `load` hands over batches; None: the learner assembles them

    def join(self, ctx: Context, worker: Participant) -> QueueReader:
        """See `LearnerExperience`."""
        batching, ahead = self.batching, self.next_batch is not None
        batches = [worker.slot(batching.slots * batching.num_envs) for _ in range(batching.depth)]
        slots = Slots(batches, batching.slots)
        settle(worker.task.device)  # other workers fill this memory
        return QueueReader(
            self.queue,
            slots,
            version=worker.version,
            life=ctx.restarts,
            ended=ctx.ended_before,
            clock=worker.clock,
            reuse=self.reuse,
            replay=None if ahead else self.replaying.memory(ctx, worker.task),  # else the loader has it
            next_batch=self.next_batch,
            report=ctx.report,
        )

    def demand(self, num_envs: int) -> Demand:
        """See `LearnerExperience`."""
        columns = self.batching.num_envs * self.batching.slots
        kept = self.replaying.size if self.replaying.share else 0
        return Demand(
            batch_envs=columns,
            rollout_envs=columns * self.batching.depth,
            passes=self.reuse / (1 - self.replaying.share),
            depth=self.batching.depth,
            replayed=0 if self.replaying.hosts is not None else kept,
            elsewhere=kept if self.replaying.hosts is not None else 0,
        )
