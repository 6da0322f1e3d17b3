"""All-reduce: learners average their gradients before each step, so that they keep equal parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gossamer.data import Tree, Version
from gossamer.exchange.base import Alone, Exchange, Learning, Link, LocalStep, Stepped
from gossamer.exchange.gossip.records import Record
from gossamer.program import Context, Wait, waits


@dataclass(frozen=True)
class Given:
    """What a learner gives for a step."""

    gradient: Tensor  # [P]
    rate: float  # learning rate


class Gradients:
    """Service: collects one gradient of each learner for each step. Learners of one host share them by reference."""

    def __init__(self, learners: int) -> None:
        self._active = set(range(learners))  # those that still have batches to learn from
        self._learners = set(range(learners))
        self._given: dict[int, dict[int, Given]] = {}  # step -> learner -> what it gave
        self._seen: dict[int, set[int]] = {}  # step -> learners that have the answer

    @waits
    def exchange(self, rank: int, step: int, given: Given | None) -> Wait[tuple[Given, ...]]:
        """Give a gradient, and return those of all learners, in the order of their ranks. Waits until every learner
        that still has batches has given its own for this step. None: this learner has no more batches. The result is
        empty when no learner has any."""
        if given is None:
            self._active.discard(rank)
        else:
            self._given.setdefault(step, {})[rank] = given
        while self._active and not self._active <= self._given.get(step, {}).keys():
            yield
        found = self._given.get(step, {})
        seen = self._seen.setdefault(step, set())
        seen.add(rank)
        if seen >= self._learners:
            self._given.pop(step, None)
            del self._seen[step]
        return tuple(found[each] for each in sorted(found))

    def leave(self, rank: int) -> None:
        """The learner ends. The others continue without it."""
        self._active.discard(rank)
        self._learners.discard(rank)


@dataclass(frozen=True)
class AllReduce:
    """Configuration of gradient averaging among the learners of one host. Clipping comes after it, in the local step,
    which `inner` performs. A learner without batches takes the steps of the others, so that all stay equal."""

    gradients: Gradients
    inner: Exchange = field(default_factory=Alone)

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None) -> Link:
        state = state or {}
        if ctx.restarts:  # the first learner may have found newer parameters than those of the checkpoint
            mine = Given(learner.flat.vector.clone(), 0.0)
            first, *_ = self.gradients.exchange(ctx.rank, -1, mine)
            learner.flat.swap(first.gradient.clone())
        inner = self.inner.join(ctx, learner, state.get("inner"))
        return AllReduceLink(self.gradients, ctx.rank, learner, inner, int(state.get("iteration", 0)))


class AllReduceLink:
    """One learner's link, see `AllReduce`."""

    def __init__(self, gradients: Gradients, rank: int, learner: Learning, inner: Link, version: Version) -> None:
        self._gradients, self._rank, self._learner, self._inner = gradients, rank, learner, inner
        self._flat, self.version = learner.flat, version

    def step(self, local: LocalStep) -> Stepped:
        mine = Given(self._flat.gradient(), self._learner.rate)
        return self._apply(self._gradients.exchange(self._rank, self.version, mine), local)

    def finish(self, local: LocalStep) -> None:
        while every := self._gradients.exchange(self._rank, self.version, None):
            self._apply(every, local)

    def refresh(self, model: nn.Module) -> Version:
        return self.version

    def take(self) -> tuple[Record, ...]:
        return self._inner.take()

    def leave(self) -> None:
        self._gradients.leave(self._rank)
        self._inner.leave()

    def state_dict(self) -> Tree:
        return {"iteration": self.version, "inner": self._inner.state_dict()}

    def _apply(self, every: Sequence[Given], local: LocalStep) -> Stepped:
        """Take the step along the mean gradient, at the mean learning rate."""
        device = self._flat.vector.device
        self._flat.set_gradient(torch.stack([each.gradient.to(device) for each in every]).mean(0))
        self._learner.rate = sum(each.rate for each in every) / len(every)
        stepped = self._inner.step(local)
        self.version += stepped.finite
        return stepped
