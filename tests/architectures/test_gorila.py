"""Gorila: one bundle is DQN; gradients that are too old or of outlier losses are dropped and counted; shards fail."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from some_parts import Watcher, a_task
from some_runs import checkpoint, learned, result, rows

import gossamer
from gossamer.algorithms import DQN
from gossamer.architectures import DeepQNetwork, Gorila
from gossamer.envs.toy import Catch
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.launch.threads import threads
from gossamer.page.run import RunView
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS, LOG
from gossamer.task import ShardRestored, Task, WorkerReport
from gossamer.training import experiment, session
from gossamer.training.display import panel
from gossamer.training.observer import RunObserver
from gossamer.training.progress import Progress

SMALL = DQN(buffer_size=400, batch_size=16, n_step=2, samples_per_insert=2.0, learning_starts=64, target_period=10)
QUICK: dict[str, Any] = {
    "env": "catch", "num_envs": 4, "rollout_length": 4, "steps": 960, "threads": 1, "learning_starts": 64,
    "batch_size": 16, "samples_per_insert": 2.0, "buffer_size": 400, "target_period": 10,
}  # fmt: skip


def a_dqn_task() -> Task:
    return a_task(Catch(), SMALL, optimizer="adagrad", rollout_length=4)


def model_of(watcher: Watcher) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = watcher.saved["act_and_learn"]["learner"]["model"]
    return {name: tensor for name, tensor in state.items() if name != "target.age"}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("launch", [threads, Simulation(1)], ids=["threads", "simulation"])
def test_one_bundle_without_limits_is_dqn_to_the_bit(launch: Any, shards: int) -> None:
    alone, bundle = Watcher(steps=960), Watcher(steps=960)
    threads(DeepQNetwork(num_envs=4).program(a_dqn_task()), alone)
    gorila = Gorila(bundles=1, shards=shards, num_envs=4, max_delay=10**9, loss_deviations=0)
    launch(gorila.program(a_dqn_task()), bundle)
    expected, found = model_of(alone), model_of(bundle)
    assert expected.keys() == found.keys()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    assert sum(report.updates for report in bundle.records) == sum(report.updates for report in alone.records) > 90


@pytest.mark.parametrize("limit", [0, 1, 10**9])
def test_gradients_that_met_newer_parameters_than_the_limit_are_dropped_and_counted(limit: int) -> None:
    """Three bundles push what they computed at parameters that the others change meanwhile: a call takes 20 ms."""
    watcher = Watcher(steps=1920)
    gorila = Gorila(bundles=3, num_envs=4, max_delay=limit, loss_deviations=0)
    Simulation(1, Network(latency=0.01))(gorila.program(a_dqn_task()), watcher)
    applied = [stale for report in watcher.records for stale in report.staleness]
    dropped = sum(report.dropped.get("stale", 0) for report in watcher.records)
    updates = sum(report.updates for report in watcher.records)
    assert max(applied) <= limit
    assert (dropped > 0) == (limit < 2)
    assert watcher.saved["ParameterShard"]["version"] == updates
    assert updates == sum(count for report in watcher.records for count in report.staleness.values())


def test_outlier_losses_change_nothing_and_are_counted() -> None:
    watcher = Watcher(steps=1920)
    threads(Gorila(bundles=1, num_envs=4, loss_deviations=0.5).program(a_dqn_task()), watcher)
    dropped = sum(report.dropped.get("outlier", 0) for report in watcher.records)
    assert dropped > 0
    batches = 2 * (1920 // 16 - 3)
    assert sum(report.updates for report in watcher.records) == batches - dropped


def test_what_the_server_dropped_is_in_the_result_the_rows_the_panel_and_the_page(tmp_path: Path) -> None:
    given = {**QUICK, "bundles": 1, "steps": 1920, "loss_deviations": 0.5}
    directory = gossamer.train("gorila", run_dir=tmp_path / "run", log="none", **given).directory
    gradients = result(directory)["gradients"]
    assert gradients["dropped"].keys() == {"outlier"}
    dropped = gradients["dropped"]["outlier"]
    assert gradients["applied"] + dropped == 2 * (1920 // 16 - 3)
    assert rows(directory)[-1]["dropped_outlier"] == dropped
    progress = Progress(1920, frames_per_step=1)
    progress.load_state_dict(Store(directory / CHECKPOINTS).get().load()["progress"])
    Console(width=100, file=(shown := io.StringIO())).print(panel(progress, "the title", [], 100))
    assert f"0.0 updates stale, at most 0; dropped: {dropped} outlier" in shown.getvalue()
    view = RunView("run", directory)
    view.read_all()
    assert view.rows.columns["dropped_outlier"][-1] == dropped


def test_target_networks_are_copied_at_multiples_of_the_servers_count() -> None:
    """With two bundles, each makes about half of the updates; a target copied every ten of its own would be half as
    often as one of the server's."""
    watcher = Watcher(steps=1920)
    Simulation(1, Network(latency=0.01))(Gorila(bundles=2, num_envs=4).program(a_dqn_task()), watcher)
    version = watcher.saved["ParameterShard"]["version"]
    for bundle in range(2):
        state = watcher.saved[f"act_and_learn[{bundle}]"]
        copied = int(state["learner"]["model"]["target.age"]) - 1
        assert version - copied < 10 + 5  # of the last version that is a multiple of 10; others' updates come after it
        assert state["learner"]["updates"] < 0.6 * version


class Restored(Watcher):
    """Keeps what shards tell, and lets workers go on from what they saved last."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.told: list[tuple[str, ShardRestored]] = []

    def restored(self, worker: str) -> Any | None:
        return self.saved.get(worker)

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if isinstance(record, ShardRestored):
            self.told.append((worker, record))


def test_a_shard_that_fails_goes_on_from_its_snapshot_while_learners_go_on() -> None:
    watcher = Restored(steps=4800)
    gorila = Gorila(bundles=2, shards=2, num_envs=4, snapshot_seconds=0.5)
    faults = Faults(crashes=[(1.7, "shard1", 1.0)])
    Simulation(2, Network(latency=0.005), faults, patience=500.0)(gorila.program(a_dqn_task()), watcher)
    ((worker, told),) = watcher.told
    restored, lost = told.version, told.lost
    assert worker == "tend[1]"
    assert restored > 0
    assert lost > 0
    first, second = (watcher.saved[f"ParameterShard[{shard}]"]["version"] for shard in range(2))
    assert first > second > restored  # shard 0 applied what shard 1 missed
    assert sum(report.steps for report in watcher.records) == 4800


@pytest.mark.parametrize("capacity", [400, 10_000])
@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_dead_bundle_loses_is_counted_exactly(
    seed: int, capacity: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is lost with it: all that it had stored by then, or as much of it as it kept."""
    at_death: list[int] = []
    stored: Counter[str] = Counter()

    class Watching(RunObserver):
        def report(self, worker: str, record: Any) -> None:
            super().report(worker, record)
            if isinstance(record, WorkerReport):
                stored[worker] += record.stored or 0

        def died(self, worker: str) -> None:
            super().died(worker)
            if worker == "act_and_learn[1]":
                at_death.append(stored[worker])

    launch = Simulation(seed, Network(latency=0.005), Faults(crashes=[(2.5, "bundle1", 1.0)]), patience=500.0)
    monkeypatch.setattr(experiment, "threads", launch)
    monkeypatch.setattr(session, "RunObserver", Watching)
    given = {**QUICK, "bundles": 2, "steps": 4800, "buffer_size": capacity}
    run = gossamer.train("gorila", run_dir=tmp_path / "run", log="none", **given).directory
    replay = result(run)["replay"]
    assert len(at_death) == 1
    assert at_death[0] > 400
    assert replay["lost"] == min(at_death[0], capacity)
    assert (replay["stored"], replay["unstored"]) == (4800, 0)
    assert f"act_and_learn[1] died, and with it {replay['lost']:,} steps" in (run / LOG).read_text()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_restarted_shard_does_not_wait_for_learners_that_have_ended(when: str) -> None:
    """Learners that end while it is away tell it when it answers again; of others it hears when it restarts. Without a
    crash the learners end before the last beat of the shards, 0.2 seconds after the one before."""
    network, gorila = Network(latency=0.005, timeout=0.05), Gorila(bundles=2, shards=2, num_envs=4)
    quiet = Simulation(2, network)
    quiet(gorila.program(a_dqn_task()), Watcher(steps=960))
    crash = (1.0, "shard1", 50.0) if when == "before" else (quiet.now - 0.02, "shard1", 2.0)
    watcher, simulation = Watcher(steps=960), Simulation(2, network, Faults(crashes=[crash]))
    simulation(gorila.program(a_dqn_task()), watcher)
    assert simulation.crashes == [crash[:2]]
    back = crash[0] + crash[2]
    assert back <= simulation.now < back + 1
    assert sum(report.steps for report in watcher.records) == 960


def test_catch_is_solved_with_the_default_settings(tmp_path: Path) -> None:
    run = learned(tmp_path / "run", "gorila", steps=30_000, greedy=True)
    gradients = result(run.directory)["gradients"]
    assert gradients["applied"] > 1000
    assert gradients["staleness"]["max"] >= 1


def test_a_resumed_run_goes_on_from_the_shards(tmp_path: Path) -> None:
    run = gossamer.train("gorila", bundles=2, shards=2, run_dir=tmp_path / "run", log="none", **QUICK)
    saved = checkpoint(run.directory)["services"]
    gossamer.resume(run.directory, steps=1920)
    after = checkpoint(run.directory)["services"]
    for shard in ("ParameterShard[0]", "ParameterShard[1]"):
        assert after[shard]["version"] > saved[shard]["version"] > 0
