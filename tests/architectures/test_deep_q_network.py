"""DQN: it learns, by itself and under the other architectures; what it stores, draws and learns from is counted; what
it does not work with is refused before anything is written."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from some_parts import Watcher, a_task, differences
from some_runs import checkpoint, learned, result, solved

import gossamer
from gossamer.algorithms import DQN
from gossamer.architectures import GALA, PAAC, DeepQNetwork
from gossamer.envs.toy import Catch
from gossamer.launch.simulation import Simulation
from gossamer.launch.threads import threads
from gossamer.program import Program
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import LOG
from gossamer.training import experiment, session
from gossamer.training.checkpoints import Checkpoints

SMALL = DQN(buffer_size=400, batch_size=16, n_step=2, samples_per_insert=2.0, learning_starts=64, target_period=10)
QUICK: dict[str, Any] = {
    "env": "catch", "num_envs": 4, "rollout_length": 4, "steps": 480, "threads": 1, "learning_starts": 64,
    "batch_size": 16, "samples_per_insert": 2.0,
}  # fmt: skip


def test_catch_is_solved_with_the_default_settings(tmp_path: Path) -> None:
    solved(tmp_path / "run", "dqn", stop_at_return=0.95, steps=60_000)


@pytest.mark.long
def test_cart_pole_is_learned_with_the_default_settings(tmp_path: Path) -> None:
    learned(tmp_path, "dqn", env="CartPole-v1", least=475, episodes=20, greedy=True)


@pytest.mark.parametrize("launch", [threads, Simulation(1)], ids=["threads", "simulation"])
@pytest.mark.parametrize(
    ("wired", "members"),
    [
        (lambda task: DeepQNetwork(num_envs=4).program(task), 1),
        (lambda task: PAAC(num_envs=4).program(task), 1),
        (lambda task: GALA(learners=2, num_envs=4).program(task), 2),
    ],
    ids=["dqn", "paac", "gala"],
)
def test_every_step_is_stored_once_and_samples_are_drawn_at_their_ratio(launch: Any, wired: Any, members: int) -> None:
    """A rollout is 16 steps. A member's memory has 64 steps after four of them; that one and each later one are drawn
    from twice 16 / 16 = 2 times, 16 windows of 2 steps each."""
    watcher, rollouts = Watcher(steps=480), 480 // 16
    program: Program = wired(a_task(Catch(), SMALL, rollout_length=4))
    launch(program, watcher)
    reports = watcher.records
    assert sum(report.steps for report in reports) == 480
    updates = sum(report.updates for report in reports)
    assert updates == 2 * (rollouts - 3 * members)
    assert sum(report.learned for report in reports) == 480
    # What was drawn besides is learned from again: 32 steps a batch, of which those that are new count as learned
    again = sum(report.reused for report in reports)
    assert 32 * updates - 480 <= again <= 32 * updates


@pytest.mark.parametrize("launch", [threads, Simulation(1)], ids=["threads", "simulation"])
def test_apart_each_step_is_stored_once_and_drawn_at_the_same_ratio(launch: Any) -> None:
    """Two samples of 2 steps each are owed for each step from the 64th on, as in turn."""
    watcher = Watcher(steps=960)
    launch(DeepQNetwork(num_envs=4, apart=True).program(a_task(Catch(), SMALL, rollout_length=4)), watcher)
    reports = watcher.records
    assert sum(report.steps for report in reports) == sum(report.stored or 0 for report in reports) == 960
    drawn, most = sum(report.drawn for report in reports) // 2, 2 * (960 - 64 + 16)
    assert most - 32 < drawn <= most
    assert sum(report.updates for report in reports) == drawn // 16


def test_catch_is_solved_by_acting_and_learning_apart(tmp_path: Path) -> None:
    run = solved(tmp_path / "run", "dqn", stop_at_return=0.95, steps=60_000, apart=True)
    replay = result(run.directory)["replay"]
    assert replay["stored"] == result(run.directory)["steps"] >= 5_000
    assert replay["lost"] == replay["unstored"] == 0


def test_a_resumed_run_says_that_its_memory_is_empty_and_goes_on_to_learn(tmp_path: Path) -> None:
    run = gossamer.train("dqn", run_dir=tmp_path / "run", log="none", **QUICK)
    before = checkpoint(run.directory)["workers"]["act_and_learn"]["learner"]["updates"]
    gossamer.resume(run.directory, steps=960)
    assert "the replay memory is empty; learning goes on when it has 64 steps" in (run.directory / LOG).read_text()
    after = checkpoint(run.directory)["workers"]["act_and_learn"]["learner"]["updates"]
    assert after == 2 * before  # another 480 steps, of which the first 48 only fill the memory
    assert (result(run.directory)["learned"], result(run.directory)["dropped"]) == (960, 0)


@pytest.mark.parametrize("name", ["dqn", "gorila"])
def test_resuming_with_the_memory_is_exact(name: str, tmp_path: Path) -> None:
    """Gorila's bundles depend on the order of their threads, but a single one does not."""
    given = {**QUICK, "save_replay": True, "priority_exponent": 0.6, "anneal_steps": 960, "epsilon_steps": 480}
    given |= {"bundles": 1} if name == "gorila" else {}
    gossamer.train(name, run_dir=tmp_path / "part", log="none", **given)
    gossamer.resume(tmp_path / "part", steps=960)
    gossamer.train(name, run_dir=tmp_path / "whole", log="none", **{**given, "steps": 960})
    part, whole = (checkpoint(tmp_path / each)["workers"]["act_and_learn"] for each in ("part", "whole"))
    assert differences(part["learner"], whole["learner"]) == []
    assert differences(part["experience"], whole["experience"]) == []
    assert "empty" not in (tmp_path / "part" / LOG).read_text()


@pytest.mark.parametrize(
    "late", [{"learning_starts": 640}, {"samples_per_insert": 0.3}], ids=["nothing drawn", "seldom drawn"]
)
def test_resuming_with_steps_that_nobody_has_learned_from_is_exact(
    late: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the memory, and are not acted again."""
    often = {"seconds": math.inf, "steps": 240}
    monkeypatch.setattr(session, "Checkpoints", lambda *given, **more: Checkpoints(*given, **{**more, **often}))
    given = {**QUICK, "save_replay": True, "steps": 960, **late}
    run = gossamer.train("dqn", run_dir=tmp_path / "run", log="none", keep=9, **given).directory
    whole, before = checkpoint(run)["workers"]["act_and_learn"], result(run)
    first, *later = Store(run / "checkpoints").all()
    progress = first.load()["progress"]
    assert progress["learned"] < progress["steps"] == 240
    for each in later:
        shutil.rmtree(each.path)
    gossamer.resume(run)
    after = checkpoint(run)["workers"]["act_and_learn"]
    assert differences(after["learner"], whole["learner"]) == []
    assert differences(after["experience"], whole["experience"]) == []
    assert "acted again" not in (run / LOG).read_text()
    for name in ("steps", "learned", "dropped", "episodes", "replay"):
        assert result(run)[name] == before[name], name


def test_a_memory_on_disk_learns_what_one_in_memory_does(tmp_path: Path) -> None:
    for folder in ("", str(tmp_path / "pictures")):
        gossamer.train("dqn", run_dir=tmp_path / f"run{bool(folder)}", log="none", replay_dir=folder, **QUICK)
    one, other = (checkpoint(tmp_path / f"run{each}")["workers"]["act_and_learn"] for each in (True, False))
    assert differences(one["learner"], other["learner"]) == []
    assert list((tmp_path / "pictures").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "shape"),
    [("a2c", {"learners": 2}), ("gala", {"learners": 2}), ("gorila", {"bundles": 2, "shards": 2})],
    ids=["a2c", "gala", "gorila"],
)
def test_resuming_with_several_memories_is_exact_in_the_simulation(
    name: str, shape: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a checkpoint in its midst."""
    monkeypatch.setattr(experiment, "threads", lambda program, observer: Simulation(1)(program, observer))
    steps = {"seconds": math.inf, "steps": 240}
    monkeypatch.setattr(session, "Checkpoints", lambda *given, **more: Checkpoints(*given, **{**more, **steps}))
    given = {**QUICK, "algorithm": "dqn", "save_replay": True, "priority_exponent": 0.6, "anneal_steps": 960}
    run = gossamer.train(name, run_dir=tmp_path / "run", log="none", keep=9, **given, **shape).directory
    whole = checkpoint(run)["workers"]
    first, *later = Store(run / "checkpoints").all()
    assert first.steps < given["steps"] * 3 / 4
    for each in later:
        shutil.rmtree(each.path)
    gossamer.resume(run, steps=given["steps"])
    assert differences(checkpoint(run)["workers"], whole) == []
