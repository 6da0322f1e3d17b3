"""Studies whose runs are trained: beside a run that fails, from a file, and on Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from some_parts import differences
from some_runs import checkpoint

import gossamer
from gossamer import commands

TINY = ["--num-envs", "2", "--rollout-length", "4", "--threads", "1"]
ENVS = Path(__file__).parents[1] / "envs"  # environments of a user's
COLD = """
from pathlib import Path
from some_envs import Fails, Walk
def made():
    return Walk() if Path(__file__).with_name("coal").exists() else Fails()
"""
PLACED = """
import ray
from pathlib import Path
from some_envs import Walk
def made():
    "Notes in which Ray actor it is made, and of which cluster."
    here = ray.get_runtime_context() if ray.is_initialized() else None
    if here and here.get_actor_id():
        Path(__file__).with_name(f"actor-{here.get_actor_id()}").write_text(here.gcs_address)
    return Walk()
"""
FILE = f"""
envs = ["catch"]
seeds = [7]
steps = 80
directory = "file"
options = "{" ".join(TINY)}"
[compositions]
"A study" = "paac --algorithm ppo"
"""


def with_module(folder: Path, name: str, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the environments of a module importable, here and by runs."""
    (folder / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(ENVS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def study_of_four(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """The command `gossamer study`, with four environments and two runs at once."""
    envs = [word for env in ("cold:made", "catch", "recall", "catch-pixels") for word in ("--env", env)]
    words = [sys.executable, "-m", "gossamer.cli", "study", "paac", *envs, "--seeds", "1", "--steps", "80"]
    words += ["--jobs", "2", "--dir", str(folder), *more, "--", *TINY]
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)


def test_only_the_run_that_failed_is_trained_by_a_second_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_module(tmp_path, "cold", COLD, monkeypatch)
    folder = tmp_path / "study"
    first = study_of_four(folder)
    assert first.returncode == 3, first.stderr
    failed, counts = first.stdout.splitlines()
    assert failed.startswith("failed: paac/cold-made/seed-1: ")
    assert "--env cold:made: environment 0: step() raised OSError: no coal left" in failed
    assert counts.startswith("4 runs: 1 failed, 3 finished; next: run the same command again")
    told = first.stderr.splitlines()
    assert ["training in" in line for line in told[:3]] == [True, True, False]  # two begin before one has ended
    assert sum("paac on cold:made, seed 1: failed: " in line for line in told) == 1
    others = ["paac/catch/seed-1", "paac/recall/seed-1", "paac/catch-pixels/seed-1"]
    before = [(folder / f"{run}.log").read_bytes() for run in others]

    (tmp_path / "coal").touch()
    second = study_of_four(folder, "--json")
    assert second.returncode == 0, second.stderr
    assert second.stderr.count("training in") == 1
    assert {run["directory"]: run["status"] for run in json.loads(second.stdout)["runs"]} == {
        "paac/cold-made/seed-1": "finished",
        **dict.fromkeys(others, "finished before"),
    }
    assert [(folder / f"{run}.log").read_bytes() for run in others] == before


def test_a_file_the_command_line_and_python_train_the_same_runs(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(FILE)
    composition = "A study: paac --algorithm ppo"
    typed = [composition, "--env", "catch", "--seeds", "7,", "--steps", "80", "--dir", str(tmp_path / "typed")]
    assert commands.run("study", [str(tmp_path / "study.toml")]) == 0
    assert commands.run("study", [*typed, "--", *TINY]) == 0
    called = gossamer.study(
        [composition], envs=["catch"], seeds=[7], steps=80, directory=tmp_path / "called", options=TINY
    )
    assert called.complete
    folders = [tmp_path / name for name in ("file", "typed", "called")]
    plan, *plans = [json.loads((folder / "study.json").read_text()) for folder in folders]
    assert [run["directory"] for run in plan["runs"]] == ["A-study/catch/seed-7"]
    assert plans == [plan, plan]
    end, *ends = [checkpoint(folder / "A-study" / "catch" / "seed-7") for folder in folders]
    assert end["progress"]["steps"] == 80
    assert [differences(end, other) for other in ends] == [[], []]


@pytest.mark.ray
def test_the_hosts_of_every_run_are_placed_on_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray

    with_module(tmp_path, "placed", PLACED, monkeypatch)
    cluster, folder = ray.get_runtime_context().gcs_address, tmp_path / "study"
    words = ["paac", "--env", "placed:made", "--seeds", "2", "--steps", "200", "--jobs", "2", "--dir", str(folder)]
    assert commands.run("study", [*words, "--cluster", cluster, "--", *TINY]) == 0
    assert "2 runs: 2 finished" in capsys.readouterr().out
    results = [json.loads((folder / f"paac/placed-made/seed-{seed}/result.json").read_text()) for seed in (1, 2)]
    assert [(result["steps"], result["ended"]) for result in results] == [(200, "all steps done")] * 2
    assert [file.read_text() for file in tmp_path.glob("actor-*")] == [cluster, cluster]  # one host each
