"""Gossip: step alone, tell some, average with what has come (GALA, Assran et al. 2019, alg. 1; PALA over messages)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gossamer.data import Tree, Version
from gossamer.exchange.base import Alone, Exchange, Learning, Link, LocalStep, Stepped
from gossamer.exchange.gossip.formats import rounded
from gossamer.exchange.gossip.graphs import RING, Graph, Members
from gossamer.exchange.gossip.mailboxes import Post
from gossamer.exchange.gossip.messages import Message, on_device
from gossamer.exchange.gossip.mixing import UNIFORM, Mixing
from gossamer.exchange.gossip.records import Record
from gossamer.exchange.gossip.tracker import Tracker
from gossamer.program import Context

PERIOD, WINDOW = 500, 16  # iterations from one observation window to the next, and in one
RECOVERY = 30.0  # seconds that a member which starts again waits for its neighbours' parameters


def room(staleness: float) -> float:
    """The longest interval that a bound on staleness should have: a quarter of it, so that messages may be on their way
    while three more are exchanged."""
    return max(1.0, staleness / 4)


@dataclass(frozen=True)
class Gossip:
    """Gossip, to be wired. Only parameters are averaged: policy and value, no gradient, no state of the optimiser.

    `graph` says who sends to whom, `mixing` how much, `post` how; `inner` is the local step and may be any exchange.
    Members publish and average after every `interval`-th step of the optimiser (iteration), all at the same ones, so
    that everybody is heard as often as anybody else. How far a member may run ahead: `staleness` tau bounds it, at
    iteration k the messages of iteration k - tau or later must have come (PALA's process lock); infinity never blocks
    (GALA's published run); `lock_step` averages exactly the messages of iteration k. Every `period` iterations an
    observation window of `window` iterations opens, in which the records for the distance between members and its bound
    are kept (`records`); `period` 0 switches these diagnostics off. Raises ValueError for a staleness below 0 or below
    interval - 1, where all would wait for what nobody has sent yet."""

    post: Post
    graph: Graph = RING
    mixing: Mixing = UNIFORM
    staleness: float = math.inf
    lock_step: bool = False
    interval: int = 1
    inner: Exchange = field(default_factory=Alone)
    period: int = PERIOD
    window: int = WINDOW

    def __post_init__(self) -> None:
        if not self.staleness >= 0:
            raise ValueError(f"staleness {self.staleness}: must be at least 0")
        if self.interval < 1:
            raise ValueError(f"interval {self.interval}: must be at least 1")
        if self.staleness < self.interval - 1 and not self.lock_step:
            raise ValueError(f"interval {self.interval}: must be at most {self.staleness + 1:g}, staleness + 1")

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None) -> Link:
        """Take part. A member whose host was restarted continues from the average of its neighbours' parameters."""
        state = state or {}
        return GossipLink(self, ctx, learner, self.inner.join(ctx, learner, state.get("inner")), state)


class GossipLink:
    """One member's live end: see `Gossip`."""

    def __init__(self, gossip: Gossip, ctx: Context, learner: Learning, inner: Link, state: Tree) -> None:
        self._gossip, self.graph, self.mixing, self.post = gossip, gossip.graph, gossip.mixing, gossip.post
        self.interval, self.rank, self.inner, self._flat = gossip.interval, ctx.rank, inner, learner.flat
        self.iteration: Version = int(state.get("iteration", 0))
        self.weight = float(state.get("weight", 1.0))  # of push-sum
        self._before: Tensor | None = None  # [P] before the local step, where it is asked for afterwards
        self._tracker = Tracker(self.rank, gossip.period, gossip.window, self._flat.gradient, learner.policy_outputs)
        self._found = self.post.join(self.rank, self._flat.layout, again=ctx.restarts > 0)
        if ctx.restarts:
            self._recover(ctx)
        if self.iteration:
            self._tracker.resume(self.iteration)
        else:
            self._tracker.cut(self.iteration, self._flat.vector.clone(), self._found.members)
        self._remember()

    def leave(self) -> None:
        """Take part no more."""
        self.post.leave(self.rank)
        self.inner.leave()

    def refresh(self, model: nn.Module) -> Version:
        return self.iteration

    def step(self, local: LocalStep) -> Stepped:
        stepped = self.inner.step(local)
        if not stepped.finite:
            return stepped
        if not bool(self._flat.vector.sum().isfinite()):  # a finite gradient can still be too much for float32
            return Stepped(stepped.norm, False)
        self.iteration += 1
        mine = self._stepped()
        if self.iteration % self.interval == 0:
            messages, kept = self._talk(mine)
            self._tracker.arrived(self.iteration, mine, messages, self._found.members)
            self._mix(mine, messages, kept)
        else:
            self._tracker.mixed(self.iteration, (), (), 0.0)
        self._remember()
        return stepped

    def take(self) -> tuple[Record, ...]:
        """What has been kept since the last call."""
        return (*self.inner.take(), *self._tracker.take(self.weight))

    def state_dict(self) -> Tree:
        return {"iteration": self.iteration, "weight": self.weight, "inner": self.inner.state_dict()}

    def _stepped(self) -> Tensor:
        """The parameters after the local step [P]. Once they are published, nobody changes them any more."""
        before = self._before
        if before is not None and self.weight != 1.0:  # push-sum: the step is one of weight * parameters (SGP, alg. 1)
            self._flat.swap(torch.lerp(before, self._flat.vector, 1 / self.weight))
        if before is not None:
            self._tracker.stepped(self.iteration, self._flat.vector, before)
        return self._flat.vector

    def _talk(self, mine: Tensor) -> tuple[list[Message], float]:
        """Publish, and take what has come: the messages, and the push-sum weight that is kept."""
        k = self.iteration
        receivers = self._edges(self.graph.out, k // self.interval)
        each, kept = self.mixing.outgoing(self.weight, len(receivers))
        ready = torch.cuda.current_stream().record_event() if mine.is_cuda else None
        epoch = self._tracker.epoch
        self.post.send(Message(self.rank, k, epoch, each, time.time(), mine, ready=ready), receivers)
        self._tracker.sent += len(receivers)
        messages, view = list[Message](), -1
        while view != self._found.view:  # whom to wait for changes when members come or go
            view = self._found.view
            messages += self._collect(k)
        return messages, kept

    def _collect(self, k: int) -> Sequence[Message]:
        """What has come, once as much has come as the bound on staleness asks for, now and until the next exchange."""
        lock_step = self._gossip.lock_step
        behind = 0 if lock_step else self._gossip.staleness - self.interval + 1  # iterations
        due = math.ceil((k - behind) / self.interval) if behind < math.inf else 0
        needed = dict.fromkeys(self._edges(self.graph.into, due), due * self.interval) if due >= 1 else {}
        view, upto = self._found.view, k if lock_step else math.inf
        with self._tracker.waiting(bool(needed)):
            self._found = self.post.collect(self.rank, needed, view, upto)
        self._tracker.refused += self._found.refused
        return self._found.messages

    def _edges(self, direction: Callable[[int, Members, int], Members], exchange: int) -> Members:
        return direction(self.rank, self._found.members, exchange)

    def _mix(self, mine: Tensor, messages: Sequence[Message], kept: float) -> None:
        """The next parameters, in a buffer of their own: for the one message of a ring, one pass over memory."""
        messages, shares = self._shares(messages, kept)
        vectors, noise = [on_device(m, mine.device) for m in messages], 0.0
        whole = [share for m, share in zip(messages, shares, strict=True) if m.format == "fp32"]
        if whole and len(messages) == 1:
            mixed = torch.lerp(mine, vectors[0], shares[0])
        else:
            mixed = mine * (1 - sum(whole))
            for m, vector, share in zip(messages, vectors, shares, strict=True):
                if m.format == "fp32":
                    mixed.add_(vector, alpha=share)
                    continue
                alike = rounded(mine, m.format)  # set against it, what equal members exchange changes neither
                mixed.add_(vector - alike, alpha=share)
                noise += share * (m.error + float((alike - mine).norm()))
        self._flat.swap(mixed)
        self._tracker.mixed(self.iteration, messages, shares, noise)

    def _shares(self, messages: Sequence[Message], kept: float) -> tuple[list[Message], list[float]]:
        """The messages and the share of each in the average. A late one has the share that it would have had in time:
        where exchanges differ in how many messages they mean to come, those of one kind are averaged in first."""
        by_degree, shares = dict[int, list[Message]](), list[float]()
        for m in messages:
            by_degree.setdefault(len(self._edges(self.graph.into, m.iteration // self.interval)), []).append(m)
        self.weight = kept
        for degree, alike in by_degree.items():
            self.weight, new = self.mixing.incoming(self.weight, degree, [m.weight for m in alike])
            shares = [*(share * (1 - sum(new)) for share in shares), *new]
        return [m for alike in by_degree.values() for m in alike], shares

    def _remember(self) -> None:
        """Keep what the next local step starts from, where it is asked for afterwards."""
        needed = self._tracker.open or self.weight != 1.0
        self._before = self._tracker.start(self._flat.vector) if needed else None

    def _recover(self, ctx: Context) -> None:
        """Take the average of the first messages that come, be they of members that have ended; after RECOVERY seconds
        go on with the own state, as far as others are known to be, so that nobody waits for what is behind them."""
        until, messages = ctx.now() + RECOVERY, list[Message]()
        while not messages and ctx.now() < until and not ctx.stopped and not self._found.alone:
            ctx.sleep(0.1)
            self._found = self.post.collect(self.rank, {}, self._found.view)
            self._tracker.refused += self._found.refused
            messages += self._found.messages
        if messages:
            newest = [on_device(m, self._flat.vector.device) for m in messages]
            self._flat.vector.copy_(torch.stack(newest).mean(0))
            self._tracker.epoch = max(m.epoch for m in messages)
            self.weight = 1.0
        self.iteration = max([self.iteration, self._found.furthest, *(m.iteration for m in messages)])
