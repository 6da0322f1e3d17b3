"""A learner's end of an all-reduce.

Running statistics are parameters that change without a step. After each rollout the learners exchange the moments of
what they observed, and each includes the moments of all learners together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gossamer.data import Tree, Version
from gossamer.exchange.all_reduce.between import Between
from gossamer.exchange.all_reduce.given import (
    Contribution,
    Finished,
    Given,
    Lead,
    Mean,
    Result,
    RoundOutcome,
    Start,
    moved,
    newest,
    result_of,
    total,
)
from gossamer.exchange.all_reduce.gradients import Gradients
from gossamer.exchange.base import (
    Alone,
    Dropped,
    Exchange,
    Learning,
    Link,
    LocalStep,
    OnStep,
    Recordable,
    Stepped,
    unheard,
)
from gossamer.exchange.flat import load_local_state, local_state
from gossamer.exchange.gossip.records import Record
from gossamer.nn.networks import Normalizing
from gossamer.nn.normalization import Observed
from gossamer.runtime import Context, Stopped, ended_copies
from gossamer.system.machine import settle


@dataclass(frozen=True)
class AllReduce:
    """Configuration of gradient averaging among the learners of a host, and with `between` also between hosts. Clipping
    comes after it, in the local step, which `inner` performs, and whose version counts. A learner without batches takes
    the steps of the others, so that all stay equal."""

    gradients: Gradients  # of this host
    inner: Exchange = field(default_factory=Alone)
    between: Between | None = None

    @property
    def group(self) -> int | None:
        """See `Exchange`."""
        return 0 if self.inner.group is None else self.inner.group

    def begin(self, ctx: Context) -> None:
        """See `Exchange`."""
        self.inner.begin(ctx)

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None, on_step: OnStep = unheard) -> Link:
        """See `Exchange`. Waits for the other learners."""
        # One may have found newer parameters than those of the checkpoint, or be in no checkpoint
        self.gradients.forget(ended_copies(ctx))
        return AllReduceLink(ctx, self, learner, state or {}, on_step)


class AllReduceLink:
    """One learner's link, see `AllReduce`."""

    def __init__(self, ctx: Context, parts: AllReduce, learner: Learning, state: Tree, on_step: OnStep) -> None:
        self._ctx, self._gradients, self._learner, self._on_step = ctx, parts.gradients, learner, on_step
        self._flat, self._exchange_inside = learner.flat, parts.inner
        self._between = None if parts.between is None else parts.between.join(ctx)
        self._round = -1
        self._outcome: RoundOutcome | None = None  # of the last round; kept until the GPU is done with it
        self._local: LocalStep | None = None  # of the last step
        mine = self._start(int(state.get("iteration", 0)))
        found = self._exchange(mine)
        assert isinstance(found, Start), "all join first"
        if found is not mine:
            self._take_over(found)
        self._inner = self._join_inside(state.get("inner", {}), found.version)
        if isinstance(learner.model, Normalizing) and learner.model.observes:
            learner.model.share = self._share

    @property
    def version(self) -> Version:
        """See `Link`."""
        return self._inner.version

    @property
    def recordable(self) -> Recordable:
        """See `Link`. Gradients are averaged before the step."""
        return Recordable.NOTHING if self._inner.recordable is Recordable.NOTHING else Recordable.PASS

    def step(self, local: LocalStep) -> Stepped:
        """See `Link`."""
        self._local, mine = local, Contribution(self._flat.gradient(), self._learner.rate)
        start = time.perf_counter()
        result = self._exchange(mine)
        waited = time.perf_counter() - start
        if isinstance(result, Start):
            self._adopt(result)
            return Stepped(local.gradient().norm, finite=True, waited=waited, dropped=Dropped.REPLACED)
        assert isinstance(result, Mean), "a gradient was given"
        return replace(self._apply(result, local), waited=waited)

    def finish(self, local: LocalStep) -> None:
        """See `Link`."""
        while not isinstance(result := self._exchange(None), Finished):
            self._follow(result, local)

    def refresh(self) -> Version:
        """See `Link`."""
        return self.version

    def take(self) -> tuple[Record, ...]:
        """See `Link`."""
        return self._inner.take()

    def leave(self) -> None:
        """See `Link`."""
        if self._gradients.leave(self._ctx.rank) and self._between is not None:
            self._between.leave()
        self._inner.leave()

    def state_dict(self) -> Tree:
        """See `Link`."""
        return {"iteration": self.version, "inner": self._inner.state_dict()}

    def _exchange(self, mine: Given | None) -> Result:
        """Take part in the next round. Raises `Stopped` if another learner was stopped in it."""
        self._round += 1
        settle(self._flat.vector.device)
        rank = self._ctx.rank
        found = self._gradients.exchange(rank, self._round, mine)
        if isinstance(found, Lead):
            found = self._lead(found.given)
            settle(self._flat.vector.device)  # the others read it on streams of their own
            if not self._gradients.publish(rank, self._round, found):
                raise Stopped("another learner was stopped")
        self._outcome = found
        return found.result

    def _lead(self, given: Sequence[Given]) -> RoundOutcome:
        """What follows from what the learners of this host give."""
        starts = [each for each in given if isinstance(each, Start)]
        if starts:
            start = newest(starts)
            return RoundOutcome(start) if self._between is None else self._between.begin(start)
        sums = total(given, self._flat.vector.device)
        if self._between is not None:
            assert self._outcome is not None, "the first round has one"
            assert self._outcome.place is not None, "there are other hosts"
            return self._between.exchange(sums, self._outcome.place, lambda: self._start(self.version))
        learners = max(1, sums.learners)
        mean = None if sums.vector is None else sums.vector.div_(learners)
        return RoundOutcome(result_of(mean, sums.learners, sums.rate / learners, sums.observed))

    def _share(self, observed: Observed) -> None:
        """Include what all learners have observed. Meanwhile take the steps of those that have more of them to take
        with their batch: statistics change between batches only. A state of other hosts has theirs already."""
        while not self._follow(result := self._exchange(observed), self._local) and not isinstance(result, Start):
            pass

    def _follow(self, result: Result, local: LocalStep | None) -> bool:
        """Do what the others do: take their step, continue from their state, or include what all have observed. Returns
        whether it was the last."""
        if isinstance(result, Start):
            self._adopt(result)
            return False
        if isinstance(result, Mean):
            assert local is not None, "what is observed first is observed before the first step"
            if self._local is None:  # no batch yet, and so no gradients that those of the others could replace
                self._flat.zero_gradients()
            self._apply(result, local)
            return False
        assert isinstance(result, Observed), "this learner has given something, or has asked what others give"
        model = self._learner.model
        assert isinstance(model, Normalizing), "only these observe"
        model.include(moved(result, self._flat.vector.device))
        return True

    def _apply(self, mean: Mean, local: LocalStep) -> Stepped:
        """Take the step along the mean gradient, at the mean learning rate."""
        self._flat.set_gradient(mean.vector)
        self._learner.rate = mean.rate
        stepped = self._inner.step(local)
        if stepped.finite:
            self._on_step()
        return stepped

    def _start(self, version: Version) -> Start:
        """The state of this version to continue from, a copy."""
        learner = self._learner
        return Start(self._flat.vector.clone(), version, learner.optimizer_state(), local_state(learner.model))

    def _take_over(self, start: Start) -> None:
        """Continue from a state."""
        self._flat.swap(start.parameters.to(self._flat.vector.device, copy=True))
        self._learner.load_optimizer(start.optimizer)
        load_local_state(self._learner.model, start.local)

    def _adopt(self, start: Start) -> None:
        """Continue from the state of other hosts, within a run."""
        self._take_over(start)
        self._inner.leave()
        self._inner = self._join_inside({}, start.version)
        self._on_step()

    def _join_inside(self, state: Tree, version: Version) -> Link:
        return self._exchange_inside.join(self._ctx, self._learner, {**state, "iteration": version})
