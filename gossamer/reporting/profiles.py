"""Performance profiles of the methods (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
precipice")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gossamer.reporting import statistics
from gossamer.reporting.comparison import Comparison
from gossamer.reporting.measures import Scores, aggregated_envs
from gossamer.reporting.statistics import Array

POINTS = 201  # of a profile


@dataclass(frozen=True)
class Profile:
    """Performance profile of a method: the fraction of runs whose score is above τ."""

    envs: tuple[str, ...]  # one: of its scores; several: of human-normalised scores
    label: str
    points: Array  # τ [K], the same for all methods on these environments
    fractions: Array  # [K]
    band: Array | None  # 95 % intervals [2, K]; None with fewer than 3 runs
    runs: int  # of each environment


def profiles(comparison: Comparison, scores: Scores) -> list[Profile]:
    """The profiles over environments where scores can be normalised, else those of each environment."""
    over = aggregated_envs(comparison)
    tasks = [over] if over else [[env] for env in comparison.envs]
    return [made for envs in tasks for made in _profiles_over(comparison, scores, envs)]


def _profiles_over(comparison: Comparison, scores: Scores, envs: Sequence[str]) -> list[Profile]:
    methods = [method for method in comparison.methods if all(map(method.of, envs))]
    matrices = {method.label: scores.matrix(method, envs, human=len(envs) > 1) for method in methods}
    every = np.concatenate([matrix.ravel() for matrix in matrices.values()])
    margin = 0.05 * (np.ptp(every) or 1.0)
    points = np.linspace(every.min() - margin, every.max() + margin, POINTS)
    return [
        Profile(
            tuple(envs),
            label,
            points,
            statistics.profile(matrix, points),
            statistics.profile_band(matrix, points),
            len(matrix),
        )
        for label, matrix in matrices.items()
    ]
