"""Experience through a queue: the configuration of its actors' ends and of its learner's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from gossamer.data import Stamp
from gossamer.experience.base import Demand, Participant
from gossamer.experience.queue.ends import QueueReader, QueueWriter, RemoteWriter
from gossamer.experience.queue.loading import NextBatch
from gossamer.experience.queue.queue import Batching, TrajectoryQueue
from gossamer.experience.queue.replay import Replay
from gossamer.experience.queue.slots import Slots
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

    def join(self, ctx: Context, worker: Participant) -> RemoteWriter:
        """See `ActorExperience`."""
        slot = worker.slot(worker.num_envs)
        return RemoteWriter(ctx, self.queue, slot, self.copy.at_least, worker.clock)


@dataclass(frozen=True)
class Replaying:
    """Old trajectories that are added to each new batch."""

    share: float = 0.0  # fraction of them in a batch; 0: none
    size: int = 0  # newest trajectories that are kept

    def memory(self, task: Task, rank: int) -> Replay | None:
        """The memory of a learner; None if nothing is replayed. It draws on the CPU, wherever the trajectories are."""
        if not self.share:
            return None
        return Replay(self.share, self.size, torch.Generator().manual_seed(task.stream("replay", rank)))


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
            replay=None if ahead else self.replaying.memory(worker.task, ctx.rank),  # else the loader has it
            next_batch=self.next_batch,
            report=ctx.report,
        )

    def demand(self, num_envs: int) -> Demand:
        """See `LearnerExperience`."""
        columns = self.batching.num_envs * self.batching.slots
        return Demand(
            batch_envs=columns,
            rollout_envs=columns * self.batching.depth,
            passes=self.reuse / (1 - self.replaying.share),
            depth=self.batching.depth,
            replayed=self.replaying.size if self.replaying.share else 0,
        )
