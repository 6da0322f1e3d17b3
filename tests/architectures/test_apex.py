"""Ape-X: priorities from actors and learners, several shards and hosts; what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from some_parts import Watcher, a_task
from some_runs import checkpoint, result, solved

import gossamer
from gossamer.algorithms import DQN
from gossamer.architectures import ApeX, Gorila
from gossamer.envs.toy import Catch
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.launch.threads import threads
from gossamer.program import Program
from gossamer.storage.contents import LOG
from gossamer.task import Recovered, Task

SMALL = DQN(
    buffer_size=4000, batch_size=16, n_step=2, samples_per_insert=2.0, learning_starts=64, target_period=10,
    priority_exponent=0.6, exploration="by-environment",
)  # fmt: skip
WIRED = {
    "apex": ApeX(actors=2, num_envs=4, replay_shards=2),
    "apex on hosts": ApeX(hosts=2, actors=1, num_envs=2, replay_shards=2),
    "gorila apart": Gorila(actors=2, learners=2, num_envs=2, shards=2, replay_shards=2),
}


def a_dqn_task() -> Task:
    return a_task(Catch(), SMALL, rollout_length=4)


@pytest.mark.parametrize("launch", [threads, Simulation(1, Network(latency=0.01))], ids=["threads", "simulation"])
@pytest.mark.parametrize("name", WIRED)
def test_every_step_is_stored_once_and_samples_are_drawn_at_their_ratio(name: str, launch: Any) -> None:
    """Rollouts are 8 steps. Two samples of 2 steps each are owed for each step from the 64th on."""
    watcher = Watcher(steps=960)
    program: Program = WIRED[name].program(a_dqn_task())
    launch(program, watcher)
    reports = watcher.records
    assert sum(report.steps for report in reports) == 960
    assert sum(report.stored or 0 for report in reports) == 960
    drawn, most = sum(report.drawn for report in reports) // 2, 2 * (960 - 64 + 8)
    assert most - 16 < drawn <= most
    tried = sum(report.updates + sum(report.dropped.values()) for report in reports)
    assert tried == drawn // 16


@pytest.mark.parametrize("host", ["actors0", "replay0", "replay1", "learner"])
def test_a_host_that_fails_is_restarted_and_the_run_ends(host: str) -> None:
    watcher = Watcher(steps=1600)
    apex = ApeX(hosts=2, actors=1, num_envs=2, replay_shards=2)
    simulation = Simulation(3, Network(latency=0.01), Faults(crashes=[(2.0, host, 2.0)]), patience=1000.0)
    simulation(apex.program(a_dqn_task()), watcher)
    assert len(simulation.crashes) == 1
    lost = sum(report.lost for report in watcher.records)
    assert (lost > 0) == host.startswith("replay")
    assert sum(report.updates for report in watcher.records) > 100


class Restarts(Watcher):
    """Notes how a learner was restarted, and how many updates had been reported before."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.restarts: list[tuple[Recovered, int]] = []

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, Recovered):
            self.restarts.append((record, sum(report.updates for report in self.records)))
        super().report(worker, record)


@pytest.mark.parametrize("at", [4.0, 5.0])
def test_a_restarted_learner_goes_on_from_the_actors_parameters_although_they_wait_for_it(at: float) -> None:
    """The actors wait until samples are drawn, so no actor takes the parameters that its host received last. The host
    has those of the last update, or of the one before it."""
    watcher, apex = Restarts(steps=1200), ApeX(hosts=2, actors=1, num_envs=2, replay_shards=2)
    simulation = Simulation(1, Network(latency=0.01), Faults(crashes=[(at, "learner", 2.0)]), patience=1000.0)
    simulation(apex.program(a_dqn_task()), watcher)
    ((recovered, reported),) = watcher.restarts
    assert recovered.copied
    assert reported > 20
    assert reported - 2 <= recovered.version <= reported + 1  # one that was not reported


@pytest.mark.parametrize(
    "given", [{}, pytest.param({"replay_shards": 1, "hosts": 1, "actors": 1}, marks=pytest.mark.long)], ids=str
)
def test_catch_is_solved_with_the_default_settings(given: dict[str, Any], tmp_path: Path) -> None:
    run = solved(tmp_path / "run", "apex", stop_at_return=0.85, steps=60_000, **given)
    replay = result(run.directory)["replay"]
    assert replay["stored"] == result(run.directory)["steps"] >= 5_000
    assert replay["lost"] == replay["unstored"] == 0


def test_a_resumed_run_begins_with_empty_shards(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"env": "catch", "num_envs": 4, "rollout_length": 4, "learning_starts": 64, "threads": 1}
    run = gossamer.train("apex", steps=960, run_dir=tmp_path / "run", log="none", **quick)
    before = checkpoint(run.directory)["workers"]["learn"]["learner"]["updates"]
    gossamer.resume(run.directory, steps=1920)
    assert checkpoint(run.directory)["workers"]["learn"]["learner"]["updates"] > 1.5 * before
    assert result(run.directory)["replay"]["stored"] == 1920


def test_a_resumed_run_goes_on_with_its_saved_shards(tmp_path: Path) -> None:
    """What was stored before is there still, and samples are owed for all steps but the first 56 of the whole run. If
    the shards and their limiter had begun anew, they would not be owed for another 56, which are 112 samples."""
    quick: dict[str, Any] = {
        "env": "catch", "num_envs": 4, "actors": 2, "rollout_length": 4, "learning_starts": 64, "threads": 1,
        "n_step": 2, "batch_size": 16, "samples_per_insert": 2.0, "replay_shards": 2, "save_replay": True,
    }  # fmt: skip
    run = gossamer.train("apex", steps=960, run_dir=tmp_path / "run", log="none", **quick).directory
    before = [checkpoint(run)["services"][f"ReplayShard[{i}]"]["store"]["memory"] for i in range(2)]
    gossamer.resume(run, steps=1920)
    after = [checkpoint(run)["services"][f"ReplayShard[{i}]"]["store"]["memory"] for i in range(2)]
    for old, new in zip(before, after, strict=True):
        assert old["written"].sum() >= 240
        for env, written in enumerate(old["written"]):
            for name in ("action", "reward", "value"):
                assert torch.equal(new["steps"][name][env, :written], old["steps"][name][env, :written])
    gaps = 4  # one place of each environment, so that no window has steps of both runs
    assert sum(memory["written"].sum() for memory in after) == 1920 + gaps
    replay, most = result(run)["replay"], 2 * (1920 - 64 + 8)
    assert (replay["stored"], replay["lost"], replay["unstored"]) == (1920, 0, 0)
    assert most - 16 < replay["drawn"] // 2 <= most


def test_what_saved_shards_have_and_nobody_has_learned_from_is_not_acted_again(tmp_path: Path) -> None:
    """A batch is owed after each 800 steps, first after 864."""
    quick: dict[str, Any] = {
        "env": "catch", "num_envs": 4, "actors": 2, "rollout_length": 4, "threads": 1, "learning_starts": 64,
        "batch_size": 16, "samples_per_insert": 0.02, "replay_shards": 2, "save_replay": True,
    }  # fmt: skip
    run = gossamer.train("apex", steps=4000, run_dir=tmp_path / "run", log="none", **quick).directory
    assert 700 < result(run)["dropped"] == 4000 - result(run)["learned"] < 800
    for steps in (4160, 8000):  # the second time, rollouts of both earlier sessions are there
        gossamer.resume(run, steps=steps)
        found = result(run)
        assert (found["steps"], found["replay"]["stored"], found["replay"]["unstored"]) == (steps, steps, 0)
        assert found["learned"] + found["dropped"] == steps
        assert found["dropped"] < 800
    assert "acted again" not in (run / LOG).read_text()


@pytest.mark.parametrize("launch", [threads, Simulation(1)], ids=["threads", "simulation"])
def test_a_run_that_stores_no_whole_window_ends(launch: Any) -> None:
    """Four environments with two steps each, and windows of four: samples are owed, and there is none to draw."""
    watcher = Watcher(steps=8)
    few = replace(SMALL, n_step=4, learning_starts=4)
    launch(ApeX(num_envs=4).program(a_task(Catch(), few, rollout_length=2)), watcher)
    assert sum(report.steps for report in watcher.records) == 8
    assert sum(report.updates for report in watcher.records) == 0
