"""Groups inside gossip: learners of a group stay equal, and are one member to the others."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest
import torch
from some_gossip import gossiping
from some_parts import Watcher, a_task, differences
from sweeps import sweep
from torch import Tensor

import gossamer
from gossamer.algorithms import A2C, PPO, Algorithm
from gossamer.architectures import GALA, PALA, SynchronousA2C
from gossamer.config.file import flat
from gossamer.config.resolve import configure
from gossamer.exchange import AllReduce, Exchange, Gradients, Mailboxes
from gossamer.exchange.gossip.graphs import Complete, Edges, OnePeer, RandomPairs
from gossamer.exchange.gossip.groups import Handover, InGroup
from gossamer.exchange.gossip.mixing import PushSum
from gossamer.exchange.gossip.outer import Outer
from gossamer.exchange.gossip.records import Cut, Traffic
from gossamer.exchange.gossip.sparse import Sparse
from gossamer.experience import own_experience
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.launch.threads import threads
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.runtime import Context
from gossamer.task import Note
from gossamer.tools.simulate.gossip.members import Workload
from gossamer.tools.simulate.stand_in import Point, StandIn

ALGORITHMS = [A2C(), PPO(epochs=2, num_minibatches=2)]
launchers = pytest.mark.parametrize("launch", [threads, Simulation(1)], ids=["threads", "simulation"])
algorithms = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=["a2c", "ppo"])


def learners(watcher: Watcher) -> list[Any]:
    """The learners' states, in the order of their ranks."""
    return [watcher.saved[name] for name in sorted(watcher.saved) if name.startswith("act_and_learn")]


def of_learning(states: list[Any]) -> list[Any]:
    return [[each["learner"][part] for part in ("model", "optimizer", "steps", "updates", "rng")] for each in states]


@algorithms
@launchers
def test_all_learners_in_one_group_are_those_of_a2c(launch: Any, algorithm: Algorithm) -> None:
    task = a_task(algorithm=algorithm, normalize_observations=True, max_grad_norm=0.5)
    ends = []
    for architecture in (SynchronousA2C(learners=4, num_envs=2), GALA(learners=4, group_size=4, num_envs=2)):
        watcher = Watcher(steps=640)
        launch(architecture.program(task), watcher)
        ends.append(of_learning(learners(watcher)))
    assert differences(*ends) == []


def test_groups_of_one_are_gossip_without_groups() -> None:
    task, gossip = a_task(algorithm=PPO(epochs=2, num_minibatches=2)), gossiping("gala", lock_step=True, interval=2)
    p = Program("groups of one")
    post = p.service(Mailboxes, saved=True)(3, newest=gossip.newest, adds=gossip.adds)
    for rank in range(3):
        group = InGroup(gossip.through(post, rank), p.service(Handover)(), range(rank, rank + 1))
        exchange = AllReduce(p.service(Gradients)(1, rank), inner=group)
        p.worker(act_and_learn, saved=True)(task, Replica(), own_experience(A2C()), exchange, envs=Envs(2))
    plain = GALA(learners=3, num_envs=2, env_workers=0).program(task, gossip=gossip)
    ends = []
    for program in (p, plain):
        watcher = Watcher(steps=3 * 8 * 10)
        Simulation(3)(program, watcher)
        ends.append(of_learning(learners(watcher)))
    assert differences(*ends) == []
    assert differences(ends[0][0], ends[0][1]) != []


class Points(Watcher):
    """Keeps the parameters of each learner after each step, and gossip's records."""

    def __init__(self) -> None:
        super().__init__()
        self.points: dict[int, dict[int, Tensor]] = {}  # learner -> iteration
        self.records: list[tuple[int, Any]] = []  # learner, record
        self.notes: list[str] = []

    def restored(self, worker: str) -> Any | None:
        return self.saved.get(worker)  # a restarted host goes on from what it saved last

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, Note):
            self.notes.append(record.text)
        elif isinstance(record, tuple):
            rank, iteration, point, records = record
            self.points.setdefault(rank, {})[iteration] = point
            self.records += [(rank, each) for each in records]


def displacement(rank: int, k: int) -> Tensor:
    return torch.randn(48, generator=torch.Generator().manual_seed(1000 * rank + k))


def walk(ctx: Context, task: Workload, policy: Any, experience: Any, exchange: Exchange, **more: Any) -> None:
    """Steps that do not depend on where one is. Reports where one is after each."""
    rng = random.Random(f"{task.seed} {ctx.name} {ctx.restarts}")
    exchange.begin(ctx)
    learner = StandIn(Point(48), 1.0)
    (point,) = learner.model.parameters()
    link = exchange.join(ctx, learner, ctx.restored())
    try:
        while (k := link.refresh()) < task.iterations:
            ctx.sleep(task.step_time * rng.uniform(0.5, 1.5))
            point.grad = -displacement(ctx.rank, k)
            link.step(learner)
            ctx.report((ctx.rank, link.refresh(), point.detach().clone(), link.take()))
            ctx.save(link.state_dict())
        if ctx.rank in task.early:  # takes the steps of the others, as a learner whose budget is spent
            link.finish(learner)
        ctx.save(link.state_dict())
    finally:
        link.leave()


def figure(name: str, work: Any, size: int, groups: int = 4, **mode: Any) -> Program:
    gossip = gossiping(name, **mode)
    if name == "gala":
        program = GALA(learners=size * groups, group_size=size).program(work, gossip=gossip)
    else:
        on_each = size * groups // 2
        program = PALA(hosts=2, learners=on_each, group_size=size).program(work, gossip=gossip, couriers=1)
    return program.with_loops({act_and_learn: walk})


def assert_equal_within_groups(points: dict[int, dict[int, Tensor]], size: int) -> None:
    """After each iteration that learners of a group have in common: a restarted one may have repeated some."""
    for rank, found in points.items():
        leader = points[rank // size * size]
        assert all(torch.equal(found[k], leader[k]) for k in found.keys() & leader.keys())


MODES: dict[str, dict[str, Any]] = {
    "ring": {},
    "tau": {"staleness": 2, "interval": 2},
    "push-sum": {"mixing": PushSum(), "graph": Edges(((0, 1), (1, 2), (2, 3), (3, 0), (0, 2))), "interval": 3},
    "outer, rotation, int8": {
        "sparse": Sparse(0.25, "rotation"),
        "outer": Outer(0.5, 0.7),
        "rounding": "int8",
        "staleness": 4,
        "interval": 2,
        "decay": 0.5,
    },
    "changed": {"sparse": Sparse(0.25, "changed"), "graph": Complete(), "lock_step": True},
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("name", ["gala", "pala"])
@sweep(200, normal=2)
def test_a_group_is_equal_after_every_iteration(name: str, mode: dict[str, Any], seeds: range) -> None:
    for seed in seeds:
        found, size = Points(), 1 + seed % 3 if seed > 1 else 2
        work = Workload(12, step_time=0.2, seed=seed)
        simulation = Simulation(seed, Network(latency=0.05))
        simulation(figure(name, work, size, **{"period": 6, "window": 3, **mode}), found)
        assert [len(each) for each in found.points.values()] == [12] * 4 * size
        assert_equal_within_groups(found.points, size)
        ends = [found.points[rank][12] for rank in range(0, 4 * size, size)]
        assert all(not torch.equal(one, other) for one in ends for other in ends if one is not other)
        assert {rank for rank, _ in found.records} == set(range(0, 4 * size, size))  # leaders alone have records
        cuts = [each for _, each in found.records if isinstance(each, Cut)]
        assert {cut.member for cut in cuts} == {0, 1, 2, 3}
        assert {member for cut in cuts for member in cut.members} == {0, 1, 2, 3}
        edges = {edge for _, each in found.records if isinstance(each, Traffic) for edge in each.edges}
        assert edges <= {(a, b) for a in range(4) for b in range(4) if a != b}


@pytest.mark.parametrize(
    ("mode", "outer"),
    [({"graph": OnePeer()}, None), ({"graph": RandomPairs(1), "interval": 2}, Outer(0.5, 0.7))],
    ids=["one peer", "random pairs, outer momentum"],
)
@pytest.mark.parametrize("name", ["gala", "pala"])
def test_what_groups_have_learned_is_conserved(name: str, mode: dict[str, Any], outer: Outer | None) -> None:
    # In lock-step the sum over groups is that of their steps, and a step is the mean of its learners' gradients. After
    # half of the iterations, when no learner has ended
    found, interval, total = Points(), mode.get("interval", 1), torch.zeros(48)
    Simulation(5)(figure(name, Workload(12), 2, lock_step=True, outer=outer, **mode), found)
    for group in range(4):
        momentum, rule = torch.zeros(48), outer or Outer()
        for first in range(0, 6, interval):
            steps = [displacement(2 * group + i, k) / 2 for i in range(2) for k in range(first, first + interval)]
            delta = torch.stack(steps).sum(0)
            momentum = rule.momentum * momentum + delta
            total += rule.learning_rate * (delta + rule.momentum * momentum)
    there = torch.stack([found.points[rank][6] for rank in range(0, 8, 2)]).sum(0)
    torch.testing.assert_close(there, total, atol=1e-4, rtol=0)


@pytest.mark.parametrize("mode", ["crashes", "long crashes", "lost calls", "partitions"])
@sweep(200, normal=2)
def test_hosts_that_die_hold_no_group_up(mode: str, seeds: range) -> None:
    for seed in seeds:
        rng, loss = random.Random(seed), 0.0
        faults = Faults(crash_rate=0.02, down_seconds=rng.uniform(0.5, 3.0))
        if mode == "long crashes":
            faults = Faults(crash_rate=0.02, down_seconds=rng.choice([12.0, 40.0, inf]), spared=["host0"])
        elif mode == "lost calls":
            loss, faults = 0.02, Faults(crash_rate=0.01, down_seconds=2.0)
        elif mode == "partitions":
            start = rng.uniform(1.0, 8.0)
            faults = Faults(partitions=[(start, start + rng.uniform(1.0, 20.0), {"host1"})])
        given = rng.choice(list(MODES.values()))
        found, work = Points(), Workload(30, step_time=0.5, seed=seed)
        simulation = Simulation(seed, Network(latency=0.01, loss=loss, timeout=1.0), faults, patience=500.0)
        simulation(figure("pala", work, 2, **given), found)
        assert_equal_within_groups(found.points, 2)
        assert [found.saved[f"act_and_learn[{rank}]"]["iteration"] for rank in (0, 1)] == [30, 30]
        assert simulation.clocks["act_and_learn[0]"] < 30 * 0.75 + 100


def test_a_restarted_group_continues_from_its_neighbours() -> None:
    found = Points()
    faults = Faults(crashes=[(10.0, "host1", 5.0)])
    Simulation(1, Network(latency=0.01), faults)(figure("pala", Workload(60, step_time=0.5), 2, 2, staleness=8), found)
    assert_equal_within_groups(found.points, 2)
    # Group 1 is alone on its host: it has no iterations of the time in which it was away, in which group 0 goes on
    away = sorted(set(found.points[0]) - set(found.points[2]))
    assert away == sorted(set(found.points[0]) - set(found.points[3]))
    assert 5 <= len(away) <= 40
    assert away[-1] < 55
    last = [found.points[rank][60] for rank in (0, 2)]
    started = found.points[2][away[-1] + 1] - found.points[0][away[-1]]
    assert started.norm() < found.points[0][away[-1]].norm()  # near its neighbour, not near 0
    assert (last[0] - last[1]).norm() < last[0].norm()


def test_what_a_follower_has_not_taken_is_kept_in_order() -> None:
    # Learner 1 has spent its budget: the others go on, and it takes their steps when it comes to them
    found = Points()

    def early(ctx: Context, task: Workload, *given: Any, **more: Any) -> None:
        walk(ctx, Workload(3 if ctx.rank == 1 else 12, 0.2, early={0: 0, 1: 0}), *given, **more)

    program = figure("gala", Workload(12), 2, 2).with_loops({walk: early})
    Simulation(2)(program, found)
    assert max(found.points[0]) == 12
    assert max(found.points[1]) == 3
    assert found.saved["act_and_learn[1]"]["iteration"] == 12
    assert_equal_within_groups(found.points, 2)


@pytest.mark.parametrize(
    ("architecture", "given", "told"),
    [
        ("gala", {"learners": 8, "group_size": 3}, "--group-size 3: must divide --learners 8; these do: 1, 2, 4, 8"),
        ("gala", {"learners": 4, "group_size": 8}, "--group-size 8: must divide --learners 4; these do: 1, 2, 4"),
        ("pala", {"group_size": 4}, "--group-size 4: must divide --learners 2 of each host, because a group is within"),
        ("gala", {"group_size": 0}, "--group-size 0: must be at least 1"),
        ("gala", {"graph": "0>1,1>2,2>3,3>0", "group_size": 2}, "no member 2; members are 0 to 1"),
        ("a2c", {"group_size": 2}, "--group-size 2: not an option of a2c"),
    ],
    ids=str,
)
def test_groups_that_do_not_fit_are_refused(architecture: str, given: dict[str, Any], told: str, tmp_path: Any) -> None:
    with pytest.raises(gossamer.UserError, match=told) as error:
        gossamer.train(architecture, env="catch", run_dir=tmp_path / "run", **given)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_the_rate_follows_the_number_of_members() -> None:
    def rate(**given: Any) -> Any:
        return flat(configure("gala", env="catch-pixels", algorithm="ppo", **given))["learning_rate"]

    assert rate(learners=8, group_size=2) == rate(learners=4)
    assert rate(learners=8, group_size=8) * 8**0.5 == pytest.approx(rate(learners=8))
