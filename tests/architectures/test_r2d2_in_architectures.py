"""R2D2 under the architectures that act and learn in one place: what is stored and drawn, and a resumed run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from some_masks import ENVS
from some_parts import Watcher, a_task, differences
from some_runs import checkpoint

import gossamer
from gossamer.algorithms import R2D2
from gossamer.architectures import GALA, PAAC, DeepQNetwork
from gossamer.envs.last import LastActionReward
from gossamer.envs.toy import Counter
from gossamer.launch.simulation import Simulation
from gossamer.launch.threads import threads
from gossamer.program import Program

SMALL = R2D2(
    sequence_length=8, burn_in=4, n_step=2, buffer_size=400, batch_size=4, replay_ratio=2.0, learning_starts=64,
    target_period=10,
)  # fmt: skip
QUICK: dict[str, Any] = {
    "env": "recall", "algorithm": "r2d2", "num_envs": 4, "steps": 480, "threads": 1, "learning_starts": 96,
    "sequence_length": 8, "burn_in": 4, "batch_size": 4, "memory_units": 8,
}  # fmt: skip


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
def test_every_step_is_stored_once_and_trained_at_the_ratio(launch: Any, wired: Any, members: int) -> None:
    """A rollout is 16 steps, and a batch trains 4 * 8. A member's memory has 64 steps after four rollouts: that one and
    each later one give it 2 * 16 trained steps, which are one batch."""
    watcher, rollouts = Watcher(steps=480), 480 // 16
    env = LastActionReward(Counter(9, truncate=True))
    program: Program = wired(a_task(env, SMALL, rollout_length=4, memory="gru", memory_units=8))
    launch(program, watcher)
    assert sum(report.steps for report in watcher.records) == 480
    assert sum(report.updates for report in watcher.records) == rollouts - 3 * members


def test_a_resumed_run_goes_on_to_learn(tmp_path: Path) -> None:
    run = gossamer.train("dqn", run_dir=tmp_path / "run", log="none", **QUICK)
    before = checkpoint(run.directory)["workers"]["act_and_learn"]["learner"]["updates"]
    gossamer.resume(run.directory, steps=960)
    after = checkpoint(run.directory)["workers"]["act_and_learn"]["learner"]["updates"]
    assert after == 2 * before > 0


@pytest.mark.parametrize("name", ["dqn", "gorila"])
def test_resuming_with_the_memory_of_sequences_is_exact(name: str, tmp_path: Path) -> None:
    given = {**QUICK, "save_replay": True, "anneal_steps": 960, "epsilon_steps": 480}
    given |= {"bundles": 1} if name == "gorila" else {}
    gossamer.train(name, run_dir=tmp_path / "part", log="none", **given)
    gossamer.resume(tmp_path / "part", steps=960)
    gossamer.train(name, run_dir=tmp_path / "whole", log="none", **{**given, "steps": 960})
    part, whole = (checkpoint(tmp_path / each)["workers"]["act_and_learn"] for each in ("part", "whole"))
    assert part["learner"]["updates"] > 20
    assert differences(part["learner"], whole["learner"]) == []
    assert differences(part["experience"], whole["experience"]) == []


def test_stacks_of_pictures_beside_the_last_action_are_learned_from(tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="the extra [atari] is not installed")
    small = {name: value for name, value in QUICK.items() if name != "env"}
    run = gossamer.train("dqn", env="pong", run_dir=tmp_path / "run", log="none", **small)
    assert checkpoint(run.directory)["workers"]["act_and_learn"]["learner"]["updates"] > 0


def test_only_valid_actions_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed door raises."""
    monkeypatch.syspath_prepend(ENVS)
    options = {**QUICK, "env": "more_envs:doors", "steps": 2_000, "action_masks": True}
    run = gossamer.train("dqn", run_dir=tmp_path / "run", log="none", **options)
    assert gossamer.evaluate(run.directory, episodes=10, greedy=True).episodes == 10
