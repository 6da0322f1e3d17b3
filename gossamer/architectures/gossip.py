"""Presets that every architecture that gossips has."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gossamer.exchange import AllReduce, Exchange, Gradients
from gossamer.exchange.gossip.groups import Handover, InGroup
from gossamer.exchange.gossip.mailboxes import Post
from gossamer.exchange.gossip.options import Gossiping, follow
from gossamer.presets.layers import Layer
from gossamer.presets.rules import minibatches_of
from gossamer.program import Program


def members(
    p: Program, gossip: Gossiping, post: Post, *, learners: int, size: int, first: int = 0
) -> Iterator[tuple[Exchange, int]]:
    """The exchanges of a host's learners, and how many learners each is for. `learners`: of the host, in groups of this
    `size`; `first`: the rank of the first one. Adds the services in which the learners of a group meet."""
    if size == 1:
        yield gossip.through(post), learners
        return
    for rank in range(first, first + learners, size):
        gradients, handover = p.service(Gradients)(size, rank), p.service(Handover)()
        group = InGroup(gossip.through(post, rank // size), handover, range(rank, rank + size))
        yield AllReduce(gradients, inner=group), size


def sqrt_of_members(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """One learner's learning rate times the square root of the number of members (as in GALA's code).

    Adam and RMSProp divide by the size of a member's own gradients, which is mostly noise. n members with 1/n of the
    environments each have sqrt(n) times the noise. At one learner's rate their average would move less by that factor.
    """
    return {"learning_rate": values["learning_rate"] * math.sqrt(_learners(values) / _group_size(values))}


def shared_minibatches(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Minibatches of 256 steps of all gossiping learners together, at least 64 of each member.

    The average of n learners has the noise of a minibatch n times as large."""
    return minibatches_of(values, max(64 // _group_size(values), 256 // _learners(values)))


def _learners(values: Mapping[str, Any]) -> int:
    """On all hosts."""
    return int(values.get("hosts", 1) * values["learners"])


def _group_size(values: Mapping[str, Any]) -> int:
    """1 also where a value is still to be refused."""
    return max(1, int(values.get("group_size", 1)))


GOSSIP = (
    Layer("what follows from --sync and --staleness", rules=(follow,), preset=None),
    Layer("small environments are stepped in the learner's process", {"env_workers": 0}, preset=None, kind="not atari"),
    Layer("one learner's rate times the square root of the number of members", rules=(sqrt_of_members,)),
    Layer(
        "tuned on Catch: 3e-3 with four learners; 2e-3 is too slow for 150,000 steps, 4e-3 fails with some seeds",
        {"learning_rate": 1.5e-3},
        kind="vector",
        beside=("a2c",),
    ),
    Layer(
        "tried on Hopper-v5: four learners have 2,048 steps between updates together, and a rate of 1e-3",
        {"num_envs": 4, "learning_rate": 5e-4},
        (shared_minibatches,),
        kind="continuous",
        beside=("ppo", "appo"),
    ),
)
PUBLISHED = {  # in the code of GALA and of PALA
    "steps": 40_000_000,
    "preprocessing": "gala",
    "gae_lambda": 1.0,
    "value_coef": 0.5,
    "entropy_coef": 0.01,
    "network": "nature",
    "input": "unit",
    "optimizer": "rmsprop-torch",
    "decay": 0.99,
    "epsilon": 1e-5,
    "learning_rate": 0.0007,
    "anneal_steps": 0,
    "final_fraction": 1.0,
    "max_grad_norm": 0.5,
}
