"""The two ends of broadcast: a learner that publishes, and actors that follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from gossamer.data import Stamp, Tree, Version
from gossamer.exchange.base import Alone, Exchange, Learning, Link, LocalStep, OnStep, Recordable, Stepped, unheard
from gossamer.exchange.broadcast.parameters import Parameters, Published
from gossamer.exchange.flat import Flat, buffers
from gossamer.exchange.gossip.records import Record
from gossamer.runtime import Context, Stopped
from gossamer.system.transfers import received, recorded, uploaded
from gossamer.task import Recovered

RECOVERY = 10.0  # seconds that a restarted learner waits for an actor's host to offer its copy
OTHERS = 3.0  # and then for others, whose copies may be newer: heartbeats are a second apart


@dataclass(frozen=True)
class Broadcast:
    """Configuration of broadcast. The learner publishes after each step, and actors follow (`Follower`). `inner`
    performs the step, and may average gradients with other learners first."""

    parameters: Parameters
    inner: Exchange = field(default_factory=Alone)
    recovers: bool = True  # whether a restarted learner takes an actor's newer parameters
    elsewhere: bool = True  # whether other hosts have copies of the parameters

    @property
    def group(self) -> int | None:
        """See `Exchange`."""
        return self.inner.group

    def begin(self, ctx: Context) -> None:
        """See `Exchange`."""
        self.inner.begin(ctx)

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None, on_step: OnStep = unheard) -> Link:
        """Join as the learner. After a restart it continues from the newest parameters that an actor's host has."""
        state = state or {}
        version = int(state.get("iteration", 0))
        if ctx.restarts and self.recovers:
            seconds = RECOVERY if self.elsewhere else 0.0
            version = _recovered(ctx, self.parameters, learner, version, seconds)
        publisher = Publisher(self.parameters, learner, ctx.restarts, on_step)
        inner = self.inner.join(ctx, learner, {**state.get("inner", {}), "iteration": version}, publisher.stepped)
        publisher.begin(inner)
        return BroadcastLink(publisher, inner)


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


class Publisher:
    """Publishes a learner's parameters, with the version that its exchange gives them."""

    def __init__(self, parameters: Parameters, learner: Learning, life: int, on_step: OnStep) -> None:
        """`life`: restarts of the learner's host; `on_step`: called after each step, when it has been published."""
        self._parameters, self._flat, self._model, self._life = parameters, learner.flat, learner.model, life
        self._on_step = on_step
        self._version: Callable[[], Version] = int  # 0 until `begin`
        self._buffers, self._copied = dict[str, Tensor](), list[tuple[int, int]]()

    def begin(self, link: Link) -> None:
        """Publish the first parameters. `link` gives their version, and that of all later ones."""
        self._version = link.refresh
        self._publish()

    def stepped(self) -> None:
        """Publish after a step, also after one that others take: their actors may wait for it."""
        self._publish()
        self._on_step()

    def close(self) -> None:
        """The learner ends."""
        self._parameters.close()

    def _publish(self) -> None:
        stamp = Stamp(self._life, self._version())  # it may take what other learners have changed
        vector = self._flat.vector.detach().clone()
        self._copy_buffers()
        self._parameters.publish(Published(stamp, vector, self._buffers, recorded(vector)))

    def _copy_buffers(self) -> None:
        """Copy the network's buffers, if they have changed: running averages do, the background does not."""
        found = buffers(self._model)
        now = [(id(buffer), buffer._version) for buffer in found.values()]
        if now != self._copied:
            self._copied = now
            self._buffers = {name: buffer.detach().to("cpu", copy=True) for name, buffer in found.items()}


@dataclass(frozen=True)
class BroadcastLink:
    """The learner's end, see `Broadcast`."""

    publisher: Publisher
    inner: Link

    @property
    def version(self) -> Version:
        return self.inner.version

    @property
    def recordable(self) -> Recordable:
        return self.inner.recordable

    def step(self, local: LocalStep) -> Stepped:
        return self.inner.step(local)

    def finish(self, local: LocalStep) -> None:
        self.inner.finish(local)

    def refresh(self) -> Version:
        return self.inner.refresh()

    def take(self) -> tuple[Record, ...]:
        return self.inner.take()

    def leave(self) -> None:
        self.publisher.close()
        self.inner.leave()

    def state_dict(self) -> Tree:
        return {"iteration": self.refresh(), "inner": self.inner.state_dict()}


class Follower:
    """An actor's end: keeps a replica at the newest parameters and buffers."""

    stays = True  # see `policy.Source`

    def __init__(self, parameters: Parameters, model: nn.Module) -> None:
        """Waits for the learner's first parameters. Raises `Stopped` if it has ended before there were any."""
        self._parameters, self._flat, self.model = parameters, Flat(model), model
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

    def refresh(self) -> Version:
        """Take the newest parameters and return their version. On the CPU nothing is copied; on a GPU they go to the
        replica's own memory, which recorded work reads."""
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
            copy_buffers(published.buffers, self.model)
        vector, own = received(published.parameters, published.ready), self._flat.vector
        self._flat.swap(own.copy_(uploaded(vector, own.device)) if own.is_cuda else vector)
        return published.stamp
