"""Learners that change shared parameters without a lock (Mnih et al. 2016, algorithms 1, S2 and S3)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from gossamer.algorithms.target import targets
from gossamer.data import Tree, Version
from gossamer.exchange.base import Learning, Link, LocalStep, OnStep, Recordable, Stepped, unheard
from gossamer.exchange.flat import ALIGN, UNTRAINED, Flat
from gossamer.exchange.gossip.records import Record
from gossamer.exchange.shared.memory import Contents, SharedMemory
from gossamer.runtime import Context, Reaching, Stopped
from gossamer.system.errors import UserError

Statistics: TypeAlias = Literal["shared", "own"]


@dataclass(frozen=True)
class Shared:
    """Configuration of shared parameters.

    A learner acts with, and computes its gradient at, a copy theta' of the shared theta. It applies the gradient to
    theta, whatever others have made of it meanwhile, and copies theta anew. `statistics`: whether the optimizer's means
    are shared, too. A target network is always shared. `fresh`: theta is also copied before each batch, for a learner
    whose batches others have acted for."""

    memory: SharedMemory
    statistics: Statistics = "shared"
    fresh: bool = False

    @property
    def group(self) -> int | None:
        """See `Exchange`: the learner whose copy is the newest has the parameters of all."""
        return 0

    def begin(self, ctx: Context) -> None:
        """See `Exchange`."""

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None, on_step: OnStep = unheard) -> Link:
        """See `Exchange`. Raises `ValueError` if some of the parameters are running statistics, which have no
        gradient, and `UserError` if the learners are on several machines."""
        share = self.statistics == "shared"
        return SharedLink(ctx, self.memory, learner, share=share, fresh=self.fresh, on_step=on_step)


class SharedLink:
    """A learner's link, see `Shared`."""

    recordable = Recordable.PASS

    def __init__(
        self,
        ctx: Context,
        memory: SharedMemory,
        learner: Learning,
        *,
        share: bool,
        fresh: bool = False,
        on_step: OnStep = unheard,
    ) -> None:
        self._rank, self._memory, self._fresh, self._on_step = ctx.rank, memory, fresh, on_step
        self._flat, self._own = learner.flat, learner.flat.vector
        if self._flat.trained < len(self._own):
            raise UserError(f"shared parameters {UNTRAINED}")
        self._reach = Reaching(ctx)
        target = next(iter(targets(learner.model)), None)
        self._older = older = None if target is None else Flat(target.model)
        statistics = learner.statistics() if share else []
        packed = _packed(statistics, self._own.device)
        device = str(self._own.device)
        place = self._reach(lambda: memory.open(device))
        if place is None:
            contents = Contents(self._own, packed, self._own[:0] if older is None else older.vector)
            place = self._reach(lambda: memory.create(contents))
        self._block = block = place.block()
        self._updates = block.updates[ctx.rank]  # [] of this learner, which no other writes to
        if share:
            learner.share_statistics(_views(statistics, block.statistics))
        if target is not None:
            target.age = block.age
        self.version: Version = 0
        self._age: int | None = None  # of the target network, as of the last pull
        self._pull()

    @torch.no_grad()
    def step(self, local: LocalStep) -> Stepped:
        gradient = local.gradient()
        if not gradient.finite:
            return Stepped(gradient.norm, finite=False)
        staleness = self._block.version - self.version
        self._flat.swap(self._block.parameters)
        local.apply()
        self._updates += 1
        self._pull()
        self._on_step()
        return Stepped(gradient.norm, finite=True, staleness=staleness)

    def _pull(self) -> None:
        """Copy the shared parameters. They have all updates that their version, which is read first, counts."""
        self.version = self._block.version
        self._own.copy_(self._block.parameters)
        self._flat.swap(self._own)
        if self._older is not None and self._age != int(self._block.age):
            self._age = int(self._block.age)
            self._older.swap(self._block.target)  # another learner has copied it

    def finish(self, local: LocalStep) -> None: ...

    def refresh(self) -> Version:
        """See `Link`. The copy is as new as the learner's last step, so that a rollout and the gradient of it have the
        same parameters; or, if `Shared.fresh`, as new as theta."""
        if self._fresh and self._block.version != self.version:
            with torch.no_grad():
                self._pull()
        return self.version

    def take(self) -> tuple[Record, ...]:
        return ()

    def leave(self) -> None:
        with suppress(Stopped):
            self._reach(lambda: self._memory.leave(self._rank))

    def state_dict(self) -> Tree:
        return {"iteration": self.version}


def _packed(tensors: list[Tensor], device: torch.device) -> Tensor:
    """The tensors in one vector, see `_views`."""
    vector = torch.zeros(sum(map(_room, tensors)), device=device)
    for view, tensor in zip(_views(tensors, vector), tensors, strict=True):
        view.copy_(tensor)
    return vector


def _views(tensors: list[Tensor], vector: Tensor) -> list[Tensor]:
    """Parts of a vector, one after the other, as tensors of these sizes and strides."""
    views, place = list[Tensor](), 0
    for tensor in tensors:
        views.append(vector[place:].as_strided(tensor.size(), tensor.stride()))
        place += _room(tensor)
    return views


def _room(tensor: Tensor) -> int:
    """Elements of a vector that a tensor takes."""
    return -(-tensor.numel() // ALIGN) * ALIGN
