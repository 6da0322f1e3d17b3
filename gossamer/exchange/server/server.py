"""Learners of a parameter server: they push gradients to its shards, and pull what others have changed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from gossamer.data import Array, Stamp, Tree, Version
from gossamer.exchange.base import Dropped, Learning, Link, LocalStep, OnStep, Stepped, unheard
from gossamer.exchange.flat import ALIGN
from gossamer.exchange.gossip.records import Record
from gossamer.exchange.server.outliers import Outliers
from gossamer.exchange.server.shard import ParameterShard
from gossamer.runtime import Context, Stopped, Unreachable


@dataclass(frozen=True)
class Server:
    """Configuration of a parameter server. The optimizer lives on the shards: a learner's local step is left out.

    `deviations`: gradients of losses so many standard deviations above the learner's running mean are dropped."""

    shards: Sequence[ParameterShard]
    deviations: float = float("inf")

    @property
    def equal(self) -> bool:
        """See `Exchange`: all members have the server's parameters."""
        return True

    def begin(self, ctx: Context) -> None:
        """See `Exchange`."""

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None, on_step: OnStep = unheard) -> Link:
        """See `Exchange`. Raises `ValueError` if the parameters cannot be split over so many shards, or if some of them
        are running statistics, which have no gradient."""
        link = ServerLink(self.shards, ctx.rank, learner, Outliers(self.deviations), on_step)
        if state and "outliers" in state:
            link.outliers.load_state_dict(state["outliers"])
        link.refresh()
        return link


def slices(size: int, shards: int) -> list[slice]:
    """Split a vector of so many elements into contiguous parts of equal size, up to `ALIGN` elements.

    Raises `ValueError` if a part would be empty."""
    blocks = most_shards(size)
    if shards > blocks:
        raise ValueError(f"{shards} shards: the {size} parameters can be split over {blocks} at most")
    ends = [min(size, ALIGN * (blocks * shard // shards)) for shard in range(shards + 1)]
    return [slice(*pair) for pair in pairwise(ends)]


def most_shards(size: int) -> int:
    """Over how many shards a vector of so many elements can be split."""
    return -(-size // ALIGN)


class ServerLink:
    """A learner's link, see `Server`. Its version is that of the first shard."""

    def __init__(
        self,
        shards: Sequence[ParameterShard],
        rank: int,
        learner: Learning,
        outliers: Outliers,
        on_step: OnStep,
    ) -> None:
        self._shards, self._rank, self._learner, self._on_step = shards, rank, learner, on_step
        self._flat, self.outliers = learner.flat, outliers
        if self._flat.trained < len(self._flat.vector):
            raise ValueError("a parameter server has no running statistics of observations or returns")
        self._slices = slices(len(self._flat.vector), len(shards))
        self._stamps: list[Stamp | None] = [None] * len(shards)  # of the parameters here

    @property
    def version(self) -> Version:
        """Updates of the first shard that the parameters here include."""
        first = self._stamps[0]
        return 0 if first is None else first.version

    def step(self, local: LocalStep) -> Stepped:
        gradient = local.gradient()
        if not gradient.finite:
            return Stepped(gradient.norm, finite=False)
        if self.outliers.add(float(gradient.loss)):
            return Stepped(gradient.norm, finite=True, dropped=Dropped.OUTLIER)
        vector, pushed = self._flat.gradient().cpu().numpy(), []
        for shard, part, stamp in zip(self._shards, self._slices, self._stamps, strict=True):
            if stamp is not None:
                with suppress(Unreachable):
                    pushed.append(shard.push(self._rank, vector[part], stamp, self._learner.rate))
        applied = [each.staleness for each in pushed if each.applied]
        if applied:
            self._on_step()
            return Stepped(gradient.norm, finite=True, staleness=max(applied))
        return Stepped(gradient.norm, finite=True, dropped=Dropped.STALE if pushed else Dropped.LOST)

    def finish(self, local: LocalStep) -> None: ...

    def refresh(self) -> Version:
        """Pull what has changed. A shard that does not answer keeps its parameters here."""
        changed = [self._pull(i) for i in range(len(self._shards))]
        if any(changed):
            self._flat.swap(self._flat.vector)  # the parameters have changed in place
        return self.version

    def _pull(self, shard: int) -> bool:
        """Pull from one shard. Returns whether parameters have changed."""
        part = self._flat.vector[self._slices[shard]]
        with suppress(Unreachable):
            pulled = self._shards[shard].pull(self._rank, self._stamps[shard])
            if pulled is not None and pulled.parameters is None:
                self._shards[shard].offer(_array(part), self.version)
                pulled = self._shards[shard].pull(self._rank, None)
            if pulled is not None and pulled.parameters is not None:
                part.copy_(torch.from_numpy(pulled.parameters))
                self._stamps[shard] = pulled.stamp
                return True
        return False

    def take(self) -> tuple[Record, ...]:
        return ()

    def leave(self) -> None:
        for shard in self._shards:
            with suppress(Unreachable, Stopped):
                shard.leave(self._rank)

    def state_dict(self) -> Tree:
        return {"iteration": self.version, "outliers": self.outliers.state_dict()}


def _array(part: Tensor) -> Array:
    """A copy of a part of the parameters."""
    array: Array = part.detach().cpu().numpy().copy()
    return array
