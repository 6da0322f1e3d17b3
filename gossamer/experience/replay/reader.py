"""A learner's end of a replay memory that several workers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms.base import ReplayPlan
from gossamer.data import Array, Batch, NoBatch, Rollout, Trajectory, Updated
from gossamer.experience.base import Timer
from gossamer.experience.replay.limiter import Limiter
from gossamer.experience.replay.shard import Amount, Learned, ReplayShard, Sample
from gossamer.experience.replay.store import importance
from gossamer.runtime import RETRY, Context, Reaching, Stopped, Unreachable, together
from gossamer.task import Left


def split(count: int, mass: Tensor, rng: torch.Generator) -> Array:
    """How many of `count` windows are drawn from each of some shards, by chance in proportion to their mass [S]."""
    chosen = torch.multinomial(mass, count, replacement=True, generator=rng)
    parts: Array = torch.bincount(chosen, minlength=len(mass)).numpy()
    return parts


class ReplayReader:
    """A learner's end: draws from all shards, from each in proportion to its mass as of the last call to it."""

    def __init__(
        self,
        ctx: Context,
        limiter: Limiter,
        shards: Sequence[ReplayShard],
        plan: ReplayPlan,
        rng: torch.Generator,
        *,
        device: str,
        clock: Timer,
    ) -> None:
        """`rng`: of the CPU; `device`: where batches are needed; `clock`: measures the time that the learner waits for
        actors, and that of drawing."""
        self._ctx, self._limiter, self._shards, self._plan = ctx, limiter, shards, plan
        self._reach = Reaching(ctx)
        self._rng, self._device, self._clock = rng, device, clock
        self._amounts: list[Amount] = [Amount(0.0, 0)] * len(shards)
        self._asked = [-RETRY] * len(shards)  # seconds, of the last call to a shard that had nothing
        self._samples: list[tuple[int, Sample]] = []  # of the last batch: shard and sample
        self._learned = [list[Learned]() for _ in shards]  # priorities that go to the shard with the next call
        self._number = 0  # of the last batch, in this life of the learner
        self._rollouts: tuple[Rollout, ...] = ()  # new ones since the batch before the last one, until it is trained on

    def batch(self) -> Batch | NoBatch:
        """See `Reader`. Raises `Stopped` if the limiter's host does not answer for `GONE` seconds, or if the
        program is stopped while no shard has anything."""
        with self._clock("learner_waits"):
            who = self._ctx.name, self._ctx.restarts
            granted = self._reach(partial(self._limiter.sample, *who, self._number + 1))
        if granted is None:
            return NoBatch.END
        self._number += 1
        self._rollouts = granted.rollouts
        with self._clock("replay"):
            drawn = self._drawn(self._plan.batch_size)
            if drawn is None:
                return NoBatch.END
            self._samples = drawn
            data = self._joined().to(self._device)
        keys = torch.cat([torch.tensor(sample.keys) for _, sample in self._samples])
        return Batch(data, granted.fresh, granted.position, windows=keys, rollouts=granted.rollouts)

    def trained(self, batch: Batch, updated: Updated) -> None:
        """See `Reader`. Priorities change with the next call to their shard: a call takes about a millisecond."""
        self._rollouts = ()
        if self._plan.priority is None:
            return
        assert updated.priority is not None, "the algorithm's losses give no priorities"
        priority, first = updated.priority.cpu().numpy(), 0
        for shard, sample in self._samples:
            part = priority[first : first + len(sample.keys)]
            first += len(sample.keys)
            self._learned[shard].append(Learned(sample.life, sample.keys, part))

    def close(self) -> None:
        """The learner ends."""
        left = self._rollouts
        with suppress(Stopped):
            left = (*left, *self._reach(partial(self._limiter.close, self._ctx.name)))
        if left:
            self._ctx.report(Left(left))

    def _drawn(self, count: int) -> list[tuple[int, Sample]] | None:
        """So many windows, of those shards that answer; None if there will never be any."""
        samples, missing = list[tuple[int, Sample]](), count
        while missing:
            if (parts := self._parts(missing)) is None:
                return None
            drawn = self._draw({shard: int(part) for shard, part in enumerate(parts) if part})
            samples.extend(drawn)
            missing -= sum(len(sample.keys) for _, sample in drawn)
        return samples

    def _parts(self, count: int) -> Array | None:
        """How many of so many windows are drawn from each shard. Waits until there are any. Returns None if there are
        none after all actors have ended."""
        more = True  # whether actors may store any
        while True:
            now = self._ctx.now()
            empty = [shard for shard, amount in enumerate(self._amounts) if not amount.windows]
            self._ask([shard for shard in empty if not more or now - self._asked[shard] >= RETRY])
            mass = torch.tensor([amount.mass for amount in self._amounts], dtype=torch.float64)
            if mass.sum() > 0:
                break
            if not more:
                return None
            with suppress(Unreachable):
                more = self._limiter.starve()
            if self._ctx.stopped:
                raise Stopped("while no replay memory has anything to learn from")
            if more:
                self._ctx.sleep(RETRY)
        return np.array([count]) if len(mass) == 1 else split(count, mass, self._rng)

    def _ask(self, shards: Sequence[int]) -> None:
        """Learn what can be drawn from these shards, at the same time."""
        for shard in shards:
            self._asked[shard] = self._ctx.now()
        answers = together([partial(self._shards[shard].amount) for shard in shards])
        for shard, amount in zip(shards, answers, strict=True):
            if isinstance(amount, Amount):
                self._amounts[shard] = amount

    def _draw(self, counts: Mapping[int, int]) -> list[tuple[int, Sample]]:
        """So many windows of each of these shards, at the same time; nothing of those that are empty or do not
        answer."""
        draws = [partial(self._shards[shard].draw, count, self._learned[shard]) for shard, count in counts.items()]
        for shard in counts:
            self._learned[shard] = []
        answers, samples = together(draws), list[tuple[int, Sample]]()
        for shard, sample in zip(counts, answers, strict=True):
            self._amounts[shard] = Amount(0.0, 0)
            if isinstance(sample, Sample):
                self._amounts[shard] = sample.left
                samples.append((shard, sample))
        return samples

    def _joined(self) -> Trajectory:
        """The samples side by side, with importance weights."""
        parts = [sample.data.trajectory() for _, sample in self._samples]
        data = parts[0] if len(parts) == 1 else Trajectory.concatenated(parts)
        if self._plan.priority is None:
            return data
        return replace(data, weight=self._weights(self._plan.priority.correction))

    def _weights(self, beta: float) -> Tensor:
        mass = torch.cat([torch.tensor(sample.mass) for _, sample in self._samples])
        total = sum(amount.mass for amount in self._amounts)
        return importance(mass, total, sum(amount.windows for amount in self._amounts), beta)
