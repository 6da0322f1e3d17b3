"""GALA and PALA in seeded schedules: nobody hangs, nobody runs ahead, nothing is lost that must not be."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sweeps import sweep

from gossamer.architectures import GALA, PALA
from gossamer.exchange import Exchange, Gossip, Mailboxes
from gossamer.exchange.gossip.graphs import (
    Complete,
    Edges,
    Exponential,
    Graph,
    Hierarchical,
    OnePeer,
    RandomPairs,
    Ring,
)
from gossamer.exchange.gossip.mixing import Mixing, PushSum, Uniform
from gossamer.exchange.gossip.options import Gossiping
from gossamer.exchange.gossip.outer import Outer
from gossamer.exchange.gossip.records import Traffic
from gossamer.exchange.gossip.sparse import Sparse
from gossamer.experience import Direct
from gossamer.launch.simulation import Deadlock, Faults, Network, Simulation
from gossamer.loops import act_and_learn
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.runtime import Context, Silent
from gossamer.tools.simulate.gossip.members import Workload, stand_in
from gossamer.tools.simulate.stand_in import Point, StandIn

MODES: list[dict[str, Any]] = [
    {},
    {"staleness": 0},
    {"staleness": 2},
    {"lock_step": True},
    {"staleness": 2, "interval": 2},
    {"lock_step": True, "interval": 3},
]
SPARSE: dict[str, dict[str, Any]] = {
    "changed": {"sparse": Sparse(0.25, "changed"), "graph": Complete(), "lock_step": True},
    "random": {"sparse": Sparse(0.25, "random"), "staleness": 2, "interval": 2},
    "rotation, int8, outer momentum, decay": {
        "sparse": Sparse(0.25, "rotation"),
        "staleness": 2,
        "interval": 2,
        "rounding": "int8",
        "outer": Outer(0.5, 0.7),
        "decay": 0.5,
    },
}
NAMES = ["never", "tau 0", "tau 2", "lock-step", "tau 2, every 2nd", "lock-step, every 3rd"]


class Order(Silent):
    """Keeps who reported, in order, and what they reported last."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.staleness: set[int] = set()
        self.last: dict[str, Any] = {}
        self.gone: set[int] = set()

    def report(self, worker: str, record: Any) -> None:
        self.order.append(worker)
        for part in record.exchange:
            if isinstance(part, Traffic):
                self.staleness |= set(part.staleness)

    def save(self, name: str, state: Any) -> None:
        if name[0].islower():  # a worker's, not a service's
            self.last[name] = state

    def lag(self, behind: int) -> int:
        """By how many iterations a member was ahead of the one `behind` places before it on the ring, at most."""
        done: defaultdict[str, int] = defaultdict(int)
        members, last = sorted(set(self.order)), {who: self.order.count(who) for who in set(self.order)}
        worst = 0
        for who in self.order:
            done[who] += 1
            other = members[(members.index(who) - behind) % len(members)]
            if done[other] < last[other]:  # has not ended
                worst = max(worst, done[who] - done[other])
        return worst


def figure(name: str, work: Any, loop: Callable[..., None] = stand_in, **mode: Any) -> Program:
    gossip = Gossiping(**{"period": 0, **mode})
    if name == "gala":
        program = GALA(learners=4).program(work, gossip=gossip)
    else:
        program = PALA(hosts=2, learners=2).program(work, gossip=gossip, couriers=1)
    return program.with_loops({act_and_learn: loop})


@pytest.mark.parametrize("mode", MODES, ids=NAMES)
@pytest.mark.parametrize("name", ["gala", "pala"])
@sweep(200, normal=15)
def test_no_schedule_deadlocks_and_nobody_runs_ahead(name: str, seeds: range, mode: dict[str, Any]) -> None:
    worst = 0
    for seed in seeds:
        order = Order()
        Simulation(seed)(figure(name, Workload(12, seed=seed), **mode), order)
        assert len(order.order) == 4 * 12
        worst = max(worst, order.lag(1))
        if mode.get("lock_step"):
            assert order.staleness == {0}
        if "staleness" in mode:
            assert max(order.staleness) <= mode["staleness"]
    # A member reports iteration k once its neighbour has published k - tau, and so has reported k - tau - 1.
    bound = mode.get("interval", 1) - 1 if mode.get("lock_step") else mode.get("staleness", math.inf)
    assert worst <= bound + 1
    assert worst >= (1 if bound == 0 else 2)  # the schedules do try


@pytest.mark.parametrize("mode", MODES, ids=NAMES)
@pytest.mark.parametrize("name", ["gala", "pala"])
@pytest.mark.parametrize("early", [{0: 2}, {1: 0, 2: 3}, {3: 5}], ids=str)
@sweep(40, normal=5)
def test_members_that_end_early_hold_nobody_up(
    name: str, mode: dict[str, Any], early: dict[int, int], seeds: range
) -> None:
    for seed in seeds:
        order = Order()
        Simulation(seed)(figure(name, Workload(6, early=early, seed=seed), **mode), order)
        assert {rank: order.order.count(f"act_and_learn[{rank}]") for rank in range(4)} == {
            rank: early.get(rank, 6) for rank in range(4)
        }


@pytest.mark.parametrize("mode", MODES, ids=NAMES)
@pytest.mark.parametrize("name", ["gala", "pala"])
@sweep(20, normal=3)
def test_a_member_three_times_slower(name: str, mode: dict[str, Any], seeds: range) -> None:
    work = Workload(12, step_time=1.0, jitter=0.3)
    for seed in seeds:
        simulation, order = Simulation(seed, faults=Faults(slow={"act_and_learn[2]": 3.0})), Order()
        simulation(figure(name, work, **mode), order)
        assert len(order.order) == 4 * 12
        fast, slow = simulation.clocks["act_and_learn[0]"], simulation.clocks["act_and_learn[2]"]
        if mode:  # bound to the slow one: about as long
            assert fast > slow * 0.6
        else:
            assert fast < slow * 0.6


CHANGING: list[dict[str, Any]] = [
    {"graph": graph, "mixing": mixing, **mode}
    for graph in (OnePeer(), RandomPairs(1), Hierarchical(2))
    for mixing, mode in ((Uniform(), {"staleness": 5, "interval": 3}), (PushSum(), {"lock_step": True}))
]


def within(seconds: float, work: Workload, order: Order, **mode: Any) -> Program:
    """PALA or GALA that has to come to its end in time: members that wait for each other for ever, while couriers and
    clocks go on, are no deadlock."""

    def member(ctx: Context, task: Workload, *given: Any, **more: Any) -> None:
        stand_in(ctx, task, *given, **more)
        order.gone.add(ctx.rank)

    def guard(ctx: Context) -> None:
        while not ctx.stopped and len(order.gone) < 4:
            ctx.sleep(1.0)
            if ctx.now() > seconds:
                raise AssertionError(f"after {seconds} s only {sorted(order.gone)} have ended")

    program = figure(work=work, loop=member, **mode)
    program.worker(guard)()
    return program


@pytest.mark.parametrize("mode", CHANGING, ids=str)
@pytest.mark.parametrize("name", ["gala", "pala"])
@sweep(40, normal=8)
def test_members_that_end_early_hold_nobody_up_where_the_graph_changes(
    name: str, mode: dict[str, Any], seeds: range
) -> None:
    for seed in seeds:
        early, order = {seed % 4: seed // 4, (seed + 1) % 4: 5}, Order()
        work = Workload(14, step_time=0.3, jitter=0.3, early=early, seed=seed)
        Simulation(seed)(within(100, work, order, name=name, **mode), order)
        assert len(order.order) == 28 + seed // 4 + 5


@pytest.mark.parametrize("down", [0.5, 3.0, 20.0])
@pytest.mark.parametrize("mode", CHANGING, ids=str)
@sweep(8, normal=2)
def test_a_host_that_is_started_again_holds_nobody_up_where_the_graph_changes(
    mode: dict[str, Any], down: float, seeds: range
) -> None:
    for seed in seeds:
        order, faults = Order(), Faults(crashes=[(1.0 + seed / 2, f"host{seed % 2}", down)])
        program = within(150, Workload(60, step_time=0.3, jitter=0.3, seed=seed), order, name="pala", **mode)
        Simulation(seed, Network(latency=0.01 * seed), faults)(program, order)
        assert order.gone == {0, 1, 2, 3}


class Published(Mailboxes):
    """GALA's published protocol at the end of a run: who has finished says nothing."""

    def leave(self, rank: int) -> None: ...


@sweep(200, normal=20)
def test_the_published_shutdown_deadlock(seeds: range) -> None:
    # A learner that finishes early writes no more, and with a finite tau its out-neighbour waits for ever.
    hung = 0
    for seed in seeds:
        program = Program("gala as published")
        post = program.service(Published)(4)
        wired = (Replica(), Direct(), Gossip(post, staleness=1, period=0))
        program.worker(stand_in, copies=4)(Workload(6, early={0: 4}, seed=seed), *wired)  # type: ignore[arg-type]
        with pytest.raises(Deadlock) as caught:
            Simulation(seed)(program)
        hung += "stand_in[1]" in caught.value.waiting
        Simulation(seed)(figure("gala", Workload(6, early={0: 4}, seed=seed), staleness=1))
    assert hung == len(seeds)


def walk(ctx: Context, task: Workload, policy: Any, experience: Any, exchange: Exchange, **more: Any) -> None:
    """Steps that do not depend on where one is, so that it is known what their sum is."""
    learner = StandIn(Point(), 1.0)
    (point,) = learner.model.parameters()
    link = exchange.join(ctx, learner)
    for k in range(task.iterations):
        point.grad = -displacement(ctx.rank, k)
        link.step(learner)
        if k + 1 == CUT:
            (*_, traffic) = link.take()
            assert isinstance(traffic, Traffic)
            ctx.save((point.detach().clone(), traffic.weight))
    link.leave()


CUT = 6  # of 12 iterations: in lock-step, nobody has ended while somebody is still there


def displacement(rank: int, k: int) -> torch.Tensor:
    return torch.randn(16, generator=torch.Generator().manual_seed(100 * rank + k))


UNEVEN = Edges(((0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 1), (0, 3)))


@pytest.mark.parametrize(
    ("graph", "mixing"),
    [
        *((graph, Uniform()) for graph in (Ring(), Exponential(), OnePeer(), Complete(), RandomPairs(1))),
        (Hierarchical(2), Uniform()),
        (Ring(), PushSum()),
        (OnePeer(), PushSum()),
        (UNEVEN, PushSum()),
    ],
    ids=str,
)
@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("name", ["gala", "pala"])
def test_what_all_have_learned_is_conserved_in_lock_step(
    name: str, interval: int, graph: Graph, mixing: Mixing
) -> None:
    # Doubly stochastic matrices, or push-sum on any graph: sum_i w_i x_i = sum of all displacements
    work = Workload(12)
    total = torch.stack([displacement(rank, k) for rank in range(4) for k in range(CUT)]).sum(0)
    for seed in range(3):
        order = Order()
        mode = {"graph": graph, "mixing": mixing, "lock_step": True, "interval": interval}
        Simulation(seed)(figure(name, work, loop=walk, **mode), order)
        points, weights = zip(*order.last.values(), strict=True)
        together = sum(weight * point for weight, point in zip(weights, points, strict=True))
        torch.testing.assert_close(together, total, atol=1e-4, rtol=0)
        assert sum(weights) == pytest.approx(4)
    assert (max(weights) > 1.05) == (graph is UNEVEN)


def march(ctx: Context, task: Workload, policy: Any, experience: Any, exchange: Exchange, **more: Any) -> None:
    """Each member goes in a direction of its own."""
    learner = StandIn(Point(), 1.0)
    (point,) = learner.model.parameters()
    rng = random.Random(10 * task.seed + ctx.rank)
    link = exchange.join(ctx, learner)
    for _ in range(task.iterations):
        ctx.sleep(task.step_time * rng.uniform(0.7, 1.3))
        point.grad = torch.zeros(16)
        point.grad[ctx.rank] = -1.0 / task.iterations
        link.step(learner)
    ctx.save(point.detach().clone())
    link.leave()


@pytest.mark.parametrize("interval", [1, 4])
def test_every_member_of_a_ring_is_heard_as_often_whichever_host_its_neighbour_is_on(interval: int) -> None:
    for seed in range(2):
        order = Order()
        simulation = Simulation(seed, Network(latency=0.01))
        simulation(
            figure("pala", Workload(200, step_time=0.1, seed=seed), staleness=16, interval=interval, loop=march), order
        )
        counts = torch.stack(list(order.last.values())).mean(0)[:4]
        torch.testing.assert_close(counts, torch.full((4,), 0.25), atol=0.08, rtol=0)  # some messages are overtaken


def test_uniform_weights_do_not_conserve_on_an_uneven_graph() -> None:
    order = Order()
    Simulation(0)(figure("gala", Workload(12), graph=UNEVEN, lock_step=True, loop=walk), order)
    total = torch.stack([displacement(rank, k) for rank in range(4) for k in range(CUT)]).sum(0)
    together = sum(point for point, _ in order.last.values())
    assert (together - total).abs().max() > 0.1


def test_a_host_that_dies_holds_nobody_up_and_comes_back_with_its_neighbours_parameters() -> None:
    for seed in range(3):
        order = Order()
        faults = Faults(crashes=[(5.0, "host1", 20.0)])
        simulation = Simulation(seed, Network(latency=0.01), faults)
        program = figure("pala", Workload(120, step_time=0.5, jitter=0.1), staleness=4)
        simulation(program, order)
        done = {rank: order.order.count(f"act_and_learn[{rank}]") for rank in range(4)}
        assert done[0] == done[1] == 120
        # About 10 iterations before it died; back at second 25, when the others had done some 40: not from the start.
        assert 60 <= done[2] <= 110
        # Held up for no longer than it takes to call the silent silent
        assert simulation.clocks["act_and_learn[0]"] < 120 * 0.5 + 15


def test_a_restarted_host_that_reaches_the_others_late_holds_nobody_up() -> None:
    for mode in ({"staleness": 4}, {"lock_step": True}, {"staleness": 4, "period": 20, "window": 10}):
        simulation = Simulation(
            1,
            Network(latency=0.01, timeout=2.0),
            Faults(crashes=[(50.0, "host1", 1.0)], partitions=[(50.0, 75.0, {"host1"})]),
        )
        simulation(figure("pala", Workload(200, step_time=0.5, jitter=0.1), **mode), Order())
        # Host 1 begins anew while it is cut off: at second 75 it is about 100 iterations, 50 seconds, behind the others
        assert simulation.clocks["act_and_learn[0]"] < 200 * 0.5 * 1.1 + 15, mode


def test_hosts_that_never_come_back_do_not_slow_down_the_others() -> None:
    # 4 of 8 hosts. A courier waits for 5 s on a host that is gone; the process lock allows 16 iterations, 1.6 s
    crashes = [(5.0, f"host{h}", math.inf) for h in range(4, 8)]
    simulation = Simulation(1, Network(latency=0.01, timeout=5.0), Faults(crashes=crashes))
    work: Any = Workload(600, step_time=0.1)
    gossip = Gossiping(period=0, staleness=16, interval=4)
    simulation(PALA(hosts=8, learners=1).program(work, gossip=gossip).with_loops({act_and_learn: stand_in}))
    assert max(simulation.clocks[f"act_and_learn[{rank}]"] for rank in range(4)) < 600 * 0.1 + 20


def test_a_host_that_never_comes_back_is_done_without() -> None:
    order = Order()
    simulation = Simulation(1, Network(latency=0.01), Faults(crashes=[(5.0, "host1", math.inf)]))
    simulation(figure("pala", Workload(60, step_time=0.5), lock_step=True), order)
    assert order.order.count("act_and_learn[0]") == order.order.count("act_and_learn[1]") == 60
    assert simulation.clocks["act_and_learn[0]"] < 60 * 0.5 + 15


def test_two_halves_train_apart_and_find_each_other_again() -> None:
    for lossy in (0.0, 0.05):
        order = Order()
        network = Network(latency=0.01, loss=lossy, timeout=2.0)
        simulation = Simulation(3, network, Faults(partitions=[(10.0, 40.0, {"host0"})]))
        simulation(figure("pala", Workload(150, step_time=0.5, jitter=0.1), staleness=4, period=20, window=10), order)
        assert len(order.order) == 4 * 150
        assert max(simulation.clocks[f"act_and_learn[{rank}]"] for rank in range(4)) < 150 * 0.5 * 1.4 + 15


def test_a_lossy_network_loses_no_member() -> None:
    for mode in MODES:
        order = Order()
        simulation = Simulation(2, Network(latency=0.01, loss=0.1, timeout=0.5))
        simulation(figure("pala", Workload(40, step_time=0.2), **mode), order)
        assert len(order.order) == 4 * 40


@pytest.mark.parametrize("mode", SPARSE.values(), ids=SPARSE)
@sweep(200, normal=3)
def test_sparse_messages_hold_nobody_up_where_members_end_early_and_hosts_come_back(
    mode: dict[str, Any], seeds: range
) -> None:
    for seed in seeds:
        order = Order()
        Simulation(seed)(figure("gala", Workload(12, early={1: 3}, seed=seed), **mode), order)
        assert order.order.count("act_and_learn[0]") == 12
        order, network = Order(), Network(latency=0.01, loss=0.02, timeout=0.5)
        simulation = Simulation(seed, network, Faults(crashes=[(10.0, "host1", 3.0)]))
        simulation(figure("pala", Workload(80, step_time=0.5, seed=seed), **mode), order)
        assert order.order.count("act_and_learn[0]") == 80
        assert order.order.count("act_and_learn[3]") > 55  # it came back soon
        # A lost call holds up members that wait for it for 2.5 s; those in lock-step wait at each step
        assert simulation.clocks["act_and_learn[0]"] < 80 * 0.5 + (45 if mode.get("lock_step") else 25)
        if mode["sparse"].select == "changed":  # the member that came back knows what the others know, about 1
            first, last = (order.last[f"act_and_learn[{rank}]"]["known"] for rank in (0, 3))
            assert (first - last).abs().max() < 0.1
