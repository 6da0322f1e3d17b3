"""Curves of runs: the mean of the last 100 episodes, as a run itself computes it."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from some_results import EPISODE, episodes, rising, write_run

import gossamer
from gossamer.reporting import curves
from gossamer.reporting.runs import load, sources
from gossamer.storage.runs import EpisodeRow, RunRecord


def rows(played: list[tuple[int, float, float]]) -> list[EpisodeRow]:
    return [EpisodeRow(steps, seconds, "act", "catch", 0, score, 10) for steps, seconds, score in played]


def test_a_moving_mean_is_that_of_a_queue() -> None:
    values = np.random.default_rng(1).normal(size=350)
    recent: deque[float] = deque(maxlen=100)
    slow = []
    for value in values:
        recent.append(value)
        slow.append(sum(recent) / len(recent))
    np.testing.assert_allclose(curves.moving_mean(values, 100), slow)


def test_episodes_of_one_report_are_one_point() -> None:
    curve = curves.of_episodes(rows([(10, 1.0, 0.0), (10, 1.0, 1.0), (20, 2.0, 0.5)]))
    assert (curve.steps.tolist(), curve.seconds.tolist()) == ([10, 20], [1.0, 2.0])
    assert (curve.returns.tolist(), curve.episodes.tolist()) == ([0.5, 0.5], [2, 3])


def test_between_two_points_the_first_holds_and_before_all_nothing_is_known() -> None:
    curve = curves.of_episodes(rows([(10, 1.0, 0.0), (20, 2.0, 1.0)]))  # means 0 and 0.5
    np.testing.assert_array_equal(curve.at(np.array([9.0, 10.0, 19.0, 20.0, 99.0]), "steps"), [np.nan, 0, 0, 0.5, 0.5])
    np.testing.assert_array_equal(curve.at(np.array([0.5, 1.5, 2.0]), "seconds"), [np.nan, 0, 0.5])


def test_a_threshold_is_reached_by_a_hundred_episodes() -> None:
    played = episodes([1.0] * 50 + [0.0] * 50 + [1.0] * 100)
    curve = curves.of_episodes(rows(played))
    # The mean of episodes 52..151 is the first above 0.5 of a hundred: 49 zeros have left... episode 101 replaces a 1
    # by a 1, and so on until episode 150; episode 151 is the first that replaces a 0.
    assert curve.reached(0.5) == (100 * EPISODE, 50.0)
    assert curve.reached(0.51) == (151 * EPISODE, 75.5)
    assert curve.reached(1.01) is None
    assert curve.reached(0.5, 0) is not None


def test_a_thinned_curve_keeps_its_ends() -> None:
    curve = curves.of_episodes(rows(rising(1.0, 1000)))
    thin = curve.thinned(4)
    assert thin.steps.tolist() == [10, 3340, 6670, 10000]  # points 0, 333, 666 and 999
    assert curve.thinned(1000) is curve


def test_an_older_run_is_read_from_its_metrics(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rising(1.0))
    (run / "episodes.csv").unlink()
    lines = [
        {"steps": s, "seconds": s / 10, "episodes": s, "mean_return": m} for s, m in ((1, None), (5, 0.1), (9, 0.4))
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curve = curves.of_run(RunRecord(run))
    assert (curve.steps.tolist(), curve.returns.tolist()) == ([5, 9], [0.1, 0.4])


def test_the_curve_of_a_training_ends_at_its_mean_return(tmp_path: Path) -> None:
    run = gossamer.train("paac", env="catch", num_envs=4, steps=2_000, threads=1, run_dir=tmp_path / "run")
    curve = curves.of_run(RunRecord(run.directory))
    assert curve.episodes[-1] == run.result["episodes"] > 100
    assert curve.returns[-1] == pytest.approx(run.result["mean_return"])
    assert curve.steps[-1] <= run.result["steps"]


def test_a_log_that_lacks_the_first_episodes_gives_way_to_the_rows(tmp_path: Path) -> None:
    """As of a run that a version without `episodes.csv` began."""
    run = write_run(tmp_path / "run", rising(1.0))
    log = (run / "episodes.csv").read_text().splitlines()
    (run / "episodes.csv").write_text("\n".join([log[0], *log[101:]]) + "\n")
    rows = [{"steps": 10 * n, "seconds": 0.5 * n, "episodes": n, "mean_return": n / 300} for n in (50, 100, 200, 300)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ((loaded,), left_out) = load(sources([run], {}))
    assert (loaded.curve.steps.tolist(), left_out) == ([500, 1000, 2000, 3000], [])
