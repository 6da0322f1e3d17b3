"""Actors tell an algorithm that explores by progress or by environment where they are in the run, and who they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest
from some_parts import Watcher, a_task

from gossamer.algorithms import DQN, VTrace
from gossamer.algorithms.exploration import EpsilonGreedy
from gossamer.architectures import GALA, IMPALA, PAAC, PALA, ApeX, Gorila
from gossamer.launch.simulation import Simulation
from gossamer.program import Program
from gossamer.task import Task

ROLLOUT = 4 * 2  # steps of each environment, environments of each actor


class Exploring(VTrace):
    """Acts as ever, and keeps what it is told."""

    told: ClassVar[list[tuple[int, tuple[int, ...], int]]] = []  # of the class, because workers get copies

    def exploring(self, position: int, envs: Sequence[int], total: int, version: int) -> VTrace:
        self.told.append((position, tuple(envs), total))
        return self


@pytest.mark.parametrize(
    ("wired", "actors"),
    [
        (lambda task: PAAC(num_envs=2).program(task), 1),
        (lambda task: GALA(learners=3, num_envs=2).program(task), 3),
        (lambda task: PALA(hosts=2, learners=2, num_envs=2).program(task), 4),
        (lambda task: IMPALA(actors=3, num_envs=6).program(task), 3),
        (lambda task: IMPALA(actors=2, learners=2, num_envs=8).program(task), 4),
        (lambda task: IMPALA(hosts=2, actors=2, num_envs=4).program(task), 4),
    ],
    ids=["paac", "gala", "pala", "impala", "impala with two learners", "impala between hosts"],
)
def test_every_rollout_has_its_position_and_every_environment_its_index(
    wired: Callable[[Task], Program], actors: int
) -> None:
    Exploring.told.clear()
    Simulation(1)(wired(a_task(algorithm=Exploring(), rollout_length=4)), Watcher(steps=20 * ROLLOUT))
    positions, indices, totals = zip(*Exploring.told, strict=True)
    assert sorted(positions) == [ROLLOUT * i for i in range(20)]
    assert set(indices) == {(2 * rank, 2 * rank + 1) for rank in range(actors)}
    assert set(totals) == {2 * actors}


class ExploringByValue(DQN):
    """Acts as ever, and keeps what it is told."""

    told: ClassVar[list[tuple[tuple[int, ...], int, int]]] = []  # of the class, because workers get copies

    def exploring(self, position: int, envs: Sequence[int], total: int, version: int) -> EpsilonGreedy:
        self.told.append((tuple(envs), total, version))
        return super().exploring(position, envs, total, version)


@pytest.mark.parametrize(
    ("wired", "actors", "learners"),
    [
        (lambda task: ApeX(hosts=2, actors=2, num_envs=4).program(task), 4, 1),
        (lambda task: Gorila(bundles=3, num_envs=2).program(task), 3, 3),
        (lambda task: Gorila(actors=3, num_envs=2).program(task), 3, 1),
    ],
    ids=["apex between hosts", "gorila", "gorila with actors apart"],
)
def test_with_a_shared_memory_or_a_server_too_and_versions_count_the_updates_of_all(
    wired: Callable[[Task], Program], actors: int, learners: int
) -> None:
    ExploringByValue.told.clear()
    algorithm = ExploringByValue(buffer_size=400, learning_starts=16, batch_size=8, exploration="by-environment")
    watcher = Watcher(steps=40 * ROLLOUT)
    Simulation(1)(wired(a_task(algorithm=algorithm, rollout_length=4)), watcher)
    indices, totals, versions = zip(*ExploringByValue.told, strict=True)
    assert set(indices) == {(2 * rank, 2 * rank + 1) for rank in range(actors)}
    assert set(totals) == {2 * actors}
    updates = sum(report.updates for report in watcher.records)
    assert updates / learners < max(versions) <= updates if learners > 1 else 0 < max(versions) <= updates
