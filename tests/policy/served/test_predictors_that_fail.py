"""Predictors and actors that crash in seeded schedules: each request is answered once, and the recurrent states are
those of a network that never failed."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from some_parts import Watcher, a_task
from sweeps import sweep
from torch import Tensor, nn

from gossamer.algorithms import A2C, Network
from gossamer.data import Stamp, Tree
from gossamer.exchange.broadcast import Parameters, Published
from gossamer.exchange.flat import Flat, buffers
from gossamer.launch.simulation import Faults, Simulation
from gossamer.launch.simulation import Network as Net
from gossamer.launch.threads import threads
from gossamer.loops import predict
from gossamer.nn.memory import reset
from gossamer.policy import Policy, build
from gossamer.policy.served import BatchRule, Presence, Requests, Served
from gossamer.program import Program
from gossamer.runtime import Context
from gossamer.spaces import Discrete, Spec
from gossamer.spaces.distributions import Categorical
from gossamer.task import PredictorReplaced, Spent, Task, WorkerReport

ENVS, ACTORS, PREDICTORS = 3, 3, 2
SPEC = Spec((1,), np.dtype(np.float32), Discrete(3))
STEPS = 60  # of all actors


class Counts(nn.Module):
    """The state of an environment, and its value, is the number of steps of its episode. Fails in these calls."""

    def __init__(self, fails: Failing) -> None:
        super().__init__()
        self.weight, self._fails = nn.Parameter(torch.zeros(1)), fails

    def initial_state(self, num_envs: int) -> Tree:
        return {"count": torch.zeros(num_envs, 1)}

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> tuple[Categorical, Tensor, Tree]:
        self._fails.call()
        count = reset(state, begins[0])["count"] + 1
        return Categorical(torch.zeros(len(count), 3)), count[:, 0], {"count": count}


class Failing:
    """Calls that fail, by their number from 1. Shared by all networks of a program."""

    def __init__(self, *calls: int) -> None:
        self.calls, self.count = calls, 0

    def call(self) -> None:
        self.count += 1
        if self.count in self.calls:
            raise RuntimeError("out of memory")


@dataclass(frozen=True)
class Counting(A2C):
    """A2C, whose network counts."""

    fails: Any = None

    def model(self, spec: Spec, network: Network) -> nn.Module:
        return Counts(self.fails or Failing())


def learn(ctx: Context, task: Task, parameters: Parameters, seconds: float) -> None:
    """Stands in for a learner: some versions."""
    model = build(task, SPEC)
    for version in range(20):
        parameters.publish(Published(Stamp(0, version), Flat(model).vector, buffers(model)))
        ctx.sleep(seconds)


def act(ctx: Context, task: Task, policy: Policy, seconds: float) -> None:
    """Stands in for the loop. Checks each answer against counts of its own."""
    rng, obs = random.Random(f"{ctx.name} {ctx.restarts}"), torch.zeros(ENVS, 1)
    with closing(policy.join(ctx, task, SPEC, ENVS)) as end:
        state, count, version = end.initial_state(ENVS), torch.zeros(ENVS), 0
        while ctx.claim(1) is not None:
            answer, state = end(obs, state)
            count += 1
            assert torch.equal(answer.value, count), ctx.name
            assert answer.version is not None
            assert int(answer.version[0]) >= version
            version = int(answer.version[0])
            if rng.random() < 0.5:
                ended = torch.tensor([rng.random() < 0.5 for _ in range(ENVS)])
                rows = {name: each[ended] for name, each in state.items()}
                if ended.any():
                    assert torch.equal(end.value(obs[ended], rows), count[ended] + 1), ctx.name
                    assert torch.equal(end.recorded(rows)["count"][:, 0], count[ended]), ctx.name
                state, count = reset(state, ended), count * ~ended
            ctx.sleep(seconds * rng.random())
            ctx.report(WorkerReport(1))


class Observed(Watcher):
    """Takes back what dead workers had leased, and keeps all records."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps=steps)
        self.others: list[Any] = []

    def died(self, worker: str) -> None:
        self.budget.release(worker)

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if not isinstance(record, WorkerReport | Spent):
            self.others.append(record)


def a_program(task: Task, rule: BatchRule, seconds: float = 0.5, *, apart: bool = True) -> Program:
    """Actors, each on a host of its own, and predictors: `apart` each, too, or as always on that of the requests."""
    p = Program("failing")
    with p.host("learner"):
        parameters = p.service(Parameters)()
        requests = p.service(Requests)({f"act[{rank}]": rank for rank in range(ACTORS)})
        p.worker(learn)(task, parameters, seconds)
    for rank in range(PREDICTORS):
        with p.host(f"predictor{rank}" if apart else "learner"):
            p.worker(predict)(task, requests, parameters, rule=rule)
    for rank in range(ACTORS):
        with p.host(f"actor{rank}"):
            p.worker(act)(task, Served(requests, p.service(Presence)(1)), seconds)
    return p


@pytest.mark.parametrize("least", [1, ENVS * ACTORS], ids=["at once", "together"])
@pytest.mark.parametrize("faults", ["", "crashes", "losses"])
@sweep(200, 5)
def test_every_request_is_answered_once_in_every_schedule(least: int, faults: str, seeds: range) -> None:
    """`crashes`: of predictors and actors; `losses`: of requests and of answers."""
    task, rule = a_task(algorithm=Counting()), BatchRule(least, most=2 * ENVS * ACTORS, timeout=0.3)
    for seed in seeds:
        rng = random.Random(seed)
        hosts = [f"predictor{rank}" for rank in range(PREDICTORS)] + [f"actor{rank}" for rank in range(ACTORS)]
        crashes = [(rng.random() * 5, rng.choice(hosts), rng.random()) for _ in range(6 * (faults == "crashes"))]
        watcher = Observed(STEPS)
        net = Net(latency=0.1 * rng.random(), loss=0.2 * (faults == "losses"), timeout=0.5)
        Simulation(seed, net, Faults(crashes=crashes))(a_program(task, rule, apart=faults != "losses"), watcher)
        assert sum(report.steps for report in watcher.records) == STEPS, seed
        assert not watcher.others, seed


@pytest.mark.parametrize("launch", [threads, Simulation(1)], ids=["threads", "simulation"])
def test_a_predictor_that_raises_is_replaced_and_its_requests_are_answered(launch: Any) -> None:
    watcher, fails = Observed(STEPS), Failing(5, 6, 9)
    launch(a_program(a_task(algorithm=Counting(fails=fails)), BatchRule(), seconds=0.001), watcher)
    assert sum(report.steps for report in watcher.records) == STEPS
    replaced = [record for record in watcher.others if isinstance(record, PredictorReplaced)]
    assert [record.error for record in replaced] == ["RuntimeError: out of memory"] * 3
    assert all(record.requests >= 1 for record in replaced)


def test_a_predictor_that_always_raises_ends_the_run() -> None:
    watcher, fails = Observed(STEPS), Failing(*range(5, 100))
    with pytest.raises(RuntimeError, match="out of memory"):
        Simulation(1)(a_program(a_task(algorithm=Counting(fails=fails)), BatchRule()), watcher)
