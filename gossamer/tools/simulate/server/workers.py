"""Bundles that compute nothing, but take virtual time. Shards, the links to them and their clock are the real ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch.optim import SGD

from gossamer.algorithms import DQN, Algorithm
from gossamer.data import Array, Version
from gossamer.exchange import ParameterShard, Server
from gossamer.exchange.server.shard import Pulled, Pushed
from gossamer.runtime import Context, Method
from gossamer.task import Optimization
from gossamer.tools.simulate.ledger import Span, Stopwatch
from gossamer.tools.simulate.stand_in import ELEMENTS, Point, StandIn


@dataclass(frozen=True)
class Workload:
    """Replaces a `Task`: how long acting and gradients take, in virtual seconds."""

    rollout_steps: int
    act_time: float
    update_time: float
    jitter: float  # standard deviation of both, relative to them
    shards: int
    starts: float  # all bundles start within this time
    seed: int = 0
    gpus: float = 0
    algorithm: Algorithm = field(default_factory=DQN)  # one with a replay memory
    optimization: Optimization = field(default_factory=lambda: Optimization(SGD, 0.0, 0))

    def seconds(self, mean: float, rng: np.random.Generator) -> float:
        """A lognormal time."""
        variance = math.log1p(self.jitter**2)  # of the logarithm
        return float(rng.lognormal(math.log(mean) - variance / 2, math.sqrt(variance)))


@dataclass(frozen=True)
class Iteration:
    """A rollout and a gradient of one bundle. What shards did with the parts of the gradient counts for each shard."""

    steps: int
    spans: Sequence[Span]  # of the bundle, since its last report
    pulled: int  # parts whose parameters had changed
    applied: int  # parts
    lag: Mapping[int, int]  # updates between the parameters of a part and those that it met -> parts

    @property
    def counts(self) -> Mapping[str, int]:
        """`pushed`: parts of gradients that reached their shard."""
        pushed = sum(self.lag.values())
        return {"steps": self.steps, "pulled": self.pulled, "pushed": pushed, "applied": self.applied}

    def progress(self, before: int) -> int:
        """Counts iterations."""
        return before + 1


@dataclass
class Seen:
    """What the shards have answered to one bundle, since its last report."""

    pulled: int = 0
    applied: int = 0
    lag: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Watched:
    """A shard as a bundle's link calls it. Keeps what it answers."""

    shard: ParameterShard
    seen: Seen

    @property
    def pull(self) -> Method:
        return noted(self.shard.pull, self._pulled)

    @property
    def push(self) -> Method:
        return noted(self.shard.push, self._pushed)

    def _pulled(self, pulled: Pulled | None) -> None:
        self.seen.pulled += pulled is not None

    def _pushed(self, pushed: Pushed) -> None:
        self.seen.applied += pushed.applied
        self.seen.lag[max(0, pushed.staleness)] += 1  # negative: of updates that a crash has lost

    def offer(self, parameters: Array, version: Version, buffers: Mapping[str, Array]) -> None:
        self.shard.offer(parameters, version, buffers)

    def leave(self, learner: int) -> None:
        self.shard.leave(learner)


def noted(method: Any, note: Callable[[Any], None]) -> Method:
    """A method of a handle, whose answers `note` gets."""

    def start(*args: Any) -> Callable[[], Any]:
        wait = method.start(*args)

        def answer() -> Any:
            found = wait()
            note(found)
            return found

        return answer

    return Method(lambda *args: start(*args)(), start)


def act_and_learn(ctx: Context, task: Workload, policy: Any, experience: Any, exchange: Server, **more: Any) -> None:
    """Replaces the loop `act_and_learn`: an iteration pulls, acts, pulls, computes a gradient, and pushes it."""
    rng, watch, seen = np.random.default_rng([task.seed, ctx.rank, ctx.restarts]), Stopwatch(ctx.now), Seen()
    learner = StandIn(Point(task.shards * ELEMENTS))
    shards: Any = tuple(Watched(shard, seen) for shard in exchange.shards)
    ctx.sleep(rng.uniform(0, task.starts))
    link = replace(exchange, shards=shards).join(ctx, learner)
    try:
        while ctx.claim(task.rollout_steps) is not None:
            seen.pulled, seen.applied, seen.lag = 0, 0, Counter()
            for what, mean in (("act", task.act_time), ("update", task.update_time)):
                with watch("pull"):
                    link.refresh()
                with watch(what):
                    ctx.sleep(task.seconds(mean, rng))
            with watch("push"):
                link.step(learner)
            ctx.report(Iteration(task.rollout_steps, watch.take(), seen.pulled, seen.applied, seen.lag))
    finally:
        link.leave()
