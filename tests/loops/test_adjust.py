from __future__ import annotations

import random
from typing import Any

import pytest

from gossamer.loops.adjust import COOLING, WARMTH, Annealing, Numbers, adjust


def rate(numbers: Numbers) -> float:
    """A machine with known costs: agents make 10 rollouts/s each, predictors serve 40 of them each, trainers learn from
    60 each; the least of these counts, and each worker costs 3 % of it. The best: 12 agents, 3 predictors, 2 trainers,
    120 * 0.49 = 58.8."""
    least = min(10 * numbers.agents, 40 * numbers.predictors, 60 * numbers.trainers)
    return least * (1 - 0.03 * (numbers.agents + numbers.predictors + numbers.trainers))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("start", [Numbers(1, 1, 1), Numbers(16, 8, 8)])
def test_annealing_converges_on_a_machine_with_known_costs(seed: int, start: Numbers) -> None:
    annealing = Annealing(start, Numbers(16, 8, 8), random.Random(seed))
    for _ in range(400):
        trial = annealing.trial()
        annealing.judge(trial, rate(trial), rate(annealing.numbers))
    best = max(rate(Numbers(a, p, t)) for a in range(1, 17) for p in range(1, 9) for t in range(1, 9))
    assert best == pytest.approx(58.8)
    assert rate(annealing.numbers) >= 0.95 * best


def test_a_trial_stays_within_its_limits() -> None:
    annealing = Annealing(Numbers(1, 2, 1), Numbers(2, 2, 1), random.Random(0))
    seen = {annealing.trial() for _ in range(100)}
    assert seen == {Numbers(2, 2, 1), Numbers(1, 1, 1), Numbers(2, 1, 1)}
    assert Annealing(Numbers(1, 1, 1), Numbers(1, 1, 1), random.Random(0)).trial() == Numbers(1, 1, 1)


def test_slower_numbers_are_kept_less_and_less() -> None:
    annealing = Annealing(Numbers(4, 1, 1), Numbers(8, 1, 1), random.Random(0))
    assert annealing.judge(Numbers(5, 1, 1), 10.0, 10.0)
    assert annealing.temperature == WARMTH * COOLING
    annealing.temperature = 1e-9
    assert not annealing.judge(Numbers(6, 1, 1), 9.9, 10.0)
    assert annealing.numbers == Numbers(5, 1, 1)


class Clock:
    """A context in which a pool's trainers end after so many seconds."""

    stopped, ended_before = False, frozenset[str]()

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def report(self, record: Any) -> None: ...


class Ending:
    """Stands in for the pool and for the requests."""

    def __init__(self, clock: Clock, end: float) -> None:
        self.clock, self.end = clock, end

    def forget(self, ended: frozenset[str]) -> None: ...

    def run(self, *numbers: int) -> None: ...

    def trained_rollouts(self) -> int | None:
        return None if self.clock.time >= self.end else 1


@pytest.mark.parametrize("end", [0.5, 10.0, 700.0])
def test_it_ends_with_the_trainers_and_not_a_period_later(end: float) -> None:
    clock = Clock()
    pool: Any = Ending(clock, end)
    one = Numbers(1, 1, 1)
    adjust(clock, pool, pool, numbers=one, most=Numbers(2, 2, 2), period=600.0, seed=1)  # type: ignore[arg-type]
    assert end <= clock.time <= end + 1.0
