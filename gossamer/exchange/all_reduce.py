"""All-reduce: learners average their gradients before each step, so that they keep equal parameters.

Running statistics are parameters that change without a step. After each rollout the learners exchange the moments of
what they observed, and each includes the moments of all learners together.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor

from gossamer.data import Tree, Version
from gossamer.exchange.base import Alone, Exchange, Learning, Link, LocalStep, OnStep, Stepped, unheard
from gossamer.exchange.gossip.records import Record
from gossamer.nn.networks import Normalizing
from gossamer.nn.normalization import Observed, pooled
from gossamer.runtime import Context, Wait, ended_copies, waits
from gossamer.system.machine import settle


@dataclass(frozen=True)
class Contribution:
    """What a learner gives for a step."""

    vector: Tensor  # [P]  its gradient, not clipped
    rate: float  # learning rate


@dataclass(frozen=True)
class Start:
    """What a learner would continue from. All of them continue from the newest; of several with that version, from the
    first whose optimizer has taken steps."""

    parameters: Tensor  # [P]
    version: Version
    optimizer: Tree = field(default_factory=dict)  # see `Learning.optimizer_state`


Given: TypeAlias = Start | Contribution | Observed  # `Start` in the first round; `Observed` between steps


class Gradients:
    """Service: collects what each learner gives in each round. Learners of one host share tensors by reference."""

    def __init__(self, learners: int) -> None:
        self._active = set(range(learners))  # those that still have batches to learn from
        self._learners = set(range(learners))
        self._given: dict[int, dict[int, Given]] = {}  # round -> learner -> what it gave
        self._seen: dict[int, set[int]] = {}  # round -> learners that have the answer

    @waits
    def exchange(self, rank: int, number: int, given: Given | None) -> Wait[tuple[Given, ...]]:
        """Give something in the round `number`, and return what all learners gave, in the order of their ranks. Waits
        until every learner that still has batches has given something. None: this learner has no more batches. The
        result is empty when no learner has any. A learner that is stopped while it waits has given nothing: then no
        other one completes the round, and all stay equal."""
        if given is None:
            self._active.discard(rank)
        else:
            self._given.setdefault(number, {})[rank] = given
        try:
            while self._active and not self._active <= self._given.get(number, {}).keys():
                yield
        except GeneratorExit:
            self._given.get(number, {}).pop(rank, None)
            raise
        found = self._given.get(number, {})
        seen = self._seen.setdefault(number, set())
        seen.add(rank)
        if seen >= self._learners:
            self._given.pop(number, None)
            del self._seen[number]
        return tuple(found[each] for each in sorted(found))

    def forget(self, ranks: Collection[int]) -> None:
        """These learners had ended before this host restarted."""
        self._active -= set(ranks)
        self._learners -= set(ranks)

    def leave(self, rank: int) -> None:
        """The learner ends: after it said that it has no more batches, or because the program is stopped."""
        self._learners.discard(rank)


@dataclass(frozen=True)
class AllReduce:
    """Configuration of gradient averaging among the learners of one host. Clipping comes after it, in the local step,
    which `inner` performs. A learner without batches takes the steps of the others, so that all stay equal."""

    gradients: Gradients
    inner: Exchange = field(default_factory=Alone)

    @property
    def equal(self) -> bool:
        return True

    def begin(self, ctx: Context) -> None:
        self.inner.begin(ctx)

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None, on_step: OnStep = unheard) -> Link:
        state = state or {}
        version = int(state.get("iteration", 0))
        # One may have found newer parameters than those of the checkpoint, or be in no checkpoint
        self.gradients.forget(ended_copies(ctx))
        mine = Start(learner.flat.vector.clone(), version, learner.optimizer_state())
        settle(mine.parameters.device)
        every = self.gradients.exchange(ctx.rank, 0, mine)
        starts = [each for each in every if isinstance(each, Start)]
        newest = max(starts, key=lambda each: (each.version, bool(each.optimizer)))
        learner.flat.swap(newest.parameters.clone())
        if newest is not mine:
            learner.load_optimizer(newest.optimizer)
        inner = self.inner.join(ctx, learner, {**state.get("inner", {}), "iteration": newest.version})
        return AllReduceLink(self.gradients, ctx.rank, learner, inner, newest.version, on_step)


class AllReduceLink:
    """One learner's link, see `AllReduce`."""

    def __init__(
        self, gradients: Gradients, rank: int, learner: Learning, inner: Link, version: Version, on_step: OnStep
    ) -> None:
        self._gradients, self._rank, self._learner, self._inner = gradients, rank, learner, inner
        self._flat, self.version, self._on_step = learner.flat, version, on_step
        self._round = 0  # the one of `Start`
        self._local: LocalStep | None = None  # of the last step
        if isinstance(learner.model, Normalizing) and learner.model.observes:
            learner.model.share = self._share

    def step(self, local: LocalStep) -> Stepped:
        self._local, mine = local, Contribution(self._flat.gradient(), self._learner.rate)
        start = time.perf_counter()
        every = self._exchange(mine)
        waited = time.perf_counter() - start
        return replace(self._apply(every, local), waited=waited)

    def finish(self, local: LocalStep) -> None:
        while every := self._exchange(None):
            self._follow(every, local)

    def refresh(self) -> Version:
        return self.version

    def take(self) -> tuple[Record, ...]:
        return self._inner.take()

    def leave(self) -> None:
        self._gradients.leave(self._rank)
        self._inner.leave()

    def state_dict(self) -> Tree:
        return {"iteration": self.version, "inner": self._inner.state_dict()}

    def _exchange(self, mine: Given | None) -> tuple[Given, ...]:
        """Take part in the next round."""
        self._round += 1
        settle(self._flat.vector.device)
        return self._gradients.exchange(self._rank, self._round, mine)

    def _share(self, observed: Observed) -> None:
        """Include what all learners have observed. Meanwhile take the steps of those that have more of them to take
        with their batch: statistics change between batches only."""
        while not self._follow(self._exchange(observed), self._local):
            pass

    def _follow(self, every: Sequence[Given], local: LocalStep | None) -> bool:
        """Do what the others do: take their step, or include what all have observed. Returns whether it was the
        latter."""
        if any(isinstance(each, Contribution) for each in every):
            assert local is not None, "what is observed first is observed before the first step"
            if self._local is None:  # no batch yet, and so no gradients that those of the others could replace
                self._flat.zero_gradients()
            self._apply(every, local)
            return False
        observed = [each for each in every if isinstance(each, Observed)]
        samples = tuple(map(pooled, zip(*(each.samples for each in observed), strict=True)))
        model = self._learner.model
        assert isinstance(model, Normalizing), "only these observe"
        model.include(Observed(samples, observed[0].first))
        return True

    def _apply(self, every: Sequence[Given], local: LocalStep) -> Stepped:
        """Take the step along the mean gradient, at the mean learning rate."""
        given = [each for each in every if isinstance(each, Contribution)]
        device = self._flat.vector.device
        self._flat.set_gradient(torch.stack([each.vector.to(device) for each in given]).mean(0))
        self._learner.rate = sum(each.rate for each in given) / len(given)
        stepped = self._inner.step(local)
        if stepped.finite:
            self.version += 1
            self._on_step()
        return stepped
