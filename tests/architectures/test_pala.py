"""PALA across hosts: other models are noticed, restarted hosts go on, lost calls change nothing, formats do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from some_gossip import gossiping
from some_parts import Slow, Watcher, a_task
from sweeps import each_seed
from torch import nn

from gossamer.algorithms import Network
from gossamer.architectures import PALA
from gossamer.envs.toy import Catch
from gossamer.exchange import Alone, Gossip, LayoutMismatch, Proxy
from gossamer.exchange.gossip.formats import Format
from gossamer.exchange.gossip.mixing import PushSum
from gossamer.exchange.gossip.records import Traffic
from gossamer.exchange.proxy.workers import carry, watch
from gossamer.experience import Direct
from gossamer.launch.simulation import Faults, Simulation
from gossamer.launch.simulation import Network as Lines
from gossamer.launch.threads import threads
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.runtime import Context, Silent
from gossamer.tools.simulate.gossip.members import Workload, stand_in


class Sums(Silent):
    """Adds up what members report; and their weights, as they told them last."""

    def __init__(self) -> None:
        self.iterations, self.weights = Counter[str](), dict[str, float]()
        self.mixed = 0

    def report(self, worker: str, record: Any) -> None:
        for part in record.exchange:
            if isinstance(part, Traffic):
                self.iterations[worker] += part.iterations
                self.weights[worker] = part.weight
                self.mixed += part.mixed


class Told(Silent):
    """Keeps the first thing that it is told."""

    first: Any = None

    def report(self, worker: str, record: Any) -> None:
        self.first = self.first or record


def stand_ins(work: Workload, **more: Any) -> Program:
    gossip = gossiping("pala", **more)
    program = PALA(hosts=2, learners=2).program(work, gossip=gossip, couriers=1)  # type: ignore[arg-type]
    return program.with_loops({act_and_learn: stand_in})


def other_torso(shape: Any) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * (shape[1] if len(shape) > 1 else 1), 24), nn.Tanh())


@pytest.mark.parametrize("mode", [{"lock_step": True}, {"staleness": 16}], ids=["lock-step", "tau 16"])
@pytest.mark.parametrize("launch", [Simulation(0), Simulation(1), threads], ids=["seed 0", "seed 1", "threads"])
def test_hosts_with_other_models_fail_at_once(launch: Any, mode: dict[str, Any]) -> None:
    task = a_task()
    tasks = [task, replace(task, network=Network(other_torso))]
    program = Program("two programs")
    proxies = []
    for h in range(2):
        with program.host(f"host{h}"):
            proxies.append(program.service(Proxy)(host=h, hosts=2, members=1, token=bytes(16), newest=False))
    for h in range(2):
        with program.host(f"host{h}"):
            exchange = Gossip(proxies[h], period=0, **mode)
            program.worker(act_and_learn)(tasks[h], Replica(), Direct(), exchange, envs=Envs(1, 1))
            program.worker(carry)(proxies[h], proxies)
            program.worker(watch)(proxies[h])
    with pytest.raises(LayoutMismatch, match="differs from that of host"):
        launch(program)


@pytest.mark.parametrize("mode", [{}, {"staleness": 4}, {"staleness": 0}, {"lock_step": True}], ids=str)
@pytest.mark.parametrize("down", [0.2, 3.0, 10.0])
def test_a_host_that_ran_for_long_goes_on_where_its_neighbours_are(down: float, mode: dict[str, Any]) -> None:
    # At second 50 about 100 of 150 iterations are done: not from the start, and nobody is held up for long.
    sums, simulation = Sums(), Simulation(0, Lines(latency=0.01), Faults(crashes=[(50.0, "host1", down)]))
    simulation(stand_ins(Workload(150, step_time=0.5, jitter=0.1), **mode), sums)
    assert sums.iterations["act_and_learn[0]"] == sums.iterations["act_and_learn[1]"] == 150
    assert all(90 <= sums.iterations[f"act_and_learn[{rank}]"] <= 150 for rank in (2, 3))
    assert simulation.clocks["act_and_learn[0]"] < 150 * 0.5 + 15


def slow_start(ctx: Any, task: Any, policy: Any, experience: Any, exchange: Any, **given: Any) -> None:
    """After a restart its environments take 100 seconds to start; each rollout half a second."""
    exchange.begin(ctx)
    if ctx.restarts:
        ctx.sleep(100.0)
    act_and_learn(Slow(ctx), task, policy, experience, exchange, **given)  # type: ignore[arg-type]


def test_a_restarted_host_waits_for_members_whose_environments_take_long_to_start() -> None:
    simulation = Simulation(1, Lines(latency=0.01), Faults(crashes=[(20.0, "host1", 5.0)]), patience=600.0)
    watcher = Watcher(steps=16 * 400)
    program = PALA(hosts=2, learners=1, num_envs=4).program(a_task()).with_loops({act_and_learn: slow_start})
    simulation(program, watcher)
    assert watcher.budget.acted == 16 * 400
    assert all(watcher.saved[f"act_and_learn[{rank}]"]["exchange"]["iteration"] > 150 for rank in range(2))


class Announced(Alone):
    """It says when a member has started."""

    def begin(self, ctx: Context) -> None:
        ctx.report("begun")


class NoEnvironment(Catch):
    def make(self, *args: Any, **given: Any) -> Any:
        raise OSError("no environment")


def test_members_say_that_they_have_started_before_their_environments_are_there() -> None:
    told, program = Told(), Program("one")
    task = replace(a_task(), env=NoEnvironment())
    program.worker(act_and_learn)(task, Replica(), Direct(), Announced(), envs=Envs(1))
    with pytest.raises(OSError, match="no environment"):
        threads(program, told)
    assert told.first == "begun"


@each_seed(3, normal=1)
def test_lost_calls_make_no_weight_of_nothing(seed: int) -> None:
    sums, simulation = Sums(), Simulation(seed, Lines(latency=0.01, loss=0.2, timeout=0.2))
    simulation(stand_ins(Workload(150, step_time=0.1), mixing=PushSum(), staleness=8), sums)
    assert sum(sums.iterations.values()) == 4 * 150
    assert 0.5 < sum(sums.weights.values()) <= 4 + 1e-6  # the rest was on its way when its receiver left


@pytest.mark.parametrize("form", ["fp32", "bf16", "int8"])
def test_numbers_of_every_format_train(form: Format) -> None:
    watcher, task = Watcher(steps=4 * 2 * 4 * 10), a_task(rollout_length=4)
    wired = PALA(hosts=2, learners=2, num_envs=2)
    threads(wired.program(task, gossip=gossiping("pala", period=5, window=2, form=form), couriers=1), watcher)
    assert watcher.budget.acted == watcher.budget.total


def test_members_or_couriers_round() -> None:
    for feedback in (False, True):
        program = PALA(hosts=2, message_format="int8", error_feedback=feedback).program(a_task())
        forms = {worker.kwargs["form"] for worker in program.workers if worker.make is carry}
        assert forms == {"fp32" if feedback else "int8"}


def test_a_token_for_every_run() -> None:
    tokens = {PALA().program(a_task()).services[0].kwargs["token"] for _ in range(3)}
    assert len(tokens) == 3
    program = PALA(hosts=3).program(a_task())
    assert len({s.kwargs["token"] for s in program.services}) == 1
    assert all(len(s.kwargs["token"]) == 16 for s in program.services)
