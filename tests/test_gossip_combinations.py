"""All parts of gossip together, in seeded schedules: what members have learned is conserved, whatever they exchange."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Any

import pytest
import torch
from some_gossip import gossiping
from sweeps import sweep
from torch import Tensor

from gossamer.architectures import GALA, PALA
from gossamer.exchange import Exchange
from gossamer.exchange.gossip.graphs import Complete, Edges, Exponential, Graph, OnePeer, RandomPairs, Ring
from gossamer.exchange.gossip.mixing import PushSum
from gossamer.exchange.gossip.outer import Outer
from gossamer.exchange.gossip.sparse import Sparse
from gossamer.launch.simulation import Network, Simulation
from gossamer.loops import act_and_learn
from gossamer.program import Program
from gossamer.runtime import Context, Silent
from gossamer.tools.simulate.gossip.members import Workload
from gossamer.tools.simulate.stand_in import Point, StandIn

SIZE = 48  # parameters
STEPS = 6  # in lock-step, after which members are looked at, half of all: none has ended then
STEP_TIME = 0.1  # seconds, on average
CONTENTS: dict[str, dict[str, Any]] = {
    "all": {},
    "push-sum": {"mixing": PushSum()},
    "random": {"sparse": Sparse(0.25, "random")},
    "rotation": {"sparse": Sparse(0.25, "rotation")},
    "changed": {"sparse": Sparse(0.25, "changed"), "graph": Complete()},
}
OUTER = (None, Outer(0.5, 0.7))
PARTS = [
    {"interval": interval, "feedback": feedback, "outer": outer}
    for interval, feedback, outer in product((1, 3), (False, True), OUTER)
]
FREE = [
    {"interval": interval, "rounding": rounding, "outer": outer, "size": size}
    for interval, rounding, outer, size in product((1, 3), (None, "int8", "bf16"), OUTER, (1, 2))
]


@dataclass(frozen=True)
class Walk(Workload):
    """`early`: the steps of each learner that does not take all `iterations`."""

    alike: bool = False  # whether all begin with the same parameters
    looked_at: int | None = None  # the steps after which a learner is saved; None: at its end


def displacement(seed: int, rank: int, k: int) -> Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(10_000 * seed + 100 * rank + k + 1))


def walk(ctx: Context, task: Walk, policy: Any, experience: Any, exchange: Exchange, **more: Any) -> None:
    """Steps that do not depend on where one is, and take any time."""
    rng = random.Random(f"{task.seed} {ctx.name}")
    exchange.begin(ctx)
    learner = StandIn(Point(SIZE), 1.0)
    (point,) = learner.model.parameters()
    point.data.copy_(displacement(task.seed, 0 if task.alike else ctx.rank, -1))
    link = exchange.join(ctx, learner)
    steps = task.early.get(ctx.rank, task.iterations)
    for k in range(steps):
        ctx.sleep(rng.expovariate(1 / STEP_TIME))
        point.grad = -displacement(task.seed, ctx.rank, k)
        link.step(learner)
        if k + 1 == (task.looked_at or steps):
            state = link.state_dict()
            gossip = state if "weight" in state else state["inner"]  # in groups inside the all-reduce
            ctx.save({"rank": ctx.rank, "point": point.detach().clone(), **gossip})
    link.leave()


class Saved(Silent):
    """Keeps what members and services save, in order."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}

    def save(self, name: str, state: Any) -> None:
        self.states[name] = state

    @property
    def members(self) -> list[Any]:
        """Of the learners of a group, the one that gossips for it."""
        return [state for state in self.states.values() if "weight" in state]

    def unread(self) -> list[tuple[float, Tensor]]:
        """Push-sum weight and parameters of the messages that no member has averaged."""
        found = []
        boxes = {name: s.get("boxes", s) for name, s in self.states.items() if "rank" not in s}
        reached = {(rank, sender): k for box in boxes.values() for rank, sender, k in box["reached"]}
        for box in boxes.values():
            found += [(m["weight"], m["parameters"]) for _, m in box["unread"]]
        for name in boxes:
            for _, receivers, m in self.states[name].get("parcels", []):
                # A parcel may have arrived whose confirmation was lost
                waiting = [rank for rank in receivers if m["iteration"] > reached.get((rank, m["sender"]), 0)]
                found += [(m["weight"], m["parameters"])] * len(waiting)
        return found


def figure(name: str, work: Any, *, members: int, size: int, **mode: Any) -> Program:
    """`members` groups of so many learners."""
    gossip = gossiping(name, **mode)
    if name == "gala":
        program = GALA(learners=members * size, group_size=size).program(work, gossip=gossip)
    else:
        pala = PALA(hosts=2, learners=members // 2 * size, group_size=size)
        program = pala.program(work, gossip=gossip, couriers=1)
    return program.with_loops({act_and_learn: walk})


def learned(work: Walk, member: int, size: int, steps: int, interval: int, outer: Outer | None) -> Tensor:
    """Where a member has begun, and what it has added in its steps, by the outer optimizer's recursion."""
    seed, outer, momentum = work.seed, outer or Outer(), torch.zeros(SIZE)
    total = displacement(seed, 0 if work.alike else member * size, -1)
    own = [
        sum((displacement(seed, member * size + i, k) for i in range(size)), torch.zeros(SIZE)) for k in range(steps)
    ]
    last = steps - steps % interval
    for first in range(0, last, interval):
        delta = sum(own[first : first + interval], torch.zeros(SIZE)) / size
        momentum = outer.momentum * momentum + delta
        total = total + outer.learning_rate * (delta + outer.momentum * momentum)
    return total + sum(own[last:], torch.zeros(SIZE)) / size


def members_of(name: str, rng: random.Random) -> int:
    return rng.choice([3, 4, 5, 6] if name == "gala" else [4, 6])


def irregular(members: int) -> Graph:
    """Member 0 has two receivers and member 2 two senders: push-sum's weights are not 1."""
    return Edges((*((rank, (rank + 1) % members) for rank in range(members)), (0, 2)))


def in_lock_step(name: str, content: str, parts: dict[str, Any], seed: int) -> tuple[Saved, Tensor, float]:
    """A run, the sum of what its members have learned, and the share of a message in its receiver's average."""
    rng, parts = random.Random(seed), dict(parts)
    members, size = members_of(name, rng), rng.choice([1, 2])
    graph = rng.choice([Ring(), OnePeer(), Exponential(), Complete()])
    mode = {"graph": graph, **CONTENTS[content], "interval": parts["interval"], "outer": parts["outer"]}
    if content == "push-sum":
        mode["graph"] = irregular(members)
    if parts["feedback"]:
        mode["rounding"] = rng.choice(["int8", "bf16"])
    saved, work = Saved(), Walk(2 * STEPS, seed=seed, alike=content == "changed", looked_at=STEPS)
    Simulation(seed)(figure(name, work, members=members, size=size, lock_step=True, **mode), saved)
    assert len(saved.members) == members
    each = (learned(work, member, size, STEPS, parts["interval"], parts["outer"]) for member in range(members))
    degree = len(mode["graph"].out(0, tuple(range(members)), 1))
    return saved, sum(each, torch.zeros(SIZE)), 1.0 if content == "push-sum" else 1 / (1 + degree)


@pytest.mark.parametrize("parts", PARTS, ids=str)
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", ["gala", "pala"])
@sweep(200, normal=1)
def test_what_members_have_learned_is_conserved(name: str, content: str, parts: dict[str, Any], seeds: range) -> None:
    """In lock-step: the sum of weight * parameters, and what members owe, is the sum of their steps."""
    for seed in seeds:
        saved, total, share = in_lock_step(name, content, parts, seed)
        there = sum((s["weight"] * s["point"] for s in saved.members), torch.zeros(SIZE))
        owed = sum((s["owed"] for s in saved.members if "owed" in s), torch.zeros(SIZE))
        torch.testing.assert_close(there + share * owed, total, atol=1e-3, rtol=0)
        assert any(s["weight"] != 1 for s in saved.members) == (content == "push-sum")
        assert (owed.abs().max() > 0) == (parts["feedback"] and content != "changed")


@pytest.mark.parametrize("parts", FREE, ids=str)
@pytest.mark.parametrize("name", ["gala", "pala"])
@sweep(200, normal=2)
def test_push_sum_conserves_it_with_any_delays(name: str, parts: dict[str, Any], seeds: range) -> None:
    """Members take any time for their steps and leave at different times; calls between hosts take any time, and some
    are lost."""
    late = 0
    for seed in seeds:
        saved, total, members = freely(name, parts, seed)
        unread = saved.unread()
        everything = [(s["weight"], s["point"]) for s in saved.members] + unread
        assert sum(weight for weight, _ in everything) == pytest.approx(members)
        there = sum((weight * point for weight, point in everything), torch.zeros(SIZE))
        owed = [s["owed"] for s in saved.members if "owed" in s]
        assert len(owed) == (members if parts["rounding"] else 0)
        torch.testing.assert_close(there + sum(owed, torch.zeros(SIZE)), total, atol=1e-3, rtol=0)
        late += len(unread)
    assert late > 0


def freely(name: str, parts: dict[str, Any], seed: int) -> tuple[Saved, Tensor, int]:
    """A run, the sum of what its members have learned, and their number."""
    rng, mode = random.Random(seed), dict(parts)
    size = mode.pop("size")
    members = members_of(name, rng)
    graph = rng.choice([Ring(), OnePeer(), Exponential(), Complete(), RandomPairs(seed), irregular(members)])
    steps = [rng.randint(4, 24) for _ in range(members)]
    work = Walk(0, seed=seed, early={rank: steps[rank // size] for rank in range(members * size)})
    mode |= {"graph": graph, "mixing": PushSum(), "staleness": rng.choice([inf, 2, 8])}
    program = figure(name, work, members=members, size=size, **mode)
    # A host that is not heard for 6 seconds is given up with the messages for it
    delay = rng.choice([0.02, 0.2])
    network = Network(latency=0.01, loss=0.02, timeout=0.2, work=lambda *call: rng.expovariate(1 / delay))
    saved = Saved()
    Simulation(seed, network)(program, saved)
    assert len(saved.members) == members
    each = (learned(work, member, size, steps[member], mode["interval"], mode["outer"]) for member in range(members))
    return saved, sum(each, torch.zeros(SIZE)), members


def test_seeds_are_different_schedules() -> None:
    orders = dict[str, list[tuple[str, ...]]]()
    for seed in range(12):
        lock_step, total, _ = in_lock_step("gala", "all", PARTS[0], seed)
        assert not torch.allclose(total, in_lock_step("gala", "all", PARTS[0], seed + 1)[1])
        orders.setdefault(f"lock-step {len(lock_step.states)}", []).append(tuple(lock_step.states))
        free, _, _ = freely("pala", FREE[0], seed)
        orders.setdefault(f"free {len(free.states)}", []).append(tuple(free.states))
    assert all(len(set(each)) == len(each) for each in orders.values())
