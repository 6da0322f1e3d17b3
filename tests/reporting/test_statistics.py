"""Statistics against rliable 1.2.0 (archived; not a dependency), whose values were computed once:

pip install rliable==1.2.0 "pandas<3"     # numpy 2.4.6, scipy 1.17.1, arch 7.2.0
four = lambda x: np.array([metrics.aggregate_median(x), metrics.aggregate_iqm(x), metrics.aggregate_mean(x),
                           metrics.aggregate_optimality_gap(x)])
one = lambda x, y: np.array([metrics.probability_of_improvement(x, y)])
np.random.seed(7); library.get_interval_estimates({"a": A}, four, reps=1000)           # POINTS, INTERVALS
np.random.seed(7); library.get_interval_estimates({"a": A}, four, reps=50000)          # INTERVALS_50000
np.random.seed(7); library.create_performance_profile({"a": A}, TAU, reps=1000)        # PROFILE, BAND
np.random.seed(7); library.get_interval_estimates({"ab": [A, B]}, one, reps=1000)      # BETTER, BETTER_INTERVAL
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from gossamer.reporting import statistics as s
from gossamer.reporting.statistics import Array

A = np.array([[0.62, 1.3, 0.05, 2.4], [0.55, 0.9, 0.30, 1.1], [0.71, 1.1, 0.10, 0.7], [0.40, 1.6, 0.22, 3.9],
              [0.66, 1.2, 0.18, 1.8]])  # fmt: skip
B = np.array([[0.58, 0.8, 0.15, 2.0], [0.35, 0.9, 0.05, 0.9], [0.62, 1.0, 0.12, 1.5]])
TAU = np.array([0.0, 0.25, 0.5, 1.0, 2.0])
FOUR = (s.median, s.iqm, s.mean, s.optimality_gap)
POINTS = (0.904, 0.794, 0.9895, 0.3305)
POINTS_B = (0.70833333, 0.69166667, 0.7475, 0.3775)
INTERVALS = ((0.77795, 1.01305), (0.688, 0.952025), (0.737, 1.258025), (0.2939875, 0.3740125))
INTERVALS_50000 = ((0.783, 1.015), (0.689, 0.951), (0.756, 1.256), (0.292, 0.3735))
PROFILE = (1.0, 0.8, 0.7, 0.4, 0.1)
BAND = ((1.0, 0.75, 0.6, 0.3, 0.0), (1.0, 0.9, 0.75, 0.5, 0.2))
BETTER, BETTER_INTERVAL = 0.725, (0.51666667, 0.891875)


def rliable_indices(runs: int, tasks: int, times: int) -> np.ndarray:
    """What rliable draws after `np.random.seed(7)`."""
    stream = np.random.RandomState(7)
    return np.stack([stream.choice(runs, (runs, tasks)) for _ in range(times)])


@pytest.mark.parametrize(("statistic", "a", "b"), list(zip(FOUR, POINTS, POINTS_B, strict=True)))
def test_aggregates_agree_with_rliable(statistic: s.Statistic, a: float, b: float) -> None:
    assert statistic(A) == pytest.approx(a)
    assert statistic(B) == pytest.approx(b)


@pytest.mark.parametrize(("statistic", "ends"), list(zip(FOUR, INTERVALS, strict=True)))
def test_intervals_agree_with_rliable_s_on_the_same_resamples(
    statistic: s.Statistic, ends: tuple[float, float]
) -> None:
    values = statistic(s.resampled(A, rliable_indices(5, 4, 1000)))
    np.testing.assert_allclose(s.percentiles(values), ends)


@pytest.mark.parametrize(("statistic", "ends"), list(zip(FOUR, INTERVALS_50000, strict=True)))
def test_intervals_agree_with_rliable_s_on_other_resamples(statistic: s.Statistic, ends: tuple[float, float]) -> None:
    # The standard error of a 2.5 % percentile of 10,000 values is 0.0016 in probability; in these units below 0.01.
    np.testing.assert_allclose(s.interval(statistic, A), ends, atol=0.015)


def test_profiles_agree_with_rliable() -> None:
    np.testing.assert_allclose(s.profile(A, TAU), PROFILE)
    np.testing.assert_allclose(s.percentiles(s.profile(s.resampled(A, rliable_indices(5, 4, 1000)), TAU)), BAND)
    np.testing.assert_allclose(s.profile_band(A, TAU), BAND, atol=0.051)  # the fractions are multiples of 1 / 20


def test_the_probability_of_improvement_agrees_with_rliable() -> None:
    assert s.improvement(A, B) == pytest.approx(BETTER)
    assert s.improvement(B, A) == pytest.approx(1 - BETTER)
    stream = np.random.RandomState(7)  # rliable draws for the first side, then for the second, in turns
    drawn = [(stream.choice(5, (5, 4)), stream.choice(3, (3, 4))) for _ in range(1000)]
    ones, others = (np.stack(side) for side in zip(*drawn, strict=True))
    values = s.improvement(s.resampled(A, ones), s.resampled(B, others))
    np.testing.assert_allclose(s.percentiles(values), BETTER_INTERVAL)
    np.testing.assert_allclose(s.improvement_interval(A, B), BETTER_INTERVAL, atol=0.03)


def test_improvement_is_the_count_of_pairs_won() -> None:
    won = [
        [1.0 if x > y else 0.5 if x == y else 0.0 for x, y in itertools.product(A[:, task], B[:, task])]
        for task in range(4)
    ]
    assert s.improvement(A, B) == pytest.approx(np.mean([np.mean(each) for each in won]))
    assert s.improvement(A, A) == pytest.approx(0.5)


@pytest.mark.parametrize(("number", "left"), [(1, [0]), (3, [0, 1, 2]), (4, [1, 2]), (5, [1, 2, 3]), (8, [2, 3, 4, 5])])
def test_the_iqm_leaves_out_a_quarter_at_each_end(number: int, left: list[int]) -> None:
    scores = np.array([10.0**k for k in range(number)])
    shuffled = np.random.default_rng(1).permutation(scores)
    assert s.iqm(shuffled[:, None]) == pytest.approx(np.mean(scores[left]))


def test_statistics_of_resamples_are_those_of_each_resample() -> None:
    samples = s.resampled(A, s.resampling(A, times=20))
    for statistic in FOUR:
        np.testing.assert_allclose(statistic(samples), [statistic(each) for each in samples])
    np.testing.assert_allclose(s.profile(samples, TAU), [s.profile(each, TAU) for each in samples])


def test_runs_are_resampled_within_their_task() -> None:
    tasks = np.arange(4.0)[None, :] * 100
    samples = s.resampled(tasks + np.arange(5.0)[:, None], s.resampling(A, times=50))
    assert np.array_equal(samples // 100, np.broadcast_to(tasks // 100, samples.shape))
    drawn = (samples % 100)[:, :, 0]
    assert any(len(set(each)) < 5 for each in drawn.tolist())  # with replacement
    assert not np.array_equal(samples % 100, np.broadcast_to(drawn[:, :, None], samples.shape))  # each task its own


def test_too_few_runs_have_no_interval() -> None:
    assert s.interval(s.iqm, A[:2]) is None
    assert s.profile_band(A[:2], TAU) is None
    assert s.improvement_interval(A, B[:2]) is None
    assert s.median_interval([1.0, 2.0]) is None
    low, high = s.interval(s.iqm, A[:3, :1]) or (math.nan, math.nan)
    assert 0.55 <= low < high <= 0.71


@pytest.mark.parametrize("interval", [s.interval, lambda what, scores: s.improvement_interval(scores, B)])
def test_a_report_made_again_has_the_same_intervals(interval: Callable[[s.Statistic, Array], object]) -> None:
    assert interval(s.iqm, A) == interval(s.iqm, A)


def test_never_is_later_than_any_number() -> None:
    never = math.inf
    assert s.median_of([3, never, 1]) == 3
    assert s.median_of([1, never]) == never
    assert s.median_interval([1.0, 2.0, 3.0, never, never]) == (1.0, never)
    assert s.median_interval([2.0] * 5) == (2.0, 2.0)
