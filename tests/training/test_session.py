"""What `result.json` says of the queue, the policy lag and the time of every architecture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from some_runs import result, rows

import gossamer
from gossamer.config.names import ARCHITECTURES
from gossamer.data import Array, Step
from gossamer.envs.toy import ToyVector
from gossamer.storage.contents import LOG
from gossamer.system.usage import GPUSample
from gossamer.training import session
from gossamer.workers.learner import Learner

MINIBATCHES: dict[str, Any] = {"epochs": 2, "num_minibatches": 2}
IN_TURN: list[tuple[str, dict[str, Any]]] = [  # architectures that learn from each batch before they act again
    ("paac", {"algorithm": "ppo"}),
    ("gala", {"algorithm": "ppo", "learners": 2, "diagnostics": False}),
    ("pala", {"algorithm": "ppo", "hosts": 2, "learners": 1, "diagnostics": False}),
    ("a3c", {"algorithm": "ppo", "learners": 2}),
    ("impala", {"algorithm": "appo", "actors": 2, "depth": 1}),
    ("impala", {"algorithm": "appo", "actors": 2, "depth": 1, "hosts": 1}),
    ("a2c", {"algorithm": "ppo", "learners": 2}),
    ("a2c", {"algorithm": "ppo", "hosts": 2, "learners": 1}),
    ("ga3c", {"algorithm": "ppo", "agents": 1}),
    ("appo", {"actors": 2, "depth": 1}),
    ("appo", {"actors": 1, "depth": 1, "learners": 2}),
]
QUEUES = ("impala", "appo")
queues = pytest.mark.parametrize("name", QUEUES)


def trained(folder: Path, name: str, **given: Any) -> dict[str, Any]:
    """The `result.json` of a run of 4 environments."""
    options: dict[str, Any] = {"env": "catch", "num_envs": 4, "rollout_length": 4, "steps": 320, "threads": 1, **given}
    gossamer.train(name, run_dir=folder / "run", **options)
    return result(folder / "run")


def slow_down(monkeypatch: pytest.MonkeyPatch, *, step: float = 0.0, update: float = 0.0) -> None:
    """Let each step of the environments and each update take so many seconds longer."""
    real_step, real_update = ToyVector.step, Learner.update

    def slow_step(env: ToyVector, action: Array) -> Step:
        time.sleep(step)
        return real_step(env, action)

    def slow_update(learner: Learner, *given: Any, **more: Any) -> Any:
        time.sleep(update)
        return real_update(learner, *given, **more)

    if step:
        monkeypatch.setattr(ToyVector, "step", slow_step)
    if update:
        monkeypatch.setattr(Learner, "update", slow_update)


def test_every_architecture_is_covered() -> None:
    assert {name for name, _ in IN_TURN} == set(ARCHITECTURES) - {
        "dqn",
        "gorila",
        "apex",
        "r2d2",
        "sarsa",
    }  # whose lag is of replay, or whose algorithm is another one


@pytest.mark.parametrize(("name", "given"), IN_TURN, ids=str)
def test_learning_in_turn_with_acting_has_no_lag_but_that_of_its_minibatches(
    name: str, given: dict[str, Any], tmp_path: Path
) -> None:
    # 320 steps in rollouts of 4 are 80 trajectories. Each is learned from in 4 updates, which are 0, 1, 2 and 3 updates
    # after the version that acted.
    found = trained(tmp_path, name, **given, **MINIBATCHES)
    counts = {"0": 80, "1": 80, "2": 80, "3": 80}
    assert found["policy_lag"] == {"mean": 1.5, "p50": 1, "p90": 3, "max": 3, "trajectories": counts}
    waiting, apart = found["queue"].pop("updates"), name in (*QUEUES, "ga3c")
    assert waiting.keys() == ({"0"} if apart else set())
    assert found["queue"] == ({"mean": 0, "p50": 0, "p90": 0, "max": 0} if apart else {})
    assert (found["steps"], found["learned"], found["reused"]) == (320, 320, 0)
    assert (found["dropped"], found["unreported"]) == (0, 0)
    parts = {"env", "inference", "update", "other"}
    parts |= {"actors_wait", "learner_waits", "load"} if apart else set()
    parts |= {"predictors_wait", "predict"} if name == "ga3c" else set()
    parts |= {"parameters_wait", "send"} if name in QUEUES and "hosts" in given else set()
    parts |= {"gradients_wait"} if name == "a2c" or (given.get("learners") == 2 and name in QUEUES) else set()
    assert found["time"].keys() == parts == {*found["seconds_in"], "other"}
    if name in QUEUES:
        assert found["hosts"].keys() == ({"learner", "actors0"} if "hosts" in given else {"learner"})
    assert min(found["time"].values()) >= 0
    assert sum(found["time"].values()) == pytest.approx(1, abs=0.5e-4 * len(parts))  # each is rounded


@queues
def test_with_a_deeper_queue_the_lag_is_within_its_bound(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # V-trace takes one step for each batch, asynchronous PPO 4 here. An actor is at most 2 batches behind the first of
    # them. Where the learner is slow, one full batch waits behind the one that it takes: the third is being filled; two
    # at the end.
    steps = {"impala": 1, "appo": 4}[name]
    slow_down(monkeypatch, update=0.02)
    found = trained(tmp_path, name, actors=2, depth=3, **(MINIBATCHES if name == "appo" else {}))
    lag, queue = found["policy_lag"], found["queue"]
    counts = {int(behind): count for behind, count in lag["trajectories"].items()}
    assert sum(counts.values()) == 80 * steps
    assert lag["mean"] == pytest.approx(sum(behind * count for behind, count in counts.items()) / (80 * steps))
    assert lag["max"] == max(counts) <= 3 * steps - 1
    assert min(counts) == 0  # of the first batch
    assert 0 <= queue["mean"] <= queue["max"] <= 2
    assert found["dropped"] == 0


@queues
def test_the_shares_of_time_show_that_actors_and_learner_wait_for_each_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One actor in turn with the learner. It waits while the learner updates, but for the last of thirty times; the
    # learner waits while it acts. With 4 steps of 3 ms and one update of 30 ms these two are not equal.
    slow_down(monkeypatch, step=0.003, update=0.03)
    found = trained(tmp_path, name, actors=1, depth=1, steps=480)["time"]
    assert found["actors_wait"] >= 0.5 * found["update"]
    assert found["learner_waits"] >= 0.5 * (found["env"] + found["inference"])
    assert {f"time/{part}" for part in found} <= rows(tmp_path / "run")[-1].keys()


@pytest.mark.parametrize("name", ["gala", "pala"])
def test_gossip_has_its_staleness_and_its_waits(name: str, tmp_path: Path) -> None:
    # With other schedules a run on a busy machine may end before a message arrives.
    found = trained(tmp_path, name, learners=2, sync="lock-step")["gossip"]
    assert found.keys() == {"staleness", "waited_seconds"}
    assert 0 <= found["staleness"]["mean"] <= found["staleness"]["max"]
    assert found["waited_seconds"] >= 0


@queues
def test_dropped_steps_are_those_that_were_not_learned_from_and_a_resumed_run_acts_them_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Counter gives 0 + 1 + .. + 9 = 45 whatever is done. The actor ends the run with the 100th episode of 10 steps,
    # after 25 rollouts, while the slow learner has not passed over all of them.
    slow_down(monkeypatch, update=0.1)
    given: dict[str, Any] = {"rollout_length": 10, "steps": 1_400, "stop_at_return": 45.0, "actors": 1, "depth": 30}
    found = trained(tmp_path, name, env="counter", **given)
    assert found["steps"] < 1_400
    assert found["dropped"] == found["steps"] - found["learned"] > 0
    monkeypatch.undo()
    gossamer.resume(tmp_path / "run")
    told = f"{found['dropped']:,} steps that were in the queue, or acted since the checkpoint, are acted again"
    assert told in (tmp_path / "run" / LOG).read_text()
    again = result(tmp_path / "run")
    assert again["steps"] == again["learned"] == 1_400
    assert again["dropped"] == 0


def test_the_result_has_the_use_of_the_machine_in_this_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Steady:
        def sample(self) -> GPUSample:
            return GPUSample(utilization=0.5, memory=2 * 10**9, watts=100.0)

    used = trained(tmp_path, "paac")["usage"]
    assert used.keys() == {"cores_busy"}
    assert used["cores_busy"] > 0
    monkeypatch.setattr(session, "open_gpu", lambda device: (Steady(), ""))
    gossamer.resume(tmp_path / "run", steps=1_600)
    used = result(tmp_path / "run")["usage"]
    assert (used["gpu_utilization"], used["gpu_memory_gb"], used["gpu_watts"]) == (0.5, 2.0, 100.0)
    # The steps before were acted without it; a step of catch is one frame
    assert used["frames_per_joule"] == pytest.approx((1_600 - 320) / used["gpu_joules"], rel=0.01)
