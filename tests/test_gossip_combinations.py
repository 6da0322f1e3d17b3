"""All parts of gossip together, in seeded schedules: what members have learned is conserved, whatever they exchange."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from some_gossip import gossiping
from sweeps import sweep
from torch import Tensor

from gossamer.architectures import GALA, PALA
from gossamer.exchange import Exchange
from gossamer.exchange.gossip.graphs import Complete, Edges, OnePeer
from gossamer.exchange.gossip.mixing import PushSum
from gossamer.exchange.gossip.outer import Outer
from gossamer.exchange.gossip.sparse import Sparse
from gossamer.launch.simulation import Simulation
from gossamer.loops import act_and_learn
from gossamer.program import Program
from gossamer.runtime import Context, Silent
from gossamer.tools.simulate.gossip.members import Workload
from gossamer.tools.simulate.stand_in import Point, StandIn

SIZE, STEPS = 48, 6  # parameters; steps after which members are looked at, half of all: none has ended then
CONTENTS: dict[str, dict[str, Any]] = {
    "all": {"graph": OnePeer()},
    # Member 0 has two receivers and member 2 two senders: weights are not 1
    "push-sum": {"mixing": PushSum(), "graph": Edges(((0, 1), (1, 2), (2, 3), (3, 0), (0, 2)))},
    "random": {"sparse": Sparse(0.25, "random")},
    "rotation": {"sparse": Sparse(0.25, "rotation"), "graph": OnePeer()},
    "changed": {"sparse": Sparse(0.25, "changed"), "graph": Complete()},
}
PARTS = [
    {"interval": interval, "rounding": rounding, "outer": outer}
    for interval, rounding, outer in product((1, 3), (None, "int8"), (None, Outer(0.5, 0.7)))
]


def displacement(rank: int, k: int) -> Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(100 * rank + k))


def walk(ctx: Context, task: Workload, policy: Any, experience: Any, exchange: Exchange, **more: Any) -> None:
    """Steps that do not depend on where one is. After `STEPS` of them it saves its parameters and its link's state."""
    learner = StandIn(Point(SIZE), 1.0)
    (point,) = learner.model.parameters()
    link = exchange.join(ctx, learner)
    for k in range(2 * STEPS):
        point.grad = -displacement(ctx.rank, k)
        link.step(learner)
        if k + 1 == STEPS:
            ctx.save({"point": point.detach().clone(), **link.state_dict()})
    link.leave()


class Saved(Silent):
    """Keeps what members save."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}

    def save(self, name: str, state: Any) -> None:
        if name.startswith("walk") or name.startswith("act_and_learn"):
            self.states[name] = state


def figure(name: str, **mode: Any) -> Program:
    work: Any = Workload(2 * STEPS)
    gossip = gossiping(name, lock_step=True, **mode)
    if name == "gala":
        program = GALA(learners=4).program(work, gossip=gossip)
    else:
        program = PALA(hosts=2, learners=2).program(work, gossip=gossip, couriers=1)
    return program.with_loops({act_and_learn: walk})


def learned(rank: int, interval: int, outer: Outer | None) -> Tensor:
    """What a member has added in its steps, by the outer optimizer's recursion."""
    outer, momentum, total = outer or Outer(), torch.zeros(SIZE), torch.zeros(SIZE)
    for first in range(0, STEPS, interval):
        delta = sum((displacement(rank, k) for k in range(first, first + interval)), torch.zeros(SIZE))
        momentum = outer.momentum * momentum + delta
        total = total + outer.learning_rate * (delta + outer.momentum * momentum)
    return total


@pytest.mark.parametrize("parts", PARTS, ids=str)
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", ["gala", "pala"])
@sweep(200, normal=1)
def test_what_members_have_learned_is_conserved(name: str, content: str, parts: dict[str, Any], seeds: range) -> None:
    """In lock-step: the sum of weight * parameters, and what members owe, is the sum of their steps."""
    total = sum((learned(rank, parts["interval"], parts["outer"]) for rank in range(4)), torch.zeros(SIZE))
    share = 1.0 if content == "push-sum" else 0.5  # of a message in its receiver's average, with one neighbour
    for seed in seeds:
        saved = Saved()
        Simulation(seed)(figure(name, **CONTENTS[content], **parts), saved)
        assert len(saved.states) == 4
        members = list(saved.states.values())
        there = sum((s["weight"] * s["point"] for s in members), torch.zeros(SIZE))
        owed = sum((s["owed"] for s in members if "owed" in s), torch.zeros(SIZE))
        torch.testing.assert_close(there + share * owed, total, atol=1e-3, rtol=0)
        assert any(s["weight"] != 1 for s in members) == (content == "push-sum")
        assert (owed.abs().max() > 0) == (parts["rounding"] is not None and content != "changed")
