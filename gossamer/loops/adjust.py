"""The loop that adjusts the numbers of agents, predictors and trainers while they run (Babaeizadeh et al. 2017,
section 4.2)."""

from __future__ import annotations

import math
import random
from dataclasses import astuple, dataclass

from gossamer.experience import RolloutPool
from gossamer.policy.served import Requests
from gossamer.runtime import Context
from gossamer.task import Note

SETTLING = 0.25  # fraction of a period that is not measured after a change
WARMTH = 0.1  # temperature of the first trial, a fraction of the rate
LOOK_EVERY = 1.0  # seconds: how soon the end of the run is seen
COOLING = 0.9  # factor of the temperature from one trial to the next


@dataclass(frozen=True)
class Numbers:
    """How many agents, predictors and trainers work."""

    agents: int
    predictors: int
    trainers: int

    def __str__(self) -> str:
        return f"agents {self.agents}, predictors {self.predictors}, trainers {self.trainers}"


class Annealing:
    """Simulated annealing of the numbers: a trial changes each of them by -1, 0 or 1. It is kept if it is no slower, or
    with probability exp(-loss / temperature); the temperature falls."""

    def __init__(self, numbers: Numbers, most: Numbers, rng: random.Random) -> None:
        """`numbers`: to start from; `most`: limits. Each number is at least 1."""
        self.numbers, self._most, self._rng = numbers, most, rng
        self.temperature = WARMTH

    def trial(self) -> Numbers:
        """Other numbers, to be measured; the current ones if the limits allow no others."""
        now, most = astuple(self.numbers), astuple(self._most)
        if most == (1, 1, 1):
            return self.numbers
        while True:
            moved = [value + self._rng.choice((-1, 0, 1)) for value in now]
            found = Numbers(*(min(max(1, value), limit) for value, limit in zip(moved, most, strict=True)))
            if found != self.numbers:
                return found

    def judge(self, trial: Numbers, rate: float, before: float) -> bool:
        """Keep a trial or not. `rate`: that was measured with it; `before`: with the current numbers."""
        loss = (before - rate) / before if before > 0 else 0.0
        kept = loss <= 0 or self._rng.random() < math.exp(-loss / self.temperature)
        self.temperature *= COOLING
        self.numbers = trial if kept else self.numbers
        return kept


def adjust(
    ctx: Context, pool: RolloutPool, requests: Requests, *, numbers: Numbers, most: Numbers, period: float, seed: int
) -> None:
    """Start with these numbers. In each `period` (seconds, above 0) measure the rollouts trained on per second, with
    the current numbers and with others in turn, and keep the others where they are no slower."""
    pool.forget(ctx.ended_before)
    annealing = Annealing(numbers, most, random.Random(seed))
    _set(pool, requests, numbers)
    while pool.trained_rollouts() == 0 and not ctx.stopped:  # environments start, which may take minutes
        ctx.sleep(min(period, LOOK_EVERY))
    while (before := _rate(ctx, pool, period)) is not None:
        trial = annealing.trial()
        _set(pool, requests, trial)
        if (rate := _rate(ctx, pool, period)) is None:
            return
        if annealing.judge(trial, rate, before):
            ctx.report(Note(f"now {trial}: {before:,.1f} rollouts trained on per second before, {rate:,.1f} with them"))
        else:
            _set(pool, requests, annealing.numbers)


def _set(pool: RolloutPool, requests: Requests, numbers: Numbers) -> None:
    requests.run(numbers.predictors)
    pool.run(numbers.agents, numbers.trainers)


def _rate(ctx: Context, pool: RolloutPool, period: float) -> float | None:
    """Rollouts trained on per second in the next period, without its beginning; None if the run ends meanwhile."""
    first, begun = _after(ctx, pool, SETTLING * period), ctx.now()
    last = _after(ctx, pool, (1 - SETTLING) * period)
    return None if first is None or last is None else (last - first) / (ctx.now() - begun)


def _after(ctx: Context, pool: RolloutPool, seconds: float) -> int | None:
    """Rollouts trained on when so many seconds are over; None, and early, if the run ends meanwhile."""
    end = ctx.now() + seconds
    while (trained := pool.trained_rollouts()) is not None and not ctx.stopped:
        if (left := end - ctx.now()) <= 0:
            return trained
        ctx.sleep(min(left, LOOK_EVERY))
    return None
