"""IMPALA, Ape-X and R2D2 with predictors on the learner's host and actors on others, in seeded schedules with crashes:
no deadlock, and each step is acted once, and learned from or stored, or lost for one reason."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from some_outcomes import Counting
from some_parts import a_task
from sweeps import sweep

from gossamer.algorithms import DQN, R2D2, Algorithm, VTrace
from gossamer.architectures import IMPALA, ApeX, RecurrentReplay
from gossamer.envs.base import EnvFactory
from gossamer.envs.toy import Catch, Recall
from gossamer.launch.simulation import Faults, Network, Simulation

STEPS = 320  # of all actors, which have rollouts of 4 steps of 2 environments
REPLAY: dict[str, Any] = {"learning_starts": 64, "batch_size": 8, "target_period": 10, "buffer_size": 4000}


@dataclass(frozen=True)
class Served:
    """An architecture with what it learns, and from what."""

    kind: Any
    algorithm: Algorithm
    env: EnvFactory
    memory: str


SERVED = {
    "impala": Served(IMPALA, VTrace(), Catch(), "gru"),
    "apex": Served(ApeX, DQN(**REPLAY, n_step=2, samples_per_insert=1.0), Catch(), "none"),
    "r2d2": Served(
        RecurrentReplay,
        R2D2(**REPLAY, sequence_length=8, burn_in=4, n_step=2, replay_ratio=1.0),
        Recall(2),
        "gru",
    ),
}


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("crashing", [("actors0", "actors1"), ("learner",), ("actors0", "actors1", "learner")], ids=str)
@sweep(200, 3)
def test_every_schedule_ends_and_each_step_ends_in_one_place(
    name: str, crashing: tuple[str, ...], seeds: range
) -> None:
    """Predictors are on the host `learner`. A rollout is complete only if each request of it was answered; what a crash
    takes is acted again."""
    chosen, crashes = SERVED[name], Counter[str]()
    task = a_task(chosen.env, chosen.algorithm, memory=chosen.memory, memory_units=4)
    for seed in seeds:
        rng = random.Random(seed)
        groups = rng.choice([1, 2])  # of each actor's environments; both of an actor are never waited for at once
        most = 3 if groups == 1 else 2
        shape = {"hosts": 2, "actors": 1, "num_envs": 2, "predictors": 2, "min_batch": rng.choice([1, most])}
        faults = [(rng.random(), host, rng.random()) for host in (*crashing, rng.choice(crashing))]
        network = Network(latency=rng.uniform(0.01, 0.05), bandwidth=1e8)
        launch = Simulation(seed, network, Faults(crashes=faults), patience=2000.0)
        watch = Counting(steps=STEPS)
        launch(chosen.kind(policy="served", **shape).program(replace(task, groups=groups)), watch)
        crashes.update(host for _, host in launch.crashes)
        watch.check()
        assert watch.progress.steps == STEPS, seed
        if chosen.kind is not IMPALA:  # no memory is lost
            assert sum(report.stored or 0 for report in watch.records) == STEPS, seed
            assert sum(report.lost for report in watch.records) == 0, seed
    assert set(crashes) == set(crashing)
