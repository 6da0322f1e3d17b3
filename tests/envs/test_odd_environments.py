"""What environments do to the process that they share with everything else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from some_runs import trained

import gossamer
from gossamer import cli
from gossamer.system.errors import UserError

QUICK = ["--run-dir", "runs/here", "--steps", "80", "--num-envs", "2", "--rollout-length", "4", "--threads", "1"]


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(Path.cwd())  # and back
    yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("workers", [0, 2])
def test_one_that_quits_when_it_is_closed_is_trained(workers: int, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", env="odd_envs:Quits", env_workers=workers)
    assert run.result["ended"] == "all steps done"
    assert gossamer.evaluate(run, episodes=1).returns == [4.0]


@pytest.mark.parametrize("algorithm", ["a2c", "ppo", "dqn"])
def test_one_that_turns_gradients_off_is_trained(algorithm: str, tmp_path: Path) -> None:
    more = {"learning_starts": 8, "batch_size": 4} if algorithm == "dqn" else {}
    run = trained(tmp_path / "run", env="odd_envs:NoGradients", algorithm=algorithm, **more)
    assert run.result["ended"] == "all steps done"


def test_one_that_changes_the_current_directory_leaves_files_where_they_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["train", "paac", "--env", "odd_envs:Moves", *QUICK], ["resume", "runs/here", "--steps", "200"]):
        monkeypatch.setattr("sys.argv", ["gossamer", *words])
        assert cli.main() == 0
        os.chdir(tmp_path)
    for words in (["evaluate", "runs/here", "--episodes", "1"], ["record", "runs/here", "--out", "film.gif"]):
        monkeypatch.setattr("sys.argv", ["gossamer", *words])
        assert cli.main() == (0 if words[0] == "evaluate" else 2)  # it has no screen
        os.chdir(tmp_path)
    names = {path.name for path in (tmp_path / "runs" / "here").iterdir()}
    assert names > {"config.json", "result.json", "metrics.jsonl", "checkpoints", "evaluation-plain.json"}
    assert f"everything is in {tmp_path / 'runs' / 'here'}" in capsys.readouterr().out
    study = gossamer.study(["paac --num-envs 2"], envs=["odd_envs:Moves"], seeds=1, directory="study", steps=40)
    assert study.complete
    assert (tmp_path / "study" / "study.json").exists()


def test_one_that_changes_the_default_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--env odd_envs:Doubles: has set torch's default type to torch\.float64"):
        trained(tmp_path / "run", env="odd_envs:Doubles")
    assert not (tmp_path / "run").exists()


def test_statistics_of_wrappers_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(tmp_path / "run", env="odd_envs:normalised")
    told = "odd_envs:normalised: no checkpoint has the statistics of NormalizeReward and NormalizeObservation, so"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(("bounds", "told"), [("clip", True), ("squash", False)])
def test_bounds_that_actions_hardly_reach_are_told(
    bounds: str, told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path / "run", env="odd_envs:Far", action_bounds=bounds)
    line = (
        "odd_envs:Far: actions are from 0 to 1000, and first ones are drawn around 0 with deviation 1; --action-bounds"
    )
    assert (line in capsys.readouterr().err) == told
    assert (line in (tmp_path / "run" / "run.log").read_text()) == told
