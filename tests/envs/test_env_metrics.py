"""What environments say of an episode in its last info: from the environment to rows, evaluations and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from some_runs import rows

import gossamer
from gossamer.envs.gym import vectorise
from gossamer.envs.metrics import metrics_of
from gossamer.envs.single import EnvSource
from gossamer.storage.checkpoint import Store


class Tells(gymnasium.Env[np.ndarray, np.int64]):
    """Episodes of 2 steps. Every second one succeeds, and says how far it came: 0.25 or 0.75."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    played = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.age = 0
        return np.zeros(1, np.float32), {"is_success": True}  # not of an episode that has ended

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.age += 1
        good = self.played % 2 == 1
        self.played += self.age == 2
        info = {"is_success": np.bool_(good), "metrics": {"progress": 0.75 if good else 0.25, "name": "x"}}
        return np.zeros(1, np.float32), 1.0, self.age == 2, False, info


@pytest.mark.parametrize(
    ("info", "metrics"),
    [
        ({"is_success": True}, {"is_success": 1.0}),
        ({"is_success": np.array([False])}, {"is_success": 0.0}),
        ({"metrics": {"a": 2, "b": np.float32(0.5)}}, {"a": 2.0, "b": 0.5}),
        ({"metrics": {"is_success": 0}, "is_success": 1}, {"is_success": 1.0}),
        ({"metrics": {"a": "two", "b": None, "c": [1], "d": np.ones(2), "e": {}}}, {}),
        ({"metrics": {"a": float("nan"), "b": float("inf"), "c": np.array("x")}}, {}),
        ({"metrics": 3.0, "is_success": None}, {}),
        ({}, {}),
        (None, {}),
    ],
)
def test_what_counts_as_a_metric(info: Any, metrics: dict[str, float]) -> None:
    assert metrics_of(info) == metrics


@pytest.mark.parametrize("workers", [1, 2])
def test_a_step_has_the_metrics_of_episodes_that_ended_in_it(workers: int) -> None:
    env = vectorise(EnvSource("tells", Tells), 4, workers)
    try:
        env.reset(0)
        told = [env.step(np.zeros(4, np.int64)).metrics for _ in range(4)]
    finally:
        env.close()
    first, second = {"is_success": 0.0, "progress": 0.25}, {"is_success": 1.0, "progress": 0.75}
    assert told == [{}, dict.fromkeys(range(4), first), {}, dict.fromkeys(range(4), second)]


def test_they_are_metrics_of_a_run_and_of_its_evaluations(tmp_path: Path) -> None:
    # 4 environments act 40 steps each, 20 episodes: half of all 80 succeed. An evaluation plays 2 games in each of 2.
    options: dict[str, Any] = {"num_envs": 4, "rollout_length": 4, "threads": 1}
    run = gossamer.train("paac", env=Tells, steps=160, run_dir=tmp_path / "run", **options)
    last = rows(run.directory)[-1]
    assert (last["episodes"], last["mean_return"]) == (80, 2.0)
    assert {name: last[name] for name in last if name.startswith("episode/")} == {
        "episode/is_success": 0.5,
        "episode/progress": 0.5,
    }
    games = gossamer.evaluate(run.directory, episodes=2)
    assert games.metrics == {"is_success": 0.0, "progress": 0.25}  # the first game of each
    assert json.loads((run.directory / "evaluation-plain.json").read_text())["metrics"] == games.metrics
    again = gossamer.resume(run.directory, steps=176)
    assert rows(again.directory)[-1]["episode/is_success"] == 0.5  # of the last 88, the 80 from before among them
    saved = Store(run.directory / "checkpoints").get("last").load()["progress"]
    assert saved["recent"][-1] == [2.0, 2, {"is_success": 1.0, "progress": 0.75}]
