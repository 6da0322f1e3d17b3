"""Workers that replace the loops `act` and `learn`: they compute nothing, but take virtual time. The queue, its ends,
and the broadcast are the real ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.optim import SGD

from gossamer.data import Batch, Trajectory
from gossamer.exchange import Broadcast, Exchange
from gossamer.exchange.base import Link
from gossamer.experience import Batching, QueueReader, QueueWriter, RemoteWriter, Slots, TrajectoryQueue
from gossamer.runtime import Context, Stopped
from gossamer.tools.simulate.ledger import Span, Stopwatch
from gossamer.tools.simulate.stand_in import Point, StandIn, descend


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


def act(
    ctx: Context,
    task: Workload,
    queue: TrajectoryQueue,
    exchange: Broadcast,
    *,
    num_envs: int,
    env_workers: int = 0,
    remote: bool = False,
) -> None:
    """Replaces the loop `act`: a rollout is its position in the run's budget, and the version that acted."""
    rng, watch = np.random.default_rng([task.seed, ctx.rank, ctx.restarts]), Stopwatch(ctx.now)
    model = Point()
    source, who = exchange.follow(model), (ctx.rank, ctx.restarts)
    try:
        with closing(
            RemoteWriter(ctx, queue, rollouts(1), exchange.parameters.at_least, watch)
            if remote
            else QueueWriter(queue, *who, watch)
        ) as experience:
            while (position := ctx.claim(task.rollout_length * num_envs)) is not None:
                with experience.slot(position) as slot:
                    slot.version.fill_(source.refresh(model))
                    slot.action.fill_(position)
                    with watch("act"):
                        ctx.sleep(task.rollout_seconds(rng))
                ctx.report(Acted(position, watch.take()))
    finally:
        source.leave()


def learn(
    ctx: Context,
    task: Workload,
    queue: TrajectoryQueue,
    exchange: Exchange,
    *,
    batching: Batching,
    reuse: int = 1,
    replay_share: float = 0.0,
    replay_size: int = 0,
) -> None:
    """Replaces the loop `learn`: a pass over a batch takes the time of a pass."""
    learner, watch = StandIn(Point()), Stopwatch(ctx.now)
    link = exchange.join(ctx, learner)
    try:
        slots = Slots([rollouts(batching.slots) for _ in range(batching.depth)], batching.slots)
        version = partial(link.refresh, learner.model)
        again: dict[str, Any] = {"life": ctx.restarts, "ended": ctx.ended_before}
        with closing(QueueReader(queue, slots, version=version, reuse=reuse, **again)) as experience:
            while ctx.claim(0) is not None:
                with watch("learner_waits"):
                    batch = experience.batch()
                if batch is None:
                    link.finish(lambda: descend(SGD(learner.model.parameters(), 0.0)))
                    break
                lag = update(ctx, task, batch, learner, link, watch)
                experience.trained(batch)
                positions = tuple(batch.data.action[0].tolist()) if batch.fresh else ()
                ctx.report(Learned(positions, len(batch.data.version), lag, batch.waiting, watch.take()))
    except Stopped:  # while it waited for a batch, or for other learners
        pass
    finally:
        link.leave()


def update(
    ctx: Context, task: Workload, batch: Batch, learner: StandIn, link: Link, watch: Stopwatch
) -> dict[int, int]:
    """One pass over a batch, in `updates` steps. Returns the policy lag of the steps: {optimizer steps: rollouts}."""
    lag = Counter[int]()
    opt = SGD(learner.model.parameters(), 0.0)
    for _ in range(task.updates):
        version = link.refresh(learner.model)
        lag.update(version - acted for acted in batch.data.version.tolist())
        with watch("update"):
            ctx.sleep(task.update_time / task.updates)
        with watch("average"):
            link.step(lambda: descend(opt))
    return dict(lag)


def rollouts(count: int) -> Trajectory:
    """The memory of so many rollouts, each of one environment and one step: its position is its action."""
    return Trajectory.empty(1, count, (1,), torch.uint8)
