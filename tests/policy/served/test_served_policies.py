"""Served policies choose what replicas choose, from the same random stream, and record the same trajectories."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import torch
from some_parts import Watcher, a_task, differences, sharpen

from gossamer.algorithms import A2C, DQN, R2D2, Algorithm, VTrace
from gossamer.architectures import IMPALA
from gossamer.data import Stamp, Trajectory
from gossamer.envs.base import EnvFactory
from gossamer.envs.once import spec_of
from gossamer.envs.toy import Catch, Counter, Recall
from gossamer.exchange.broadcast import Parameters, Published
from gossamer.exchange.flat import Flat, buffers
from gossamer.launch.simulation import Network, Simulation
from gossamer.launch.threads import threads
from gossamer.loops import predict
from gossamer.nn.networks import ActorCritic
from gossamer.policy import Policy, Replica, build
from gossamer.policy.served import BatchRule, Presence, Requests, Served
from gossamer.program import Program
from gossamer.runtime import Context
from gossamer.task import Task
from gossamer.workers.actor import Actor
from gossamer.workers.clock import Clock
from gossamer.workers.member import empty

ENVS = 3  # of each actor
Q: dict[str, Any] = {"epsilon_end": 0.3, "exploration": "by-environment"}
CASES: dict[str, tuple[Algorithm, EnvFactory, str]] = {
    "a2c": (A2C(), Catch(), "none"),
    "a2c, memory": (A2C(), Recall(2), "lstm"),
    "a2c, memory, truncated": (A2C(), Counter(5, truncate=True), "gru"),
    "dqn": (DQN(**Q), Catch(), "none"),
    "r2d2": (R2D2(**Q), Recall(2), "lstm"),
}


class Found:
    """The rollouts of each actor by policy. Not a dataclass: containers of a program are copied for each worker."""

    def __init__(self) -> None:
        self.rollouts: dict[tuple[str, int], list[dict[str, Any]]] = {}


def publish(ctx: Context, task: Task, parameters: Parameters) -> None:
    """Stands in for a learner, whose parameters remain as they are: version 7."""
    model = build(task, spec_of(task.env, ctx.report))
    if isinstance(model, ActorCritic):
        sharpen(model)
    parameters.publish(Published(Stamp(0, 7), Flat(model).vector, buffers(model)))


def record(ctx: Context, task: Task, policies: dict[str, Policy], found: Found) -> None:
    """Act for some rollouts with each policy."""
    for name, policy in policies.items():
        env = task.env.make(ENVS)
        with closing(policy.join(ctx, task, env.spec, ENVS)) as end:
            actor = Actor(env, end, gamma=0.9, seed=ctx.rank, clock=Clock())
            slot = empty(task, env.spec, ENVS, end.recorded(end.initial_state(ENVS))).with_chosen()
            if not isinstance(task.algorithm, DQN | R2D2):
                slot = replace(slot, chosen=None)
            for number in range(4):
                actor.unroll(slot, 100 * number)
                found.rollouts.setdefault((name, ctx.rank), []).append(as_tree(slot))


def as_tree(slot: Trajectory) -> dict[str, Any]:
    finals = [vars(final) for final in slot.finals]
    copy = {name: each.clone() for name, each in vars(slot).items() if isinstance(each, torch.Tensor)}
    return {**copy, "state": {name: each.clone() for name, each in slot.state.items()}, "finals": finals}


def recorded(case: str, launch: Any, actors: int, *, hosts: bool = False, predictors: int = 1) -> Found:
    """The rollouts of both policies. The actors of `hosts` are on others than the predictors."""
    algorithm, env, memory = CASES[case]
    task, found = a_task(env, algorithm, memory=memory, memory_units=8), Found()
    program = Program("recording")
    with program.host("learner"):
        parameters = program.service(Parameters)()
        requests = program.service(Requests)({f"record[{rank}]": rank for rank in range(actors)})
        program.worker(publish)(task, parameters)
        rule = BatchRule(least=actors * ENVS, timeout=0.01)
        program.worker(predict, copies=predictors)(task, requests, parameters, rule=rule)
    for rank in range(actors):
        with program.host(f"actor{rank}" if hosts else "learner"):
            served = Served(requests, program.service(Presence)(1)) if hosts else Served(requests)
            program.worker(record)(task, {"served": served, "replica": Replica(parameters)}, found)
    launch(program)
    return found


@pytest.mark.parametrize("launch", [threads, Simulation(1, Network(latency=0.01))], ids=["threads", "simulation"])
@pytest.mark.parametrize("hosts", [False, True], ids=["", "hosts"])
@pytest.mark.parametrize("case", CASES)
def test_one_actor_records_what_a_replica_would(case: str, hosts: bool, launch: Any) -> None:
    found = recorded(case, launch, 1, hosts=hosts)
    served, replica = found.rollouts["served", 0], found.rollouts["replica", 0]
    assert differences(served, replica) == []
    assert len({tuple(each["action"].flatten().tolist()) for each in served}) > 1
    assert all(int(each["version"].min()) == 7 for each in served)
    assert any(each["finals"] for each in served) == ("truncated" in case)


@pytest.mark.parametrize("case", CASES)
def test_actors_that_are_evaluated_together_choose_as_each_alone(case: str) -> None:
    """Sums of a larger batch may be rounded differently."""
    found = recorded(case, Simulation(1), 3, predictors=2)
    for rank in range(3):
        served, replica = found.rollouts["served", rank], found.rollouts["replica", rank]
        for one, other in zip(served, replica, strict=True):
            assert torch.equal(one["action"], other["action"])
            assert torch.equal(one["obs"], other["obs"])
            for name in ("value", "behaviour", "state"):
                torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-5)
    assert not torch.equal(found.rollouts["served", 0][0]["action"], found.rollouts["served", 1][0]["action"])


@pytest.mark.parametrize("launch", [threads, Simulation(1, Network(latency=0.01))], ids=["threads", "simulation"])
@pytest.mark.parametrize("hosts", [0, 1])
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_run_without_lag_is_that_of_a_replica_to_the_bit(launch: Any, hosts: int, memory: str) -> None:
    def learned(policy: str) -> Any:
        watcher = Watcher(steps=120)
        task = a_task(Counter(5, truncate=True), VTrace(), memory=memory, memory_units=8)
        impala = IMPALA(hosts=hosts, actors=1, num_envs=ENVS, depth=1, policy=policy)  # type: ignore[arg-type]
        launch(impala.program(task), watcher)
        assert {behind for report in watcher.records for behind in report.lag} == {0}
        return watcher.saved["learn"]["learner"]

    assert differences(learned("served"), learned("replica")) == []
