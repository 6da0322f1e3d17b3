"""Learners that compute nothing, but take virtual time. Groups, links and clocks are the real ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.algorithms import A2C, Algorithm
from gossamer.exchange import AllReduce
from gossamer.runtime import Context
from gossamer.tools.simulate.ledger import Span, Stopwatch
from gossamer.tools.simulate.stand_in import ELEMENTS, Point, StandIn


@dataclass(frozen=True)
class Workload:
    """Replaces a `Task`: how long acting and gradients take, in virtual seconds."""

    rollout_steps: int
    act_time: float
    update_time: float
    jitter: float  # standard deviation of both, relative to them
    hosts: int
    seed: int = 0
    gpus: float = 0
    gpu: int | None = 0  # as in `Task`
    algorithm: Algorithm = field(default_factory=A2C)

    def seconds(self, mean: float, rng: np.random.Generator) -> float:
        """A lognormal time."""
        variance = math.log1p(self.jitter**2)  # of the logarithm
        return float(rng.lognormal(math.log(mean) - variance / 2, math.sqrt(variance)))


@dataclass(frozen=True)
class Iteration:
    """A rollout, a gradient and a step of one learner."""

    steps: int
    spans: Sequence[Span]
    version: int  # after the step

    @property
    def counts(self) -> Mapping[str, int]:
        """See `Record`."""
        return {"steps": self.steps, "taken": 1}

    @property
    def lag(self) -> Mapping[int, int]:
        """There is none."""
        return {}

    def progress(self, before: int) -> int:
        """Counts iterations."""
        return before + 1


def act_and_learn(ctx: Context, task: Workload, policy: Any, experience: Any, exchange: AllReduce, **more: Any) -> None:
    """Replaces the loop `act_and_learn`: an iteration acts, computes a gradient, and takes a step with the others."""
    rng, watch = np.random.default_rng([task.seed, ctx.rank, ctx.restarts]), Stopwatch(ctx.now)
    learner = StandIn(Point(task.hosts * ELEMENTS))
    link = exchange.join(ctx, learner)
    try:
        while ctx.claim(task.rollout_steps) is not None:
            for what, mean in (("act", task.act_time), ("update", task.update_time)):
                with watch(what):
                    ctx.sleep(task.seconds(mean, rng))
            learner.flat.zero_gradients()
            with watch("average"):
                link.step(learner)
            ctx.report(Iteration(task.rollout_steps, watch.take(), link.version))
    finally:
        link.leave()
