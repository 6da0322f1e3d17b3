"""Workers that replace the loops `act` and `learn`: they compute nothing, but take virtual time. The queue, its ends,
and the broadcast are the real ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gossamer.algorithms import Algorithm, VTrace
from gossamer.data import Batch, Trajectory, Updated, Version
from gossamer.exchange import Exchange, Follower, Link
from gossamer.experience import ActorExperience, LearnerQueue, Timer
from gossamer.experience.base import untimed
from gossamer.loops import Envs
from gossamer.policy import Replica
from gossamer.runtime import Context, Stopped
from gossamer.spaces import Discrete, Spec
from gossamer.tools.simulate.ledger import Span, Stopwatch
from gossamer.tools.simulate.stand_in import Point, StandIn

SPEC = Spec((1,), np.dtype(np.uint8), Discrete(2))  # of environments that are not there


@dataclass(frozen=True)
class Workload:
    """Replaces a `Task`: how long acting and learning take, in virtual seconds."""

    rollout_length: int
    step_time: float  # of all environments of an actor together
    jitter: float  # standard deviation of that time, relative to it
    update_time: float  # one pass over a batch
    updates: int  # optimizer steps of a pass
    seed: int = 0
    device: str = "cpu"  # the wiring replaces it for actors of other hosts
    gpus: float = 0
    gpu: int | None = 0  # as in `Task`
    algorithm: Algorithm = field(default_factory=VTrace)  # one that a queue suits

    def stream(self, purpose: str, rank: int = 0) -> int:
        """See `Task`."""
        return self.seed + rank

    def rollout_seconds(self, rng: np.random.Generator) -> float:
        """The duration of a rollout: the sum of its steps, each lognormal with mean `step_time`."""
        variance = math.log1p(self.jitter**2)  # of the logarithm
        mean = math.log(self.step_time) - variance / 2
        return float(rng.lognormal(mean, math.sqrt(variance), self.rollout_length).sum())


@dataclass(frozen=True)
class Acted:
    """A rollout that has been handed over."""

    position: int  # in the run's budget
    spans: Sequence[Span]  # of the actor, since its last report
    lag: Mapping[int, int] = field(default_factory=dict, init=False)

    @property
    def counts(self) -> Mapping[str, int]:
        return {"acted": 1}

    def progress(self, before: int) -> int:
        return before


@dataclass(frozen=True)
class Learned:
    """A pass over a batch."""

    positions: Sequence[int]  # of its rollouts, if they are learned from for the first time
    rollouts: int
    lag: Mapping[int, int]  # policy lag in optimizer steps -> rollouts, of each optimizer step
    waiting: int  # further batches that are full
    spans: Sequence[Span]  # of the learner, since its last report

    @property
    def counts(self) -> Mapping[str, int]:
        """`learned`: rollouts, for the first time. `waiting`: the queue's length, summed over new batches."""
        if not self.positions:
            return {"reused": self.rollouts}
        return {"learned": self.rollouts, "batches": 1, "waiting": self.waiting}

    def progress(self, before: int) -> int:
        """Counts new batches."""
        return before + bool(self.positions)


@dataclass(frozen=True)
class Worker:
    """What an end of the queue needs of a worker; see `Participant`. All environments of an actor are one column."""

    task: Any
    clock: Timer
    num_envs: int  # of an actor
    link: Link | None = None  # of a learner
    spec: Spec = SPEC

    def slot(self, num_envs: int) -> Trajectory:
        """The memory of the rollouts of so many environments: a position is the action of one step."""
        return Trajectory.empty(1, num_envs // self.num_envs, (1,), torch.uint8)

    def version(self) -> Version:
        """Of the learner's parameters."""
        return self.link.refresh() if self.link else 0


def act(ctx: Context, task: Workload, policy: Replica, experience: ActorExperience, *, envs: Envs) -> None:
    """Replaces the loop `act`: a rollout is its position in the run's budget, and the version that acted."""
    rng, watch = np.random.default_rng([task.seed, ctx.rank, ctx.restarts]), Stopwatch(ctx.now)
    assert policy.parameters is not None, "actors follow a learner"
    source = Follower(policy.parameters, Point())
    try:
        with closing(experience.join(ctx, Worker(task, watch, envs.count))) as writer:
            while (position := ctx.claim(task.rollout_length * envs.count)) is not None:
                with writer.slot(position) as slot:
                    slot.version.fill_(source.refresh())
                    slot.action.fill_(position)
                    with watch("act"):
                        ctx.sleep(task.rollout_seconds(rng))
                ctx.report(Acted(position, watch.take()))
    finally:
        source.leave()


def learn(ctx: Context, task: Workload, experience: LearnerQueue, exchange: Exchange) -> None:
    """Replaces the loop `learn`: a pass over a batch takes the time of a pass."""
    learner, watch = StandIn(Point()), Stopwatch(ctx.now)
    link = exchange.join(ctx, learner)
    try:
        with closing(experience.join(ctx, Worker(task, untimed, experience.batching.num_envs, link))) as reader:
            while ctx.claim(0) is not None:
                with watch("learner_waits"):
                    batch = reader.batch()
                if not isinstance(batch, Batch):
                    link.finish(learner)
                    break
                lag = update(ctx, task, batch, learner, link, watch)
                reader.trained(batch, Updated({}))
                positions = tuple(batch.data.action[0].tolist()) if batch.fresh else ()
                waiting = batch.waiting or 0
                ctx.report(Learned(positions, batch.data.num_envs, lag, waiting, watch.take()))
    except Stopped:  # while it waited for a batch, or for other learners
        pass
    finally:
        link.leave()


def update(
    ctx: Context, task: Workload, batch: Batch, learner: StandIn, link: Link, watch: Stopwatch
) -> dict[int, int]:
    """One pass over a batch, in `updates` steps. Returns the policy lag of the steps: {optimizer steps: rollouts}."""
    lag = Counter[int]()
    for _ in range(task.updates):
        version = link.refresh()
        lag.update(version - acted for acted in batch.data.version[0].tolist())
        with watch("update"):
            ctx.sleep(task.update_time / task.updates)
        with watch("average"):
            link.step(learner)
    return dict(lag)
