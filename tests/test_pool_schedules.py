"""A pool between agents and trainers in seeded schedules, with crashes, while the numbers of both change: no deadlock,
every step is acted, and without crashes each rollout is trained on once."""

from __future__ import annotations

import random
from contextlib import closing

import pytest
from some_outcomes import Counting
from some_parts import a_task
from some_play import PLAIN, Play
from sweeps import sweep

from gossamer.data import Batch, NoBatch, Trajectory, Updated
from gossamer.experience import AgentPool, RolloutPool, Sizes, TrainerPool
from gossamer.experience.base import untimed
from gossamer.launch.simulation import Faults, Simulation
from gossamer.loops.adjust import Numbers, adjust
from gossamer.program import Program, copy_name
from gossamer.runtime import Context, Stopped
from gossamer.task import Task, WorkerReport

AGENTS, TRAINERS, ENVS, ROLLOUT = 4, 3, 2, 4
EACH = ENVS * ROLLOUT  # steps of a rollout
STEPS = 60 * EACH
SIZES = {"one": Sizes(slots=6, least=1, most=1), "several": Sizes(slots=7, least=2, most=3), "in turn": Sizes(4, 4, 4)}


class Participant:
    """What an end needs of a worker."""

    def __init__(self, num_envs: int) -> None:
        self.task: Task = a_task()
        self.spec, self.num_envs, self.clock = PLAIN, num_envs, untimed

    def slot(self, num_envs: int) -> Trajectory:
        return next(Play(PLAIN, num_envs, ROLLOUT, seed=0).rollouts(1))

    def version(self) -> int:
        return 0


class Served:
    """Stands in for what predictors work for."""

    def run(self, predictors: int) -> None: ...


def act(ctx: Context, experience: AgentPool) -> None:
    """Stands in for the loop: the first reward of a rollout is its position."""
    rng = random.Random(f"act {ctx.rank} {ctx.restarts}")
    try:
        with closing(experience.join(ctx, Participant(ENVS))) as writer:
            while (position := ctx.claim(EACH)) is not None:
                with writer.slot(position) as slot:
                    ctx.sleep(rng.random())
                    slot.reward[0, 0] = float(position)
                kept = writer.kept()
                ctx.report(WorkerReport(EACH, handed_over=kept.handed_over, refused=kept.refused))
    except Stopped:
        return


def learn(ctx: Context, experience: TrainerPool) -> None:
    """Stands in for the loop: an update takes a random time."""
    rng = random.Random(f"learn {ctx.rank} {ctx.restarts}")
    with closing(experience.join(ctx, Participant(0))) as reader:
        while ctx.claim(0) is not None:
            batch = reader.batch()
            if batch is NoBatch.END:
                return
            if isinstance(batch, Batch):
                ctx.sleep(rng.random())
                reader.trained(batch, Updated({}))
                first = batch.data.reward[0].view(-1, ENVS)[:, 0]
                trained = {f"{int(each)}": 1.0 for each in first}
                ctx.report(WorkerReport(0, learned=batch.fresh, learned_of=batch.rollouts, metrics=trained))


def program(sizes: Sizes, seed: int) -> Program:
    p = Program("stand-in")
    names = [{copy_name(loop, rank, count): rank for rank in range(count)} for loop, count in (
        (act, AGENTS), (learn, TRAINERS))]  # fmt: skip
    pool = p.service(RolloutPool)(sizes, agents=names[0], trainers=names[1])
    p.worker(learn, copies=TRAINERS)(TrainerPool(pool, sizes, ENVS, TRAINERS))
    p.worker(act, copies=AGENTS)(AgentPool(pool))
    numbers, most = Numbers(2, 1, 1), Numbers(AGENTS, 1, TRAINERS)
    p.worker(adjust)(pool, p.service(Served)(), numbers=numbers, most=most, period=2.0, seed=seed)
    return p


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("crashes", [0, 2], ids=["", "crashes"])
@sweep(200, 3)
def test_every_schedule_ends_and_trains_on_each_rollout_once(kind: str, crashes: int, seeds: range) -> None:
    for seed in seeds:
        rng, seen = random.Random(seed), Counting(steps=STEPS)
        faults = Faults(crashes=[(20 * rng.random(), "main", 3 * rng.random()) for _ in range(crashes)])
        Simulation(seed, faults=faults, patience=2000.0)(program(SIZES[kind], seed), seen)
        assert sum(report.steps for report in seen.records) == STEPS, seed
        seen.check()
        trained = [name for report in seen.records for name in report.metrics]
        if not crashes:
            assert sorted(map(int, trained)) == list(range(0, STEPS, EACH)), seed
