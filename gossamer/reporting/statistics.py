"""Statistics of few runs (Agarwal et al. 2021, arXiv 2108.13264). Their values agree with rliable 1.2.0.

Scores are matrices [.., N, M]: N runs, M tasks. A statistic takes any leading dimensions, so that one call computes it
for all resamples of a bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Statistic: TypeAlias = Callable[[Array], Array]  # [.., N, M] -> [..]

COVERAGE = 0.95  # of an interval
FEWEST = 3  # runs that an interval needs: resamples of two runs have only three values
RESAMPLES = 10_000  # of a single number
RESAMPLES_CURVE = 2_000  # of each point of a curve
PIECES = 100  # in which pairs of resampled runs are compared: all of them at once take gigabytes
SEED = 0  # of the resampling: a report that is made again has the same numbers


def iqm(scores: Array) -> Array:
    """Interquartile mean: the mean of all N x M scores without the lowest and the highest quarter (each rounded down).
    [.., N, M] -> [..]"""
    ordered = np.sort(_flat(scores), axis=-1)
    cut = int(0.25 * ordered.shape[-1])
    return np.asarray(ordered[..., cut : ordered.shape[-1] - cut].mean(-1))


def mean(scores: Array) -> Array:
    """Mean over runs and tasks. [.., N, M] -> [..]"""
    return np.asarray(scores.mean((-2, -1)))


def median(scores: Array) -> Array:
    """Median over tasks of the mean over runs. [.., N, M] -> [..]"""
    return np.asarray(np.median(scores.mean(-2), axis=-1))


def optimality_gap(scores: Array) -> Array:
    """How far the scores fall short of 1 on average; scores above 1 count as 1. [.., N, M] -> [..]"""
    return np.asarray(1 - np.minimum(scores, 1).mean((-2, -1)))


def resampling(scores: Array, times: int, seed: int = SEED) -> NDArray[np.int64]:
    """Indices of a stratified bootstrap of scores [N, M]: N runs of each task, with replacement. [times, N, M]"""
    return np.random.default_rng(seed).integers(len(scores), size=(times, *scores.shape))


def resampled(scores: Array, indices: NDArray[np.int64]) -> Array:
    """Scores [N, M] at `indices` [R, N, M] of runs, task by task. [R, N, M]"""
    return np.take_along_axis(scores[None], indices, axis=1)


def percentiles(values: Array) -> Array:
    """The percentile interval of resampled values [R, ..]: its lower and upper ends, [2, ..]."""
    tail = 100 * (1 - COVERAGE) / 2
    return np.asarray(np.percentile(values, [tail, 100 - tail], axis=0))


def interval(statistic: Statistic, scores: Array, times: int = RESAMPLES) -> tuple[float, float] | None:
    """95 % interval of a statistic of scores [N, M], by stratified bootstrap; None with fewer than 3 runs."""
    if scores.shape[0] < FEWEST:
        return None
    low, high = percentiles(statistic(resampled(scores, resampling(scores, times))))
    return float(low), float(high)


def profile(scores: Array, thresholds: Array) -> Array:
    """Performance profile: the fraction of runs whose score is above each threshold, averaged over tasks.
    [.., N, M], [K] -> [.., K]"""
    ordered = np.sort(_flat(scores), axis=-1)
    above = [(ordered > threshold).mean(-1) for threshold in thresholds]
    return np.stack(above, axis=-1)


def profile_band(scores: Array, thresholds: Array, times: int = RESAMPLES_CURVE) -> Array | None:
    """Pointwise 95 % intervals of a profile, [2, K]; None with fewer than 3 runs."""
    if scores.shape[0] < FEWEST:
        return None
    return percentiles(profile(resampled(scores, resampling(scores, times)), thresholds))


def improvement(first: Array, second: Array) -> Array:
    """Probability that a run of the first [.., N, M] scores higher than one of the second [.., K, M] on a task drawn at
    random: the Mann-Whitney U statistic / (N K), where ties count half, averaged over tasks. [..]"""
    difference = first[..., :, None, :] - second[..., None, :, :]
    return np.asarray(((difference > 0) + 0.5 * (difference == 0)).mean((-3, -2, -1)))


def improvement_interval(first: Array, second: Array, times: int = RESAMPLES) -> tuple[float, float] | None:
    """Its 95 % interval; both sides are resampled independently. None with fewer than 3 runs on a side."""
    if min(first.shape[0], second.shape[0]) < FEWEST:
        return None
    ones = resampled(first, resampling(first, times, SEED))
    others = resampled(second, resampling(second, times, SEED + 1))
    pieces = zip(np.array_split(ones, PIECES), np.array_split(others, PIECES), strict=True)
    low, high = percentiles(np.concatenate([improvement(one, other) for one, other in pieces]))
    return float(low), float(high)


def median_of(values: Sequence[float]) -> float:
    """The median; infinity stands for never, and half the way to never is never."""
    return float(np.median(np.asarray(values, np.float64)))


def median_interval(values: Sequence[float], times: int = RESAMPLES) -> tuple[float, float] | None:
    """95 % bootstrap interval of the median of values that may be infinite: its ends are resampled medians, as nothing
    lies between a number and infinity. None with fewer than 3 values."""
    if len(values) < FEWEST:
        return None
    scores = np.asarray(values, np.float64)[:, None]
    medians = np.median(resampled(scores, resampling(scores, times))[..., 0], axis=-1)
    tail = (1 - COVERAGE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


def _flat(scores: Array) -> Array:
    """[.., N, M] -> [.., N * M]"""
    return scores.reshape(*scores.shape[:-2], scores.shape[-2] * scores.shape[-1])
