"""A worker that assembles batches beside the learner: it changes who does it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from some_parts import Watcher, a_task, differences
from some_runs import result
from torch import nn

import gossamer
from gossamer.algorithms import AsyncPPO, VTrace
from gossamer.algorithms.losses import Loss
from gossamer.architectures import IMPALA
from gossamer.data import Trajectory
from gossamer.experience import Replay
from gossamer.launch.simulation import Network, Simulation
from gossamer.launch.threads import threads
from gossamer.program import Program
from gossamer.workers.learner import NonFinite

Launcher = Callable[..., None]
FAR = Network(latency=0.01, bandwidth=1e8)
launchers = pytest.mark.parametrize("launch", [threads, Simulation(1, FAR)], ids=["threads", "simulation"])
MIXED: dict[str, Any] = {"replay_share": 0.5, "replay_size": 9}


def end_of(launch: Launcher, algorithm: Any = None, *, steps: int = 240, watcher: Watcher | None = None,
           **given: Any) -> Watcher:  # fmt: skip
    """A run with a loader that is over."""
    watcher = watcher or Watcher(steps=steps)
    shape: dict[str, Any] = {"actors": 1, "num_envs": 3, "parallel_loading": True, **given}
    launch(IMPALA(**shape).program(a_task(algorithm=algorithm or VTrace())), watcher)
    return watcher


@launchers
@pytest.mark.parametrize("hosts", [0, 1])
@pytest.mark.parametrize("learners", [1, 2])
def test_batches_are_those_that_a_learner_assembles_itself(launch: Launcher, hosts: int, learners: int) -> None:
    # In turn with acting, everything follows from the seed: what acts, what is learned from, and what is replayed. But
    # several learners draw from the memories of the same hosts, in any order.
    mixed = {} if hosts and learners > 1 else MIXED
    algorithm, shape = AsyncPPO(epochs=2, num_minibatches=2), {"hosts": hosts, "learners": learners, **mixed}
    given: dict[str, Any] = {"num_envs": 3 * learners, "depth": 1, **shape}
    ours, theirs = (end_of(launch, algorithm, parallel_loading=loading, **given) for loading in (True, False))
    assert len(ours.saved) == learners
    assert differences(ours.saved, theirs.saved) == []
    reused = [sum(r.reused for r in watcher.records) for watcher in (ours, theirs)]
    assert reused[0] == reused[1]
    assert (reused[0] > 0) == bool(mixed)


@launchers
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("hosts", [0, 2])
def test_every_step_is_learned_from_once_and_the_lag_is_bounded(launch: Launcher, depth: int, hosts: int) -> None:
    # 42 leases of 12 steps, in batches of 2 rollouts of each actor; the last one is incomplete with 4 rollouts.
    batching: dict[str, Any] = {"batch_rollouts": 4, "depth": depth, "hosts": hosts}
    watcher = end_of(launch, steps=500, actors=2, num_envs=6, **batching)
    assert sum(r.steps for r in watcher.records) == sum(r.learned for r in watcher.records) == 504
    assert sum(r.waiting is not None for r in watcher.records) == 11  # each batch waited once
    lag = {behind for r in watcher.records for behind in r.lag}
    assert min(lag) >= 0
    assert max(lag) <= depth - 1  # one update a batch


@pytest.mark.parametrize("learners", [1, 2])
@pytest.mark.parametrize("depth", [3, 5])
def test_reuse_has_the_lag_of_a_run_without_a_loader(learners: int, depth: int) -> None:
    for seed in range(5):
        shape: dict[str, Any] = {"learners": learners, "num_envs": 3 * learners, "reuse": 2, "depth": depth}
        watcher = end_of(Simulation(seed, FAR), steps=600, hosts=2, **shape)
        assert sum(r.learned for r in watcher.records) == sum(r.steps for r in watcher.records) == 600
        # At most depth - 1 batches of 2 passes, and one pass more of the first batches (K(K-1)/2 with K = 2).
        assert max(behind for r in watcher.records for behind in r.lag) <= 2 * (depth - 1) + 1


@launchers
def test_a_run_that_is_stopped_saves_its_learner(launch: Launcher) -> None:
    watcher = end_of(launch, hosts=1, depth=3, watcher=Watcher(steps=10**6, stop_after=9))
    learned = sum(r.learned for r in watcher.records)
    assert watcher.saved["learn"]["learner"]["steps"] == learned <= sum(r.steps for r in watcher.records)
    again = Watcher(watcher.saved, steps=120)
    end_of(launch, hosts=1, depth=3, watcher=again)
    assert again.saved["learn"]["learner"]["steps"] == learned + 120


@dataclass(frozen=True)
class Infinite(VTrace):
    """V-trace. The loss of the fifth batch is infinite."""

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        for loss in super().losses(model, batch, rng):
            yield Loss(loss.total / float(batch.version.max() < 4), loss.parts)


@launchers
def test_a_learner_that_fails_keeps_its_parameters(launch: Launcher) -> None:
    watcher = Watcher(steps=10**6)
    with pytest.raises(NonFinite, match="became NaN or infinite"):
        end_of(launch, Infinite(), hosts=1, depth=2, watcher=watcher, **MIXED)
    model = watcher.saved["learn"]["learner"]["model"]
    assert all(bool(tensor.isfinite().all()) for tensor in model.values() if tensor.is_floating_point())
    assert watcher.saved["learn"]["learner"]["updates"] >= 4


@launchers
def test_a_loader_that_fails_ends_the_run_and_the_learner_is_saved(
    launch: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed, batches = Replay.mixed, list[Trajectory]()

    def fails(self: Replay, fresh: Trajectory) -> Trajectory:
        batches.append(fresh)
        if len(batches) == 4:
            raise MemoryError("no room for old trajectories")
        return mixed(self, fresh)

    monkeypatch.setattr(Replay, "mixed", fails)
    watcher = Watcher(steps=10**6)
    with pytest.raises(MemoryError, match="no room"):
        end_of(launch, watcher=watcher, depth=2, **MIXED)
    assert watcher.saved["learn"]["learner"]["updates"] in (2, 3)  # it may have been about to take the third one


def test_a_simulated_run_with_a_loader_is_reproducible() -> None:
    given: dict[str, Any] = {"actors": 3, "num_envs": 3, "depth": 3, "reuse": 2, **MIXED}
    one, other = (end_of(Simulation(7), **given).saved for _ in range(2))
    assert differences(one, other) == []


def test_each_learner_has_a_loader_and_the_learner_s_host_has_both() -> None:
    wired = IMPALA(hosts=2, learners=2, actors=1, num_envs=6, parallel_loading=True, **MIXED).program(
        a_task(algorithm=VTrace())
    )
    loaders = [worker for worker in wired.workers if worker.name.startswith("load")]
    assert [(worker.name, worker.host, worker.saved) for worker in loaders] == [
        ("load[0]", "learner", False),
        ("load[1]", "learner", False),
    ]
    chosen = [worker.args[-1] for worker in loaders]
    assert [(each.share, each.size, len(each.hosts)) for each in chosen] == [(0.5, MIXED["replay_size"], 2)] * 2
    for rank in range(2):
        shared = reached(wired, f"load[{rank}]") & reached(wired, f"learn[{rank}]")
        assert shared == {f"TrajectoryQueue[{rank}]", f"NextBatch[{rank}]"}  # the loader draws, not the learner
    plain = IMPALA(actors=1, num_envs=3, **MIXED).program(a_task(algorithm=VTrace()))
    assert [worker.name for worker in plain.workers] == ["learn", "act"]


def reached(wired: Program, worker: str) -> set[str]:
    """The services that a worker has handles to."""
    return {service for who, service in wired.edges() if who == worker}


@pytest.mark.parametrize("loading", [True, False])
def test_the_result_tells_the_loader_s_time_apart(loading: bool, tmp_path: Path) -> None:
    gossamer.train("impala", env="catch", steps=2_000, num_envs=8, actors=2, hosts=1, parallel_loading=loading,
                   threads=1, run_dir=tmp_path / "run")  # fmt: skip
    found = result(tmp_path / "run")
    assert {"load", "learner_waits"} <= found["time"].keys()
    assert ("loader_waits" in found["time"]) == loading
    assert found["learned"] == found["steps"] >= 2_000
    assert sum(found["queue"]["updates"].values()) == -(-found["steps"] // (8 * 5))  # once for each batch
    assert found["config"]["architecture"]["parallel_loading"] is loading
