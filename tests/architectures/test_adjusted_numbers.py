"""The numbers of agents, predictors and trainers, adjusted while they run on a simulated machine with known costs."""

from __future__ import annotations

import re
from itertools import product
from typing import Any, ClassVar

import pytest
import torch
from some_parts import Watcher

from gossamer.data import Rollout
from gossamer.experience import RolloutPool, Sizes
from gossamer.experience.pool.pool import Nothing
from gossamer.launch.simulation import Simulation
from gossamer.loops.adjust import Numbers, adjust
from gossamer.policy.served import Requests
from gossamer.policy.served.messages import Answered, Few, Key, PolicyAnswer, Request, Welcome, Who
from gossamer.program import Program
from gossamer.runtime import Context
from gossamer.task import Note

MOST = Numbers(agents=5, predictors=2, trainers=3)
# Seconds: of an agent for a rollout, a predictor for a batch and each request in it, a trainer for a rollout
AGENT, BATCH, REQUEST, TRAINER = 0.1, 0.02, 0.005, 0.08
IDLE = 0.06  # by which each worker slows all of them


class Machine:
    """What the workers of a simulation share; of the class, because workers get copies."""

    numbers: ClassVar[Numbers]
    trained: ClassVar[int]  # rollouts

    @classmethod
    def work(cls, ctx: Context, seconds: float) -> None:
        """Compute for so long."""
        now = cls.numbers
        ctx.sleep(seconds / (1 - IDLE * (now.agents + now.predictors + now.trainers)))


class Pool(RolloutPool):
    def run(self, agents: int, trainers: int) -> None:
        Machine.numbers = Numbers(agents, Machine.numbers.predictors, trainers)
        super().run(agents, trainers)


class Queue(Requests):
    def run(self, predictors: int) -> None:
        Machine.numbers = Numbers(Machine.numbers.agents, predictors, Machine.numbers.trainers)
        super().run(predictors)


def agent(ctx: Context, pool: RolloutPool, requests: Requests, *, seconds: float) -> None:
    """Rollouts of one step."""
    who, number = Who(ctx.rank, 0), 0
    requests.join(who)
    while ctx.now() < seconds:
        slot = pool.lease(ctx.rank)
        if isinstance(slot, Nothing):
            ctx.sleep(0.05)
            continue
        number += 1
        requests.ask(Key(who, number), Request(torch.zeros(1), None))
        Machine.work(ctx, AGENT)
        pool.put(slot, Rollout(ctx.rank, 0, number, 0, 1))
    requests.leave(who)
    pool.leave(ctx.rank)


def predictor(ctx: Context, requests: Requests) -> None:
    who = Who(ctx.rank, 0)
    requests.enter(who, Welcome({}, 0))
    while (taken := requests.take(who, 1, 1 << 30)) is not None:
        assert not isinstance(taken, Few)
        Machine.work(ctx, BATCH + REQUEST * len(taken.requests))
        requests.answer(who, {key: Answered(PolicyAnswer((), True, 0, {}), None) for key in taken.requests})


def trainer(ctx: Context, pool: RolloutPool) -> None:
    while (taken := pool.take(ctx.rank)) is not Nothing.END:
        if isinstance(taken, Nothing):
            ctx.sleep(0.05)
            continue
        Machine.work(ctx, TRAINER * len(taken.keys))
        pool.trained(taken.keys)
        Machine.trained += len(taken.keys)
    pool.close(ctx.rank)


class Notes(Watcher):
    """Keeps the numbers that the notes name."""

    def __init__(self, numbers: Numbers) -> None:
        super().__init__()
        self.numbers = numbers

    def report(self, worker: str, record: Any) -> None:
        assert isinstance(record, Note)
        found = re.match(r"now agents (\d+), predictors (\d+), trainers (\d+): ", record.text)
        assert found, record.text
        self.numbers = Numbers(*map(int, found.groups()))


def ran(numbers: Numbers, seconds: float, period: float = 0.0, seed: int = 0) -> tuple[Numbers, float]:
    """The numbers at the end of a run that begins with these, and the rollouts trained on per second. `period`: between
    two changes; 0: none."""
    Machine.numbers, Machine.trained = numbers, 0
    notes = Notes(numbers)
    agents, trainers = (
        {f"{kind}[{i}]": i for i in range(n)} for kind, n in (("agent", MOST.agents), ("trainer", MOST.trainers))
    )
    p = Program("machine")
    with p.host("machine"):
        pool = p.service(Pool)(Sizes(MOST.agents, 1, 1), agents=agents, trainers=trainers)
        requests = p.service(Queue)(agents, MOST.predictors)
        p.worker(agent, copies=MOST.agents)(pool, requests, seconds=seconds)
        p.worker(predictor, copies=MOST.predictors)(requests)
        p.worker(trainer, copies=MOST.trainers)(pool)
        p.worker(adjust)(pool, requests, numbers=numbers, most=MOST, period=period or 2 * seconds, seed=seed)
    Simulation(seed, patience=10_000.0)(p, notes)
    return notes.numbers, Machine.trained / seconds


@pytest.mark.parametrize("start", [Numbers(1, 1, 1), MOST], ids=str)
def test_the_numbers_become_as_fast_as_the_best_ones(start: Numbers) -> None:
    every = product(range(1, MOST.agents + 1), range(1, MOST.predictors + 1), range(1, MOST.trainers + 1))
    rates = {numbers: ran(numbers, 4.0)[1] for numbers in (Numbers(*each) for each in every)}
    best = max(rates.values())
    assert rates[start] < 0.75 * best
    found, _ = ran(start, 240.0, period=3.0)
    assert rates[found] >= 0.88 * best, (found, rates)  # the best numbers' neighbours have 0.90
