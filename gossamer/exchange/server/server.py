"""Learners of a parameter server: they push gradients to its shards, and pull what others have changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from gossamer.data import Array, Tree, Version
from gossamer.exchange.base import Dropped, Learning, Link, LocalStep, OnStep, Recordable, Stepped, unheard
from gossamer.exchange.flat import UNTRAINED
from gossamer.exchange.gossip.records import Record
from gossamer.exchange.server.outliers import Outliers
from gossamer.exchange.server.pull import Pulling
from gossamer.exchange.server.shard import ParameterShard, Pushed
from gossamer.runtime import GONE, Context
from gossamer.system.errors import UserError

MOST_HELD = GONE / 4  # seconds for which a learner keeps its parameters without a call


@dataclass(frozen=True)
class Server:
    """Configuration of a parameter server. The optimizer lives on the shards: a learner's local step is left out.

    `deviations`: gradients of losses so many standard deviations above the learner's running mean are dropped. `holds`:
    parameters are pulled after a step only, so that a rollout and the gradient of it have the same. Without a step for
    `MOST_HELD` seconds, as while a replay memory fills, they are pulled all the same: shards count a learner that is
    silent for `GONE` seconds as lost."""

    shards: Sequence[ParameterShard]
    deviations: float = float("inf")
    holds: bool = False

    @property
    def group(self) -> int | None:
        """See `Exchange`: all members have the server's parameters."""
        return 0

    def begin(self, ctx: Context) -> None:
        """See `Exchange`."""

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None, on_step: OnStep = unheard) -> Link:
        """See `Exchange`. Raises `ValueError` if the parameters cannot be split over so many shards, or if some of them
        are running statistics, which have no gradient."""
        link = ServerLink(ctx, self.shards, learner, Outliers(self.deviations), on_step, holds=self.holds)
        if state and "outliers" in state:
            link.outliers.load_state_dict(state["outliers"])
        link.refresh()
        return link


class ServerLink:
    """A learner's link, see `Server`."""

    recordable = Recordable.PASS

    def __init__(
        self,
        ctx: Context,
        shards: Sequence[ParameterShard],
        learner: Learning,
        outliers: Outliers,
        on_step: OnStep,
        *,
        holds: bool,
    ) -> None:
        self._ctx, self._rank, self._learner, self._on_step = ctx, ctx.rank, learner, on_step
        self._flat, self.outliers = learner.flat, outliers
        if self._flat.trained < len(self._flat.vector):
            raise UserError(f"a parameter server's parameters {UNTRAINED}")
        self._pulling = Pulling(ctx, shards, learner.flat, learner.model, learns=True)
        self._holds, self._stepped = holds, True
        self._refreshed = ctx.now()  # seconds

    @property
    def version(self) -> Version:
        return self._pulling.version

    def step(self, local: LocalStep) -> Stepped:
        self._stepped = True
        gradient = local.gradient()
        if not gradient.finite:
            return Stepped(gradient.norm, finite=False)
        if self.outliers.add(float(gradient.loss)):
            return Stepped(gradient.norm, finite=True, dropped=Dropped.OUTLIER)
        pushed = self._push(self._flat.gradient().cpu().numpy())
        applied = [each.staleness for each in pushed if each.applied]
        if applied:
            self._on_step()
            return Stepped(gradient.norm, finite=True, staleness=max(applied))
        return Stepped(gradient.norm, finite=True, dropped=Dropped.STALE if pushed else Dropped.LOST)

    def _push(self, gradient: Array) -> list[Pushed]:
        """Push to all shards at the same time, but for those that have no parameters yet. Returns their answers."""
        parts = zip(self._pulling.shards, self._pulling.slices, self._pulling.stamps, strict=True)
        calls = {
            i: partial(shard.push, self._rank, gradient[part], stamp, self._learner.rate)
            for i, (shard, part, stamp) in enumerate(parts)
            if stamp is not None
        }
        return list(self._pulling.call(calls).values())

    def finish(self, local: LocalStep) -> None: ...

    def refresh(self) -> Version:
        if self._holds and not self._stepped and self._ctx.now() - self._refreshed < MOST_HELD:
            return self.version
        self._stepped, self._refreshed = False, self._ctx.now()
        return self._pulling.refresh()

    def take(self) -> tuple[Record, ...]:
        return ()

    def leave(self) -> None:
        self._pulling.leave()

    def state_dict(self) -> Tree:
        return {"iteration": self.version, "outliers": self.outliers.state_dict()}
