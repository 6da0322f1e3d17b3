"""Members that act and learn in one place: each learns from every step of its own episodes, in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from some_parts import Watcher, a_task
from some_rollouts import CheckedMembers

from gossamer.architectures import GALA, PAAC, PALA
from gossamer.envs.toy import Counter
from gossamer.exchange.gossip.options import Gossiping
from gossamer.launch.simulation import Network, Simulation
from gossamer.launch.threads import threads
from gossamer.program import Program
from gossamer.task import Task

Launcher = Callable[..., None]
ENVS, ROLLOUT, LENGTH = 3, 5, 7  # environments of a member, steps of a rollout and of an episode
SIZE: dict[str, Any] = {"num_envs": ENVS, "env_workers": 1}
LOCK_STEP = Gossiping(lock_step=True, period=0)
MEMBERS: dict[str, tuple[int, Callable[[Task], Program]]] = {
    "paac": (1, lambda task: PAAC(**SIZE).program(task)),
    "gala": (3, lambda task: GALA(learners=3, **SIZE).program(task, gossip=LOCK_STEP)),
    "pala": (4, lambda task: PALA(hosts=2, learners=2, **SIZE).program(task, gossip=LOCK_STEP, couriers=1)),
}


@pytest.mark.parametrize("launch", [threads, Simulation(1, Network(latency=0.01))], ids=["threads", "simulation"])
@pytest.mark.parametrize("truncate", [False, True], ids=["terminated", "truncated"])
@pytest.mark.parametrize("name", MEMBERS)
def test_everything_lines_up_with_memory(name: str, truncate: bool, launch: Launcher) -> None:
    # Rollouts of 5 steps in episodes of 7: every alignment of the two occurs within 7 rollouts.
    CheckedMembers.seen.clear()
    algorithm = CheckedMembers(gamma=0.5, epochs=2, num_minibatches=ENVS)
    toy = Counter(LENGTH, truncate)
    task = a_task(toy, algorithm, rate=0.0, rollout_length=ROLLOUT, memory="lstm", memory_units=4)
    members, program = MEMBERS[name]
    watcher = Watcher(steps=members * ENVS * ROLLOUT * 8)
    launch(program(task), watcher)
    assert len(CheckedMembers.seen) == members
    assert sum(map(len, CheckedMembers.seen.values())) == watcher.budget.acted
    for seen in CheckedMembers.seen.values():
        for env in range(ENVS):
            steps = [(episode, age) for b, episode, age in seen if b == env]
            assert len(steps) >= ROLLOUT * LENGTH
            assert steps == [divmod(i, LENGTH) for i in range(len(steps))]  # nothing is missing between rollouts
    assert all(report.metrics["kl"] == pytest.approx(0, abs=1e-6) for report in watcher.records)  # pi = mu
