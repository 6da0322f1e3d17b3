"""A run and a policy that version 0.2 wrote before the edges had one shape (`tests/data/format_2`) still load."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from some_runs import checkpoint, result

import gossamer

FORMAT_2 = Path(__file__).parents[1] / "data" / "format_2"


def test_a_run_of_actors_and_a_learner_plays_and_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "impala"
    shutil.copytree(FORMAT_2 / "impala", run)
    assert gossamer.evaluate(run, episodes=2).steps == 400
    gossamer.resume(run, steps=480)
    assert result(run)["steps"] >= 480
    assert checkpoint(run)["workers"]["learn"]["exchange"]["iteration"] > 20  # 400 steps were 20 updates


def test_a_policy_acts(tmp_path: Path) -> None:
    policy = gossamer.load(FORMAT_2 / "policy")
    actions = [policy.act(obs) for obs in np.eye(50, dtype=np.float32)]
    assert set(actions) <= {0, 1, 2}
