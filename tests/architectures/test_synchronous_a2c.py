"""A2C: learners on one host and on several stay equal, whatever they learn with, also after a host has been away."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from some_parts import Slow, Watcher, a_task, differences

import gossamer
from gossamer.algorithms import A2C, DQN, PPO, PQN, NStepQ
from gossamer.architectures import SynchronousA2C
from gossamer.config.file import flat
from gossamer.config.resolve import configure
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.launch.threads import threads
from gossamer.loops import act_and_learn
from gossamer.task import Regrouped

FAR = Network(latency=0.01, bandwidth=1e8)
REPLAYING = DQN(buffer_size=400, batch_size=16, samples_per_insert=2.0, learning_starts=64, target_period=10)
ALGORITHMS = [A2C(), PPO(num_minibatches=2), NStepQ(), PQN(num_minibatches=2), REPLAYING]


class Restored(Watcher):
    """Workers go on from what they saved last. Keeps the changes of the group."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.changes: list[Regrouped] = []

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if isinstance(record, Regrouped):
            self.changes.append(record)


def states(watcher: Watcher) -> list[Any]:
    """Of each learner: network with target, optimizer, and version."""
    saved = [watcher.saved[name] for name in sorted(watcher.saved) if name.startswith("act_and_learn")]
    return [[each["learner"]["model"], each["learner"]["optimizer"], each["exchange"]["iteration"]] for each in saved]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: type(algorithm).__name__)
@pytest.mark.parametrize(
    ("launch", "hosts", "learners"),
    [(threads, 1, 3), (Simulation(1, FAR), 1, 3), (Simulation(2, FAR), 3, 1), (Simulation(3, FAR), 2, 2)],
    ids=["threads", "simulation", "3 hosts", "2 hosts"],
)
def test_all_learners_are_equal(launch: Any, hosts: int, learners: int, algorithm: Any) -> None:
    watcher = Watcher(steps=960)
    launch(SynchronousA2C(hosts=hosts, learners=learners, num_envs=4).program(a_task(algorithm=algorithm)), watcher)
    first, *others = states(watcher)
    assert first[2] > 0
    assert len(others) == hosts * learners - 1
    assert all(differences(first, other) == [] for other in others)


def slow(ctx: Any, *args: Any, **given: Any) -> None:
    act_and_learn(Slow(ctx), *args, **given)


@pytest.mark.parametrize("host", [0, 1])
@pytest.mark.parametrize("algorithm", [A2C(), replace(REPLAYING, learning_starts=8)], ids=["a2c", "dqn"])
def test_a_host_that_comes_back_has_the_others_parameters_optimizer_and_target(algorithm: Any, host: int) -> None:
    watcher = Restored(steps=3000)
    program = SynchronousA2C(hosts=3, learners=1, num_envs=4).program(a_task(algorithm=algorithm))
    simulation = Simulation(1, FAR, Faults(crashes=[(6.0, f"host{host}", 14.0)]), patience=500.0)
    simulation(program.with_loops({act_and_learn: slow}), watcher)
    assert [(change.left, change.joined) for change in watcher.changes] == [((host,), ()), ((), (host,))]
    assert all(change.waited < 15 for change in watcher.changes)
    first, *others = states(watcher)
    assert all(differences(first, other) == [] for other in others)


@pytest.mark.parametrize("seed", range(3))
def test_a_gradient_whose_parameters_are_replaced_is_dropped_and_no_update(seed: int) -> None:
    """While the network is cut, both sides take steps; then one of them continues from the other's state."""
    watcher = Restored(steps=4000)
    program = SynchronousA2C(hosts=2, learners=2, num_envs=4).program(a_task())
    simulation = Simulation(seed, FAR, Faults(partitions=[(6.0, 18.0, {"host0"})]), patience=500.0)
    simulation(program.with_loops({act_and_learn: slow}), watcher)
    assert [change.joined for change in watcher.changes].count(()) < len(watcher.changes)
    gradients = sum(report.learned for report in watcher.records) // 16  # one of each batch of 4 x 4 steps
    dropped = sum(report.dropped.get("replaced", 0) for report in watcher.records)
    assert dropped == 2  # of the learners of one host
    assert sum(report.updates for report in watcher.records) == gradients - dropped


def test_environments_are_shared_and_published_settings_are_of_all_learners() -> None:
    def made(architecture: str = "a2c", env: str = "catch", **given: Any) -> Any:
        return SimpleNamespace(**flat(configure(architecture, env=env, **given)))

    assert made().num_envs * 2 == 32  # as paac
    assert made(hosts=2, learners=4).num_envs * 8 == 32
    assert made(num_envs=5).num_envs == 5
    paper = made(preset="paper", hosts=2, learners=2, env="catch-pixels")
    assert paper.num_envs * 4 == 16  # 16 environments of nsteps = 5, in all: OpenAI baselines
    assert (paper.rollout_length, paper.learning_rate, paper.optimizer) == (5, 7e-4, "rmsprop-tf")
    ppo, paac = made(algorithm="ppo"), made("paac", algorithm="ppo")
    assert ppo.num_envs * 2 == paac.num_envs
    assert ppo.num_minibatches == paac.num_minibatches  # of half as many steps of each learner


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hosts": 0}, "--hosts 0: must be at least 1"),
        ({"learners": 0}, "--learners 0: must be at least 1"),
        ({"hosts": 2.5}, "--hosts 2.5: must be of type int"),
        ({"shards": 2}, "--shards 2: not an option of a2c"),
    ],
)
def test_bad_values_are_refused_in_a_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(gossamer.UserError, match=message) as refused:
        configure("a2c", env="catch", **given)
    assert "\n" not in str(refused.value)
