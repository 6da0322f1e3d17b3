"""A replay memory that several workers share: the configuration of its actors' ends and of its learners'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import ReplayPlan
from gossamer.experience.base import Demand, Participant
from gossamer.experience.replay.limiter import Limiter
from gossamer.experience.replay.reader import ReplayReader
from gossamer.experience.replay.shard import ReplayShard
from gossamer.experience.replay.writer import ReplayWriter
from gossamer.runtime import Context


@dataclass(frozen=True)
class ActorReplay:
    """Rollouts go to a shard."""

    limiter: Limiter
    shard: ReplayShard
    plan: ReplayPlan

    def join(self, ctx: Context, worker: Participant) -> ReplayWriter:
        """See `ActorExperience`."""
        slot = worker.slot(worker.num_envs)
        if self.plan.priority is not None:
            slot = slot.with_chosen()
        return ReplayWriter(ctx, self.limiter, self.shard, slot, spec=worker.spec, clock=worker.clock)


@dataclass(frozen=True)
class LearnerReplay:
    """Batches of windows are drawn from all shards."""

    limiter: Limiter
    shards: Sequence[ReplayShard]
    plan: ReplayPlan
    learners: int = 1  # that draw from them

    def join(self, ctx: Context, worker: Participant) -> ReplayReader:
        """See `LearnerExperience`."""
        rng = torch.Generator().manual_seed(worker.task.stream(f"replay {worker.version()}", ctx.rank))
        return ReplayReader(
            ctx, self.limiter, self.shards, self.plan, rng, device=worker.task.device, clock=worker.clock
        )

    def demand(self, num_envs: int) -> Demand:
        """See `LearnerExperience`. The memories count as parts of the learners' demands."""
        return Demand(
            batch_envs=self.plan.batch_size,
            rollout_envs=0,
            passes=self.plan.samples_per_insert / self.learners,
            window=self.plan.window,
            sequences=self.plan.sequences,
            stored=self.plan.capacity // self.learners,
            shard=self.plan.capacity // len(self.shards),
            capacity=self.plan.capacity,
            starts=self.plan.learning_starts,
            saved=self.plan.saved,
            folder=self.plan.folder,
        )
