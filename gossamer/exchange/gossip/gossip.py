"""Gossip: local step, send to neighbours, average with received parameters (GALA, Assran et al. 2019, alg. 1)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gossamer.data import Tree, Version
from gossamer.exchange.base import Alone, Exchange, Learning, Link, LocalStep, OnStep, Recordable, Stepped, unheard
from gossamer.exchange.gossip.contents import Contents
from gossamer.exchange.gossip.formats import Format
from gossamer.exchange.gossip.graphs import RING, Complete, Graph, Members
from gossamer.exchange.gossip.mailboxes import Post
from gossamer.exchange.gossip.messages import Message, on_device
from gossamer.exchange.gossip.mixing import UNIFORM, Mixing, freshness
from gossamer.exchange.gossip.outer import Outer, OuterStep
from gossamer.exchange.gossip.records import Record
from gossamer.exchange.gossip.sparse import Sparse
from gossamer.exchange.gossip.tracker import Tracker
from gossamer.runtime import Context, Stopped

PERIOD, WINDOW = 500, 16  # iterations between the starts of two observation windows, and within one window
RECOVERY = 30.0  # seconds that a restarted member waits for its neighbours' parameters


def room(staleness: float) -> float:
    """Return the longest recommended interval for a staleness bound: a quarter of the bound, so that a message may be
    in transit during three further exchanges before its receiver blocks."""
    return max(1.0, staleness / 4)


@dataclass(frozen=True)
class Gossip:
    """Configuration of gossip. Only policy and value parameters are averaged, not gradients or optimizer state.

    `post` carries the messages, `graph` gives their receivers, `mixing` their weights. `inner` performs the local step
    and may be any exchange. An iteration is one optimizer step. All members publish and average at the same iterations,
    every `interval`-th, so all are averaged equally often.

    `staleness` (tau) bounds how far a member may run ahead: at iteration k it blocks until messages of iteration
    k - tau or later have arrived (PALA's process lock). Infinity never blocks (as in GALA's experiments). `lock_step`
    averages exactly the messages of iteration k. Every `period` iterations an observation window of `window` iterations
    opens. Within it, members record the data for the consensus distance and its bound (`records`). `period` 0 disables
    these diagnostics. Raises `ValueError` if `interval` is below 1, if `staleness` is negative or below `interval` - 1,
    where all members would deadlock, or for what does not work together.

    With `sparse`, a message has a share of the parameters; the first one after a change of the membership has all.
    `outer` adds momentum to the local steps between two exchanges. `decay` lowers the share of a message with its age
    (`mixing.freshness`). With `rounding`, a member rounds its messages itself, and adds the errors to later ones."""

    post: Post
    graph: Graph = RING
    mixing: Mixing = UNIFORM
    staleness: float = math.inf
    lock_step: bool = False
    interval: int = 1
    inner: Exchange = field(default_factory=Alone)
    period: int = PERIOD
    window: int = WINDOW
    sparse: Sparse | None = None  # which parameters are exchanged; None: all
    outer: Outer | None = None
    decay: float = 0.0  # exponent; 0: shares do not depend on age
    rounding: Format | None = None  # None: members send all digits, and couriers round what they carry
    form: Format = "fp32"  # to which couriers round
    member: int | None = None  # the member's number among those that gossip; None: its worker's rank

    def __post_init__(self) -> None:
        if not self.staleness >= 0:
            raise ValueError(f"staleness {self.staleness}: must be at least 0")
        if self.interval < 1:
            raise ValueError(f"interval {self.interval}: must be at least 1")
        if self.staleness < self.interval - 1 and not self.lock_step:
            raise ValueError(f"interval {self.interval}: must be at most {self.staleness + 1:g}, staleness + 1")
        self._check_together()

    def _check_together(self) -> None:
        """Raise `ValueError` for what does not work together."""
        if self.mixing != UNIFORM and (self.sparse is not None or self.decay):
            raise ValueError("sparse messages and decay need uniform mixing: push-sum's weights are of whole vectors")
        if self.decay < 0 or (self.decay and self.lock_step):
            raise ValueError(f"decay {self.decay}: must be at least 0, and 0 with lock_step, where no message is old")
        select = None if self.sparse is None else self.sparse.select
        if select == "changed" and not (self.lock_step and self.graph == Complete()):
            raise ValueError("select changed: needs a complete graph and lock_step")

    @property
    def group(self) -> int | None:
        return None

    def begin(self, ctx: Context) -> None:
        self.post.expect(self.number(ctx))
        self.inner.begin(ctx)

    def number(self, ctx: Context) -> int:
        """The number of this worker's member."""
        return ctx.rank if self.member is None else self.member

    def exchanges(self, iteration: Version) -> bool:
        """Whether there is an exchange after this step."""
        return iteration % self.interval == 0

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None, on_step: OnStep = unheard) -> GossipLink:
        """Join the exchange. A restarted member resumes from the average of its neighbours' parameters."""
        state = state or {}
        return GossipLink(self, ctx, learner, self.inner.join(ctx, learner, state.get("inner")), state, on_step)


class GossipLink:
    """One member's link, see `Gossip`."""

    recordable = Recordable.NOTHING

    def __init__(
        self, gossip: Gossip, ctx: Context, learner: Learning, inner: Link, state: Tree, on_step: OnStep
    ) -> None:
        self._gossip, self.graph, self.mixing, self.post = gossip, gossip.graph, gossip.mixing, gossip.post
        self.interval, self.rank, self.inner, self._flat = gossip.interval, gossip.number(ctx), inner, learner.flat
        self._on_step = on_step
        self.iteration: Version = int(state.get("iteration", 0))
        self.weight = float(state.get("weight", 1.0))  # push-sum weight
        self._before: Tensor | None = None  # [P] parameters before the local step, if they are needed after it
        gradient, policy = self._flat.gradient, learner.policy_outputs
        bounded = gossip.sparse is None
        self._tracker = Tracker(self.rank, gossip.period, gossip.window, gradient, policy, self._flat.trained, bounded)
        self._found = self.post.join(self.rank, self._flat.layout, again=ctx.restarts > 0)
        self._restarted = ctx.restarts > 0
        self._allowed = self.interval + (0 if gossip.lock_step else gossip.staleness)  # iterations behind the others
        recovered = ctx.restarts > 0 and self._recover(ctx)
        kept = {} if recovered else state
        # The first message of a restarted member has all parameters: its receivers may have been restarted with it
        view = -1 if self._restarted else self._found.view
        self._contents = Contents(gossip.sparse, gossip.rounding, self._flat, kept, view)
        self._outer: OuterStep | None = None
        if gossip.outer is not None:
            self._outer = OuterStep(gossip.outer, self._flat.vector, self._flat.separable, kept.get("outer"))
        if self.iteration:
            self._tracker.resume(self.iteration)
        else:
            self._tracker.cut(self.iteration, self._flat.vector.clone(), self._found.members)
        self._save_before()

    def leave(self) -> None:
        self.post.leave(self.rank)
        self.inner.leave()

    @property
    def version(self) -> Version:
        return self.iteration

    def refresh(self) -> Version:
        return self.iteration

    def step(self, local: LocalStep) -> Stepped:
        start = self._start()
        stepped = self.inner.step(local)
        if not stepped.finite:
            return stepped
        exchanges = self._gossip.exchanges(self.iteration + 1)
        self._complete(start, exchanges)
        if not bool(self._flat.vector.sum().isfinite()):  # a step along a finite gradient can overflow float32
            return Stepped(stepped.norm, False)
        self.iteration += 1
        mine = self._flat.vector  # never modified once published
        if self._before is not None:
            self._tracker.stepped(self.iteration, mine, self._before)
        if exchanges:
            messages, kept = self._exchange(mine)
            if self._restarted and self._furthest(messages) > self.iteration + self._allowed:
                self._catch_up(messages)  # it could not reach the others when it restarted, and now they wait for it
            self._tracker.arrived(self.iteration, mine, messages, self._found.members)
            self._mix(mine, messages, kept)
            if self._outer is not None:
                self._outer.begin(self._flat.vector)
        else:
            self._tracker.mixed(self.iteration, (), (), 0.0)
        self._save_before()
        self._on_step()
        return stepped

    def finish(self, local: LocalStep) -> None:
        self.inner.finish(local)

    def take(self) -> tuple[Record, ...]:
        """Return the records since the last call."""
        return (*self.inner.take(), *self._tracker.take(self.weight))

    def state_dict(self) -> Tree:
        state = {"iteration": self.iteration, "weight": self.weight, "inner": self.inner.state_dict()}
        state |= self._contents.state_dict()
        return state if self._outer is None else {**state, "outer": self._outer.state_dict()}

    def _start(self) -> Tensor | None:
        """Return the parameters [P] at the start of the local step, if they are needed after it. They differ from those
        after the previous exchange if the learner has updated its running statistics."""
        changed = self._before is not None and self._flat.trained < len(self._flat.vector)
        return self._flat.vector.clone() if changed else self._before

    def _complete(self, start: Tensor | None, exchanges: bool) -> None:
        """Complete the local step. `start`: the parameters [P] before it, if they are needed."""
        if start is not None and self.weight != 1.0:  # push-sum: the step applies to weight * parameters (SGP, alg. 1)
            self._flat.swap(torch.lerp(start, self._flat.vector, 1 / self.weight))
        if self._outer is not None and exchanges:
            self._outer.take(self._flat.vector, self.weight)

    def _exchange(self, mine: Tensor) -> tuple[list[Message], float]:
        """Publish parameters [P]; return the received messages and the push-sum weight that this member keeps."""
        k = self.iteration
        receivers = self._neighbours(self.graph.out, k // self.interval)
        each, kept = self.mixing.outgoing(self.weight, len(receivers))
        message = Message(self.rank, k, self._tracker.epoch, each, time.time(), mine)
        message = self._contents.of(message, k // self.interval, self._found.view, len(receivers))
        self.post.send(message, receivers)
        self._tracker.sent += len(receivers)
        self._tracker.sent_whole += len(receivers) * message.whole
        self._tracker.sent_bytes += message.nbytes(self._gossip.form) * len(receivers)
        messages, view = list[Message](), -1
        while view != self._found.view:  # the required senders change with the membership
            view = self._found.view
            messages += self._collect(k)
        return messages, kept

    def _collect(self, k: int) -> Sequence[Message]:
        """Return received messages. Blocks until the staleness bound holds for all iterations up to the next exchange,
        until the membership changes, or until the program is stopped."""
        lock_step = self._gossip.lock_step
        behind = 0 if lock_step else self._gossip.staleness - self.interval + 1  # iterations
        due = math.ceil((k - behind) / self.interval) if behind < math.inf else 0
        needed = dict.fromkeys(self._neighbours(self.graph.into, due), due * self.interval) if due >= 1 else {}
        view, upto = self._found.view, k if lock_step else math.inf
        with self._tracker.waiting(bool(needed)):
            try:
                self._found = self.post.collect(self.rank, needed, view, upto)
            except Stopped:  # the own message is sent: complete the exchange, so that the state to save is consistent
                self._found = self.post.collect(self.rank, {}, view, upto)
        self._tracker.refused += self._found.refused
        return self._found.messages

    def _neighbours(self, direction: Callable[[int, Members, int], Members], exchange: int) -> Members:
        return direction(self.rank, self._found.members, exchange)

    def _mix(self, mine: Tensor, messages: Sequence[Message], kept: float) -> None:
        """Average parameters [P] with the messages into a new buffer."""
        messages, shares = self._shares(messages, kept)
        mixed, noise = self._contents.mixed(mine, messages, shares, self.interval)
        self._flat.swap(mixed)
        self._tracker.mixed(self.iteration, messages, shares, noise)

    def _shares(self, messages: Sequence[Message], kept: float) -> tuple[list[Message], list[float]]:
        """Return the messages and the share of each in the average. A late message gets the share that it would have
        had on time: messages are grouped by the in-degree of their exchange, and groups are averaged sequentially."""
        by_degree, shares = dict[int, list[Message]](), list[float]()
        for m in messages:
            by_degree.setdefault(len(self._neighbours(self.graph.into, m.iteration // self.interval)), []).append(m)
        self.weight = kept
        for degree, alike in by_degree.items():
            self.weight, new = self.mixing.incoming(self.weight, degree, [m.weight for m in alike])
            new = [share * self._freshness(m) for share, m in zip(new, alike, strict=True)]
            shares = [*(share * (1 - sum(new)) for share in shares), *new]
        return [m for alike in by_degree.values() for m in alike], shares

    def _freshness(self, message: Message) -> float:
        """Factor of its share; the member keeps the rest."""
        if not self._gossip.decay:
            return 1.0
        return freshness((self.iteration - message.iteration) / self.interval, self._gossip.decay)

    def _save_before(self) -> None:
        """Copy the parameters before the next local step, if they are needed after it."""
        needed = self._tracker.open or self.weight != 1.0
        self._before = self._tracker.start(self._flat.vector) if needed else None

    def _recover(self, ctx: Context) -> bool:
        """Start from the average of the first messages received that have all parameters. They may be from members that
        have ended. Without one within RECOVERY seconds, keep the own parameters. In both cases continue at the largest
        known iteration, so that other members do not wait for this one to catch up. Returns whether there was one."""
        until, messages, newest = ctx.now() + RECOVERY, list[Message](), list[Message]()
        while not newest and ctx.now() < until and not ctx.stopped and not self._found.alone:
            ctx.sleep(0.1)
            self._found = self.post.collect(self.rank, {}, self._found.view)
            self._tracker.refused += self._found.refused
            messages += self._found.messages
            newest = [m for m in messages if m.parameters.shape == self._flat.vector.shape]
        if newest:
            self._flat.vector.copy_(torch.stack([on_device(m, self._flat.vector.device) for m in newest]).mean(0))
            self._tracker.epoch = max(m.epoch for m in newest)
            self.weight = 1.0
        self.iteration = max(self.iteration, self._furthest(messages))
        return bool(newest)

    def _furthest(self, messages: Sequence[Message]) -> Version:
        """The largest known iteration of the other members."""
        return max([self._found.furthest, *(m.iteration for m in messages)])

    def _catch_up(self, messages: Sequence[Message]) -> None:
        self.iteration, self._restarted = self._furthest(messages), False
        self._tracker.resume(self.iteration)
