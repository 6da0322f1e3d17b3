"""What becomes of every environment step of IMPALA's wiring in seeded schedules, with crashes and with a network that
is cut: learned from, or dropped for one reason. `test_pool_schedules` and `test_replay_schedules` have the others."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from some_outcomes import Counting
from sweeps import sweep

from gossamer import loops
from gossamer.architectures import IMPALA
from gossamer.data import Batch, Updated
from gossamer.exchange import Broadcast, Follower
from gossamer.experience import Assembler, LearnerQueue, NextBatch, Replaying, TrajectoryQueue
from gossamer.experience.base import ActorExperience, untimed
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.loops import Envs
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.runtime import Context, Stopped
from gossamer.task import WorkerReport
from gossamer.tools.simulate.actors.workers import Worker, Workload
from gossamer.tools.simulate.stand_in import Point, StandIn

ROLLOUTS = 40  # in a run
WIRINGS: dict[str, dict[str, Any]] = {
    "in turn": {"depth": 1},
    "reuse and loader": {"depth": 3, "reuse": 2, "parallel_loading": True},
    "learners": {"depth": 3, "reuse": 2, "learners": 2},
    "here": {"depth": 4, "hosts": 0, "actors": 3, "num_envs": 3},
}


def act(ctx: Context, task: Workload, policy: Replica, experience: ActorExperience, *, envs: Envs) -> None:
    """Stands in for the loop: a rollout is a step, and takes a random time."""
    rng = random.Random(f"act {ctx.rank} {ctx.restarts}")
    assert policy.parameters is not None
    source = Follower(policy.parameters, Point())
    try:
        with closing(experience.join(ctx, Worker(task, untimed, envs.count))) as writer:
            while (position := ctx.claim(1)) is not None:
                with writer.slot(position) as slot:
                    slot.version.fill_(source.refresh())
                    ctx.sleep(rng.random())
                kept = writer.kept()
                ctx.report(WorkerReport(1, handed_over=kept.handed_over, refused=kept.refused))
    finally:
        source.leave()


def learn(ctx: Context, task: Workload, experience: LearnerQueue, exchange: Broadcast) -> None:
    """Stands in for the loop: an update takes a random time."""
    rng, learner = random.Random(f"learn {ctx.rank} {ctx.restarts}"), StandIn(Point())
    link = exchange.join(ctx, learner)
    try:
        with closing(experience.join(ctx, Worker(task, untimed, experience.batching.num_envs, link))) as reader:
            while ctx.claim(0) is not None:
                batch = reader.batch()
                if not isinstance(batch, Batch):
                    link.finish(learner)
                    break
                ctx.sleep(task.update_time * rng.random())
                link.step(learner)
                reader.trained(batch, Updated({}))
                ctx.report(WorkerReport(0, learned=batch.fresh, learned_of=batch.rollouts, updates=1))
    except Stopped:
        pass
    finally:
        link.leave()


def load(ctx: Context, task: Workload, queue: TrajectoryQueue, next_batch: NextBatch, replaying: Replaying) -> None:
    """Stands in for the loop: assembling a batch takes a random time."""
    if next_batch.forget(ctx.ended_before):
        return
    rng = random.Random(f"load {ctx.rank} {ctx.restarts}")
    assembler = Assembler(queue, queue.memory(), untimed, None)
    while (batch := assembler.batch()) is not None:
        ctx.sleep(task.update_time * rng.random())
        next_batch.put(batch)
    next_batch.end()


def program(task: Workload, **given: Any) -> Program:
    given = {"hosts": 2, "actors": 1, "num_envs": given.get("learners", 1), "env_workers": 1, **given}
    made = IMPALA(**given).program(task)  # type: ignore[arg-type]  # the stand-ins' task
    return made.with_loops({loops.act: act, loops.learn: learn, loops.load: load})


class Stopping(Counting):
    """Asks to end after so many reports."""

    def __init__(self, *, steps: int, reports: int | None) -> None:
        super().__init__(steps=steps)
        self.stop_after = reports


@pytest.mark.parametrize("wiring", WIRINGS.values(), ids=WIRINGS)
@pytest.mark.parametrize("fault", ["", "crashes", "cut", "stopped"])
@sweep(100, 6)
def test_each_step_ends_in_one_place(wiring: dict[str, Any], fault: str, seeds: range) -> None:
    task = Workload(rollout_length=1, step_time=1.0, jitter=1.0, update_time=1.0, updates=1)
    found = Counter[str]()
    for seed in seeds:
        rng, made = random.Random(seed), program(task, **wiring)
        hosts = sorted(made.hosts)
        crashes = [(8 * rng.random(), rng.choice(hosts), 4 * rng.random()) for _ in range(3 * (fault == "crashes"))]
        begin = 8 * rng.random()
        cuts = [(begin, begin + 12, hosts[:1])] if fault == "cut" else []
        watch = Stopping(steps=ROLLOUTS, reports=rng.randrange(5, 60) if fault == "stopped" else None)
        faults = Faults(crashes=crashes, partitions=cuts)
        Simulation(seed, Network(latency=0.2 * rng.random()), faults, patience=2000.0)(made, watch)
        found.update(watch.check())
        found["unreported"] += watch.progress.outcomes.unreported
        if fault != "stopped":
            assert watch.progress.steps == ROLLOUTS
    if fault == "":
        assert not found.total()
    if fault == "stopped":
        assert found["failed"] == found["unreported"] == 0
        assert found["ended"] > 0
    if fault == "cut":
        assert found["failed"] == 0
    if fault == "crashes" and len(seeds) > 20:
        assert found["failed"] > 0
