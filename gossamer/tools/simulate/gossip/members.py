"""Members that gossip in virtual time: they compute nothing, but take the time of a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.exchange import Exchange
from gossamer.exchange.gossip.records import Traffic
from gossamer.runtime import Context
from gossamer.tools.simulate.ledger import Span
from gossamer.tools.simulate.stand_in import ELEMENTS, Point, StandIn


@dataclass(frozen=True)
class Workload:
    """Replaces a `Task`: each member follows noisy gradients to its own target. The targets are close. Members that
    begin `apart` have none: only the exchange brings them together."""

    iterations: int  # of each member
    step_time: float = 0.0  # seconds of computing for one iteration
    jitter: float = 0.0  # standard deviation of that time, relative
    early: dict[int, int] = field(default_factory=dict)  # rank -> iterations after which this member ends
    rate: float = 0.1
    seed: int = 0
    elements: int = ELEMENTS  # P
    apart: bool = False  # whether members begin about as far apart as from 0, and follow noise alone
    gpus: float = 0
    gpu: int | None = 0  # as in `Task`
    algorithm: None = None  # the wiring asks whether it learns from a replay memory


@dataclass(frozen=True)
class Iteration:
    """One iteration of one member. Times are virtual seconds."""

    number: int  # 1, 2, ..
    start: float
    worked: float  # duration of computing
    end: float  # after the exchange
    point: Tensor  # [P] the parameters at `end`
    exchange: tuple[Any, ...] = ()  # the exchange's records, in order (`exchange.gossip.records`)

    @property
    def spans(self) -> Sequence[Span]:
        return (Span("compute", self.start, self.start + self.worked),)

    @cached_property
    def traffic(self) -> tuple[Traffic, ...]:
        return tuple(part for part in self.exchange if isinstance(part, Traffic))

    @property
    def counts(self) -> Mapping[str, int]:
        """Iterations, and messages."""
        counts = Counter[str]()
        for each in self.traffic:
            counts.update(iterations=each.iterations, averaged=each.mixed, sent=each.sent)
        return counts

    @property
    def lag(self) -> Mapping[int, int]:
        """The staleness of averaged messages, in iterations (< 0: of senders that are ahead)."""
        return sum((Counter(each.staleness) for each in self.traffic), Counter[int]())

    def progress(self, before: int) -> int:
        """Iterations; a member that comes back may repeat some."""
        return max(before, self.number)


def stand_in(ctx: Context, task: Workload, policy: Any, experience: Any, exchange: Exchange, **more: Any) -> None:
    """Replaces the loop `act_and_learn`: sleep for the time of one step, then apply a gradient through the exchange."""
    rng = np.random.default_rng([task.seed, ctx.rank, ctx.restarts])
    learner = StandIn(Point(task.elements), task.rate)
    (point,) = learner.model.parameters()
    if task.apart:
        apart = np.random.default_rng([task.seed, ctx.rank, 0, 1]).normal(1, 1, task.elements)
        point.data.copy_(torch.from_numpy(apart.astype(np.float32)))
    link = exchange.join(ctx, learner, ctx.restored())
    target = torch.from_numpy(rng.normal(1, 0.1, task.elements).astype(np.float32))
    try:
        while link.refresh() < task.early.get(ctx.rank, task.iterations) and not ctx.stopped:
            start = ctx.now()
            ctx.sleep(task.step_time * max(0.1, 1 + task.jitter * rng.normal()))
            worked = ctx.now() - start
            noise = torch.from_numpy(rng.normal(0, 0.1, task.elements).astype(np.float32))
            point.grad = noise if task.apart else point.detach() - target + noise
            link.step(learner)
            done = link.refresh()
            ctx.report(Iteration(done, start, worked, ctx.now(), point.detach().clone(), tuple(link.take())))
            ctx.save(link.state_dict())
    finally:
        link.leave()
