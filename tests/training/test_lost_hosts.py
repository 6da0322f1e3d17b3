"""Runs that lose hosts or members: what they still do, what they say of it, and how they go on."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from some_runs import NAN_ENV, result, save_always

import gossamer
from gossamer import cli
from gossamer.evaluation.members import average
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.launch.threads import threads
from gossamer.program import Program
from gossamer.runtime import Answer
from gossamer.storage.checkpoint import Store
from gossamer.training import experiment
from gossamer.training.observer import RunObserver
from gossamer.workers.learner import NonFinite

MANY: dict[str, Any] = {
    "env": "catch",
    "num_envs": 2,
    "rollout_length": 4,
    "threads": 1,
    "learners": 1,
    "sync": "bounded",
    "staleness": 2,
}
LEASE = 2 * 4
STEPS = LEASE * 60


def pala(directory: Path, **given: Any) -> gossamer.Run:
    return gossamer.train("pala", run_dir=directory, **{**MANY, "hosts": 2, "steps": STEPS, **given})


def test_a_host_that_crashes_and_restarts_costs_no_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(1, Network(latency=0.01), Faults(crashes=[(0.1, "host1", 0.1)]))
    monkeypatch.setattr(experiment, "threads", simulation)
    run = pala(tmp_path / "run")
    assert [host for _, host in simulation.crashes] == ["host1"]
    assert (run.result["ended"], run.result["steps"], run.result["short"]) == ("all steps done", STEPS, 0)
    assert [(failure["host"], failure["came_back"]) for failure in run.result["failures"]] == [("host1", True)]


def test_the_steps_of_a_host_that_never_returns_are_acted_by_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(1, Network(latency=0.01), Faults(crashes=[(0.1, "host1", inf)]))
    monkeypatch.setattr(experiment, "threads", simulation)
    run = pala(tmp_path / "run")
    assert (run.result["ended"], run.result["steps"], run.result["short"]) == ("all steps done", STEPS, 0)
    (failure,) = run.result["failures"]
    assert failure["host"] == "host1"
    assert failure["away_seconds"] is not None
    assert not failure["came_back"]


def test_a_run_that_could_not_act_all_steps_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class EndsEarly:
        """Half-way a host is lost, and no worker gets steps any more."""

        def __init__(self, inner: RunObserver) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
            if self.inner.budget.granted < STEPS / 2:
                return self.inner.claim(worker, steps, idle=idle)
            self.inner.host("host1", None)
            return Answer.END

    def launch(program: Program, observer: Any) -> None:
        threads(program, EndsEarly(observer))

    monkeypatch.setattr(experiment, "threads", launch)
    given = [f"--{name.replace('_', '-')}={value}" for name, value in {**MANY, "hosts": 2, "steps": STEPS}.items()]
    monkeypatch.setattr(sys, "argv", ["gossamer", "train", "pala", *given, f"--run-dir={tmp_path / 'run'}"])
    assert cli.main() == 3
    found = result(tmp_path / "run")
    assert (found["steps"], found["short"]) == (STEPS // 2, STEPS // 2)
    assert found["ended"].startswith("240 steps short: host1 away ")
    assert "240 steps short: host1 away " in capsys.readouterr().out


def test_a_member_that_the_checkpoint_lacks_starts_from_the_average_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "run"
    gossamer.train("gala", run_dir=directory, **{**MANY, "learners": 3, "steps": STEPS})
    store = Store(directory / "checkpoints")
    tree = store.get("last").load()
    del tree["workers"]["act_and_learn[1]"]
    store.save(tree, steps=STEPS + 1, score=None)
    names = list(tree["workers"]["act_and_learn[0]"]["learner"]["model"])
    expected = average(tree, tree["workers"], names)
    seen = dict[str, Any]()

    def launch(program: Program, observer: RunObserver) -> None:
        seen.update(observer.restored("act_and_learn[1]"))
        threads(program, observer)

    monkeypatch.setattr(experiment, "threads", launch)
    run = gossamer.resume(directory, steps=2 * STEPS)
    for name in names:
        torch.testing.assert_close(seen["parameters"][name], expected[name])
    assert seen["exchange"]["iteration"] > 0
    assert set(run.result["members"]) == {f"act_and_learn[{rank}]" for rank in range(3)}
    text = "act_and_learn[1] is not in the checkpoint: it starts from the average of the other members' parameters"
    assert text in (directory / "run.log").read_text()


def test_nothing_that_is_not_finite_reaches_a_neighbour_or_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sour.py").write_text(NAN_ENV)
    monkeypatch.syspath_prepend(tmp_path)
    save_always(monkeypatch)
    for seed in range(3):
        directory = tmp_path / str(seed)
        options = {**MANY, "env": "sour:Sours", "learners": 3, "steps": 10 * STEPS, "seed": seed}
        with pytest.raises(NonFinite, match="the loss became NaN or infinite"):
            gossamer.train("gala", run_dir=directory, **options)
        for kept in Store(directory / "checkpoints").all():
            for state in kept.load()["workers"].values():
                assert all(bool(tensor.isfinite().all()) for tensor in state["learner"]["model"].values())
        assert gossamer.evaluate(directory, episodes=2).mean_return is not None
