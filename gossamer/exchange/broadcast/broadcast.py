"""The two ends of broadcast: a learner that publishes, and actors that follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gossamer.data import Stamp, Tree, Version
from gossamer.exchange.base import Alone, Exchange, Learning, Link, LocalStep, Stepped
from gossamer.exchange.broadcast.parameters import Parameters, Published
from gossamer.exchange.flat import Flat, buffers
from gossamer.exchange.gossip.records import Record
from gossamer.runtime import Context, Stopped
from gossamer.task import Recovered

RECOVERY = 10.0  # seconds that a restarted learner waits for an actor's host to offer its copy
OTHERS = 3.0  # and then for others, whose copies may be newer: heartbeats are a second apart


@dataclass(frozen=True)
class Broadcast:
    """Configuration of broadcast. The learner publishes after each optimiser step; `inner` performs the step, and may
    average gradients with other learners first."""

    parameters: Parameters
    inner: Exchange = field(default_factory=Alone)
    recovers: bool = True  # whether a restarted learner takes an actor's newer parameters
    elsewhere: bool = True  # whether other hosts have copies of the parameters

    @property
    def equal(self) -> bool:
        """See `Exchange`."""
        return self.inner.equal

    def begin(self, ctx: Context) -> None:
        """See `Exchange`."""
        self.inner.begin(ctx)

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None) -> Link:
        """Join as the learner. After a restart it continues from the newest parameters that an actor's host has."""
        state = state or {}
        version = int(state.get("iteration", 0))
        if ctx.restarts and self.recovers:
            seconds = RECOVERY if self.elsewhere else 0.0
            version = _recovered(ctx, self.parameters, learner, version, seconds)
        inner = self.inner.join(ctx, learner, {**state.get("inner", {}), "iteration": version})
        return BroadcastLink(self.parameters, learner, inner, ctx.restarts)

    def follow(self, model: nn.Module) -> Follower:
        """Connect the replica of an actor. Waits for the learner's first parameters."""
        return Follower(self.parameters, model)


def _recovered(ctx: Context, parameters: Parameters, learner: Learning, version: Version, seconds: float) -> Version:
    """Take the newest parameters that other hosts offer within so many seconds, and their buffers; their version."""
    end = ctx.now() + seconds
    while parameters.offered() is None and ctx.now() < end and not ctx.stopped:
        ctx.sleep(0.1)
    if parameters.offered() is not None:
        ctx.sleep(OTHERS)
    offered = parameters.offered()
    if offered is None or offered.stamp.version <= version:
        ctx.report(Recovered(version, version, copied=False))
        return version
    learner.flat.swap(offered.parameters.clone().to(learner.flat.vector.device))
    copy_buffers(offered.buffers, learner.model)
    ctx.report(Recovered(offered.stamp.version, version, copied=True))
    return offered.stamp.version


@torch.no_grad()
def copy_buffers(given: Mapping[str, Tensor], model: nn.Module) -> None:
    """Copy these buffers into those of the network."""
    for name, buffer in buffers(model).items():
        buffer.copy_(given[name])


class BroadcastLink:
    """The learner's end, see `Broadcast`."""

    def __init__(self, parameters: Parameters, learner: Learning, inner: Link, life: int) -> None:
        """`life`: restarts of the learner's host."""
        self._parameters, self._inner, self._flat, self._model = parameters, inner, learner.flat, learner.model
        self._life = life
        self._buffers, self._copied = dict[str, Tensor](), list[tuple[int, int]]()
        self._publish(self.version)

    @property
    def version(self) -> Version:
        """Of the learner's parameters."""
        return self._inner.refresh(self._model)

    def step(self, local: LocalStep) -> Stepped:
        return self._inner.step(lambda: self._published(local()))

    def finish(self, local: LocalStep) -> None:
        self._inner.finish(lambda: self._published(local()))

    def refresh(self, model: nn.Module) -> Version:
        return self.version

    def take(self) -> tuple[Record, ...]:
        return self._inner.take()

    def leave(self) -> None:
        self._parameters.close()
        self._inner.leave()

    def state_dict(self) -> Tree:
        return {"iteration": self.version, "inner": self._inner.state_dict()}

    def _published(self, stepped: Stepped) -> Stepped:
        """Publish the parameters after a local step, also after one that others take: their actors may wait for it."""
        if stepped.finite:
            self._publish(self.version + 1)  # the inner exchange counts the step after it
        return stepped

    def _publish(self, version: Version) -> None:
        vector = self._flat.vector.detach().to("cpu", copy=True)
        self._copy_buffers()
        self._parameters.publish(Published(Stamp(self._life, version), vector, self._buffers))

    def _copy_buffers(self) -> None:
        """Copy the network's buffers, if they have changed: running averages do, the background does not."""
        found = buffers(self._model)
        now = [(id(buffer), buffer._version) for buffer in found.values()]
        if now != self._copied:
            self._copied = now
            self._buffers = {name: buffer.detach().to("cpu", copy=True) for name, buffer in found.items()}


class Follower:
    """An actor's end: keeps a replica at the newest parameters and buffers."""

    def __init__(self, parameters: Parameters, model: nn.Module) -> None:
        """Raises `Stopped` if the learner has ended before there were any."""
        self._parameters, self._flat, self._model = parameters, Flat(model), model
        self._buffers: Mapping[str, Tensor] = {}  # that the replica has
        first = parameters.first()
        if first is None:
            parameters.leave()
            raise Stopped("the learner ended before it had parameters")
        self._stamp = self._show(first)

    @property
    def version(self) -> Version:
        """Of the replica's parameters."""
        return self._stamp.version

    def refresh(self, model: nn.Module) -> Version:
        """Take the newest parameters, on the CPU without a copy, and return their version."""
        newer = self._parameters.newer(self._stamp)
        if newer is not None:
            self._stamp = self._show(newer)
        return self.version

    def leave(self) -> None:
        """The actor ends."""
        self._parameters.leave()

    def _show(self, published: Published) -> Stamp:
        if published.buffers is not self._buffers:
            self._buffers = published.buffers
            copy_buffers(published.buffers, self._model)
        self._flat.swap(published.parameters.to(self._flat.vector.device))
        return published.stamp
