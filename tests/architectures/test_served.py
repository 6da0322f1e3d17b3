"""Architectures whose actors are served: rollouts line up, the lag is bounded, hosts may fail, Catch is learned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from some_parts import Watcher, a_task
from some_rollouts import Checked, Uneven, act_numbered, assert_complete
from some_runs import checkpoint, learned
from torch import nn

import gossamer
from gossamer import cli
from gossamer.algorithms import DQN, R2D2, Algorithm, VTrace
from gossamer.architectures import IMPALA, ApeX, RecurrentReplay
from gossamer.envs.base import EnvFactory
from gossamer.envs.toy import Catch, Counter, Recall
from gossamer.launch import simulation
from gossamer.launch.simulation import Faults, Simulation
from gossamer.launch.threads import threads
from gossamer.loops import act
from gossamer.nn.networks import Network
from gossamer.spaces import Spec
from gossamer.training import experiment

FAR = simulation.Network(latency=0.01, bandwidth=1e8)
SERVED: dict[str, Any] = {"policy": "served", "predictors": 2, "min_batch": 3}
launchers = pytest.mark.parametrize("launch", [threads, Simulation(1, FAR)], ids=["threads", "simulation"])
REPLAY = {"learning_starts": 64, "batch_size": 8, "target_period": 10, "buffer_size": 4000}
STEPS = {"apex": 60_000}  # of training on Catch; of the others 150,000
SMALL = DQN(**REPLAY, n_step=2, samples_per_insert=1.0)


@launchers
@pytest.mark.parametrize(("hosts", "memory"), [(0, "lstm"), (2, "none"), (2, "lstm")])
def test_everything_lines_up(launch: Any, hosts: int, memory: str) -> None:
    Checked.seen.clear()
    task = a_task(
        Counter(7, truncate=True), Checked(gamma=0.5), rate=0.0, rollout_length=5, memory=memory, memory_units=4
    )
    shape = {"hosts": hosts, "actors": 1 if hosts else 2, "num_envs": 3 if hosts else 6, "depth": 3}
    watcher = Uneven({"act[0]": 25, "act[1]": 15})
    launch(IMPALA(**shape, **SERVED).program(task).with_loops({act: act_numbered}), watcher)  # type: ignore[arg-type]
    assert sum(r.steps for r in watcher.records) == sum(r.learned for r in watcher.records) == (25 + 15) * 5 * 3
    assert_complete(Checked.seen, [25 * 5] * 3 + [15 * 5] * 3)


@launchers
@pytest.mark.parametrize("learners", [1, 2])
@pytest.mark.parametrize(("depth", "hosts"), [(1, 0), (3, 0), (1, 2), (3, 2)])
def test_every_step_is_learned_from_once_and_the_lag_is_bounded(
    launch: Any, depth: int, hosts: int, learners: int
) -> None:
    """A lease's stamp is honoured: the bound is that of replicas."""
    watcher = Watcher(steps=480)
    shape: dict[str, Any] = {"actors": 1 if hosts else 2, "num_envs": (2 if hosts else 4) * learners}
    wired = IMPALA(**shape, depth=depth, hosts=hosts, learners=learners, policy="served", predictors=2)
    launch(wired.program(a_task(algorithm=VTrace())), watcher)
    assert sum(r.steps for r in watcher.records) == sum(r.learned for r in watcher.records) >= 480
    lag = {behind for r in watcher.records for behind in r.lag}
    assert min(lag) >= 0
    assert max(lag) <= depth - 1  # one update a batch


@launchers
@pytest.mark.parametrize("hosts", [0, 2])
@pytest.mark.parametrize("kind", [ApeX, RecurrentReplay], ids=["apex", "r2d2"])
def test_every_step_is_stored_once(kind: Any, hosts: int, launch: Any) -> None:
    algorithm: Algorithm = SMALL
    env: EnvFactory = Catch()
    if kind is RecurrentReplay:
        algorithm, env = R2D2(**REPLAY, sequence_length=8, burn_in=4, n_step=2, replay_ratio=1.0), Recall(2)
    task = a_task(env, algorithm, memory="none" if kind is ApeX else "gru", memory_units=4)
    watcher = Watcher(steps=480)
    launch(kind(hosts=hosts, actors=2, num_envs=4, **SERVED).program(task), watcher)
    assert sum(r.steps for r in watcher.records) == sum(r.stored or 0 for r in watcher.records) == 480
    assert sum(r.updates for r in watcher.records) > 5


@pytest.mark.parametrize("host", ["actors0", "learner"])
@pytest.mark.parametrize(("kind", "memory"), [(IMPALA, "none"), (IMPALA, "gru"), (ApeX, "none")])
def test_a_host_that_fails_is_restarted_and_the_run_ends(kind: Any, host: str, memory: str) -> None:
    steps = 1000 if kind is IMPALA else 500
    watcher = Dying(steps=steps)
    task = a_task(algorithm=VTrace() if kind is IMPALA else SMALL, memory=memory, memory_units=4)
    wired = kind(hosts=2, actors=1, num_envs=2, policy="served", predictors=2).program(task)
    launch = Simulation(3, FAR, Faults(crashes=[(1.0, host, 1.0)]))
    launch(wired, watcher)
    assert len(launch.crashes) == 1
    assert launch.now > 2.0  # it went on after the restart
    assert sum(r.steps for r in watcher.records) >= steps
    assert "learner" in watcher.saved["learn"]


class Dying(Watcher):
    """An observer that takes back what dead workers had leased."""

    def died(self, worker: str) -> None:
        self.budget.release(worker)


@dataclass(frozen=True)
class Built(VTrace):
    """V-trace that counts its networks."""

    count: ClassVar[list[int]] = []  # of the class, because workers get copies

    def model(self, spec: Spec, network: Network) -> nn.Module:
        self.count.append(1)
        return super().model(spec, network)


@pytest.mark.parametrize("hosts", [0, 2])
def test_only_learners_and_predictors_have_a_network(hosts: int) -> None:
    Built.count.clear()
    wired = IMPALA(hosts=hosts, actors=2, num_envs=4, policy="served", predictors=2)
    Simulation(1)(wired.program(a_task(algorithm=Built())), Watcher(steps=64))
    assert len(Built.count) == 1 + 2


def test_a_run_is_resumed_with_its_predictors(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"env": "recall", "memory": "gru", "num_envs": 4, "rollout_length": 4, "threads": 1}
    run = gossamer.train("impala", steps=320, run_dir=tmp_path / "run", log="none", **quick, **SERVED)
    before = checkpoint(run.directory)["workers"]["learn"]["learner"]["updates"]
    gossamer.resume(run.directory, steps=640)
    assert checkpoint(run.directory)["workers"]["learn"]["learner"]["updates"] == 2 * before > 0


REFUSED = {
    "impala --predictors 2": "--predictors 2: has no effect without --policy served",
    "apex --max-batch 64": "--max-batch 64: has no effect without --policy served",
    "appo --policy local": "--policy local: must be one of replica, served",
    "appo --policy served --predictors 0": "--predictors 0: must be at least 1",
    "impala --policy served --num-envs 8 --min-batch 9": "--min-batch 9: must be at most 8, the environments of",
    "r2d2 --policy served --actors 4 --min-batch 9 --max-batch 8": "--min-batch 9: must be at most --max-batch 8",
    "apex --policy served --actors 1 --max-batch 8": "--max-batch 8: must be at least 32, the environments of one",
    "impala --policy served --num-envs 8 --alternating --min-batch 5": (
        "--min-batch 5: must be at most 4, with --alternating, which has half of the 8 environments wait at a time"
    ),
    "impala --policy served --num-envs 2 --actors 2 --alternating": "--alternating: each actor has 1 of the --num-envs",
    "ga3c --num-envs 4 --alternating": "--alternating: each actor has 1 of the --num-envs",
    "apex --policy served --actors 1 --alternating --max-batch 8": (
        "--max-batch 8: must be at least 16, the environments of one of the actors in a group"
    ),
    "impala --policy served --batch-timeout 1": "--batch-timeout 1.0: has no effect with --min-batch 1",
    "impala --policy served --min-batch 2 --batch-timeout -1": "--batch-timeout -1",
    "paac --policy served": "--policy",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_predictors_cannot_do_is_refused_in_a_line(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["gossamer", "train", *words.split(), "--env", "catch"])
    assert cli.main() == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert REFUSED[words] in told[-1]
    assert len(told) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("launcher", "name"),
    [
        *((launcher, name) for launcher in ("threads", "simulation") for name in ("impala", "appo", "apex", "r2d2")),
        *(pytest.param("ray", name, marks=pytest.mark.hosts) for name in ("impala", "r2d2")),
    ],
)
def test_catch_is_learned_with_the_default_settings(
    name: str, launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"hosts": 1, "cluster": "local"} if launcher == "ray" else {}
    if launcher == "simulation":
        monkeypatch.setattr(experiment, "threads", Simulation(1, FAR))
    learned(tmp_path, name, policy="served", steps=STEPS.get(name, 150_000), **given)
