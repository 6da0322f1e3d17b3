"""Groups inside gossip: learners that average their gradients at each step gossip as one member.

All learners of a group take the step along the mean gradient (`all_reduce`). Then one of them, the *leader*, gossips
for the group, and the others take its parameters. So the parameters of a group stay equal, and everything that gossip
knows of a member (graph, staleness, weights, records) is that of a group.

`AllReduce` is the outer exchange and `InGroup` the inner one. The other way round, gossip would miss the steps that a
learner without batches takes for the others of its group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gossamer.data import Tree, Version
from gossamer.exchange.base import AloneLink, Learning, Link, LocalStep, OnStep, Recordable, Stepped, unheard
from gossamer.exchange.gossip.gossip import Gossip, GossipLink
from gossamer.exchange.gossip.records import Record
from gossamer.runtime import Context, Wait, ended_copies, waits
from gossamer.system.transfers import received, recorded


@dataclass(frozen=True)
class Mixed:
    """The leader's state after a step in which it did more than the others."""

    vector: Tensor  # [P] parameters
    iteration: Version
    weight: float  # push-sum weight
    ready: torch.cuda.Event | None = None  # on a GPU: recorded after the parameters are computed


class Handover:
    """Service: what the leader of a group gives to the other learners, in order. It does not wait until they have taken
    it."""

    def __init__(self) -> None:
        self._given: dict[int, deque[Mixed]] = {}  # rank of a learner -> what it has not taken

    def give(self, ranks: Collection[int], mixed: Mixed) -> None:
        """Give it to these learners."""
        for rank in ranks:
            self._given.setdefault(rank, deque()).append(mixed)

    @waits
    def take(self, rank: int) -> Wait[Mixed]:
        """Take the oldest that this learner has not taken."""
        while not self._given.get(rank):
            yield
        return self._given[rank].popleft()


@dataclass(frozen=True)
class InGroup:
    """Configuration of gossip among groups, inside an `AllReduce` of the group's gradients. All learners of a group are
    on one host. The leader is the one with the lowest rank that had not ended when the host was restarted last: all
    learners of a group end together."""

    gossip: Gossip  # of the group, which is its `member`
    handover: Handover
    ranks: range  # of the group's learners

    @property
    def group(self) -> int | None:
        """See `Exchange`."""
        return self.gossip.member

    def begin(self, ctx: Context) -> None:
        """See `Exchange`."""
        if ctx.rank == self._running(ctx)[0]:
            self.gossip.begin(ctx)

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None, on_step: OnStep = unheard) -> Link:
        """See `Exchange`."""
        leader, *others = self._running(ctx)
        if ctx.rank != leader:
            return FollowerLink(ctx, self, learner, state, on_step)
        return LeaderLink(self, others, self.gossip.join(ctx, learner, state, on_step), learner)

    def _running(self, ctx: Context) -> list[int]:
        ended = ended_copies(ctx)
        return [rank for rank in self.ranks if rank not in ended]


class LeaderLink:
    """The link of the learner that gossips for its group."""

    recordable: ClassVar = Recordable.NOTHING

    def __init__(self, parts: InGroup, others: Collection[int], link: GossipLink, learner: Learning) -> None:
        """`others`: ranks of the other learners."""
        self._gossip, self._handover, self._others = parts.gossip, parts.handover, others
        self._link, self._learner = link, learner
        self._give()  # a restarted leader has the parameters of its neighbours

    @property
    def version(self) -> Version:
        """See `Link`."""
        return self._link.version

    def step(self, local: LocalStep) -> Stepped:
        """See `Link`."""
        stepped = self._link.step(local)
        if stepped.finite and alone_differs(self._gossip, self.version, self._link.weight):
            self._give()
        return stepped

    def finish(self, local: LocalStep) -> None:
        """See `Link`."""
        self._link.finish(local)

    def refresh(self) -> Version:
        """See `Link`."""
        return self._link.refresh()

    def take(self) -> tuple[Record, ...]:
        """See `Link`. These are the records of the group."""
        return self._link.take()

    def leave(self) -> None:
        """See `Link`."""
        self._link.leave()

    def state_dict(self) -> Tree:
        """See `Link`."""
        return self._link.state_dict()

    def _give(self) -> None:
        vector = self._learner.flat.vector.clone()
        self._handover.give(self._others, Mixed(vector, self.version, self._link.weight, recorded(vector)))


class FollowerLink:
    """The link of a learner that takes its leader's parameters."""

    recordable: ClassVar = Recordable.NOTHING

    def __init__(self, ctx: Context, parts: InGroup, learner: Learning, state: Tree | None, on_step: OnStep) -> None:
        self._rank, self._gossip, self._handover = ctx.rank, parts.gossip, parts.handover
        self._flat, self._on_step = learner.flat, on_step
        self._own = AloneLink(int((state or {}).get("iteration", 0)))
        self._take()

    @property
    def version(self) -> Version:
        """See `Link`."""
        return self._own.version

    def step(self, local: LocalStep) -> Stepped:
        """See `Link`. The step is the leader's, and keeps the optimizer equal."""
        stepped = self._own.step(local)
        if not stepped.finite or not bool(self._flat.vector.sum().isfinite()):  # as in `GossipLink.step`
            return Stepped(stepped.norm, False)
        if alone_differs(self._gossip, self.version, self._weight):
            self._take()
        self._on_step()
        return stepped

    def finish(self, local: LocalStep) -> None:
        """See `Link`."""

    def refresh(self) -> Version:
        """See `Link`."""
        return self.version

    def take(self) -> tuple[Record, ...]:
        """See `Link`. The leader has the records of the group."""
        return ()

    def leave(self) -> None:
        """See `Link`."""

    def state_dict(self) -> Tree:
        """See `Link`."""
        return self._own.state_dict()

    def _take(self) -> None:
        """Wait for the leader, and continue from its state."""
        mixed = self._handover.take(self._rank)
        self._flat.swap(received(mixed.vector, mixed.ready).to(self._flat.vector.device, copy=True))
        self._own.version, self._weight = mixed.iteration, mixed.weight


def alone_differs(gossip: Gossip, iteration: Version, weight: float) -> bool:
    """Whether the leader's parameters after this step differ from those of a learner that has only taken it: they were
    averaged, or push-sum has scaled the step."""
    return gossip.exchanges(iteration) or weight != 1.0
