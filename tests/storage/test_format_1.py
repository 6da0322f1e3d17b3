"""Checkpoints that version 0.1.0 wrote (`tests/data/format_1`) can be resumed and evaluated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from some_runs import QUICK, checkpoint, result

import gossamer

FORMAT_1 = Path(__file__).parents[1] / "data" / "format_1"
SAME: dict[str, Any] = {"optimizer": "rmsprop-a3c", "precision": "fp32"}
MEMBERS: dict[str, dict[str, Any]] = {
    "paac": {},
    "gala": {"env": "identity", "learners": 2},
    "pala": {"env": "identity", "learners": 1, "hosts": 2},
}


@pytest.mark.parametrize("name", MEMBERS)
def test_a_checkpoint_of_format_1_goes_on_and_plays(tmp_path: Path, name: str) -> None:
    run = tmp_path / name
    gossamer.train(name, run_dir=run, **{**QUICK, **SAME, **MEMBERS[name], "steps": 16})
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(FORMAT_1 / name / "checkpoints", run / "checkpoints")
    first = run / "checkpoints" / "step_000000000400"
    assert json.loads((first / "manifest.json").read_text())["format"] == 1
    before = gossamer.evaluate(run, episodes=2)
    assert (before.steps, before.checkpoint) == (400, first.name)

    gossamer.resume(run, steps=480)
    assert result(run)["steps"] == 480
    assert json.loads((run / "checkpoints" / "step_000000000480" / "manifest.json").read_text())["format"] == 2
    workers = checkpoint(run)["workers"].values()
    assert sum(int(worker["learner"]["steps"]) for worker in workers) == 480
    assert gossamer.evaluate(run, episodes=2).steps == 480
