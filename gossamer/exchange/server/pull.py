"""Parameters that are kept at those of a parameter server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import torch
from torch import Tensor, nn

from gossamer.data import Array, Stamp, Version
from gossamer.exchange.broadcast.broadcast import copy_buffers
from gossamer.exchange.flat import ALIGN, Flat, buffers
from gossamer.exchange.server.shard import GONE, ParameterShard
from gossamer.runtime import Context, Stopped, Unreachable

RETRY = 0.2  # seconds between two looks of an actor for the first parameters, and between two attempts to leave


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


class Pulling:
    """Parameters of a network, of which each slice is that of a shard. Their version is that of the first shard."""

    def __init__(
        self, ctx: Context, shards: Sequence[ParameterShard], flat: Flat, model: nn.Module, *, learns: bool
    ) -> None:
        """`learns`: whether the worker is a learner, which offers its parameters to shards that have none."""
        self._ctx, self.shards, self.model = ctx, shards, model
        self.slices = slices(len(flat.vector), len(shards))
        self.stamps: list[Stamp | None] = [None] * len(shards)  # of the parameters here; None: not from the shard
        self._flat, self._learner = flat, ctx.rank if learns else None

    @property
    def version(self) -> Version:
        """Updates of the first shard that the parameters here include."""
        first = self.stamps[0]
        return 0 if first is None else first.version

    def refresh(self) -> Version:
        """Pull what has changed. A shard that does not answer keeps its parameters here."""
        changed = [self._pull(i) for i in range(len(self.shards))]
        if any(changed):
            self._flat.swap(self._flat.vector)  # the parameters have changed in place
        return self.version

    def wait(self) -> None:
        """Wait until every shard has had parameters. Raises `Stopped` if the program ends before that."""
        while True:
            self.refresh()
            if None not in self.stamps:
                return
            if self._ctx.stopped:
                raise Stopped("the program ended before the server had parameters")
            self._ctx.sleep(RETRY)

    def leave(self) -> None:
        """The worker ends. A shard that does not answer is told when it does, within `GONE` seconds."""
        if self._learner is not None:
            end = self._ctx.now() + GONE
            for shard in self.shards:
                while not self._left(shard, self._learner) and not self._ctx.stopped and self._ctx.now() < end:
                    self._ctx.sleep(RETRY)

    def _left(self, shard: ParameterShard, learner: int) -> bool:
        """Tell a shard that the learner ends. Returns whether it has answered."""
        with suppress(Unreachable):
            shard.leave(learner)
            return True
        return False

    def _pull(self, shard: int) -> bool:
        """Pull from one shard. Returns whether parameters have changed."""
        part = self._flat.vector[self.slices[shard]]
        with suppress(Unreachable):
            pulled = self.shards[shard].pull(self._learner, self.stamps[shard])
            if pulled is not None and pulled.parameters is None and self._learner is not None:
                self.shards[shard].offer(_array(part), self.version, self._buffers())
                pulled = self.shards[shard].pull(self._learner, None)
            if pulled is not None and pulled.parameters is not None:
                part.copy_(torch.from_numpy(pulled.parameters))
                if self._learner is None and self.stamps[shard] is None:
                    copy_buffers({name: torch.tensor(each) for name, each in pulled.buffers.items()}, self.model)
                self.stamps[shard] = pulled.stamp
                return True
        return False

    def _buffers(self) -> dict[str, Array]:
        """A copy of what the network has besides parameters, such as the background."""
        return {name: _array(each) for name, each in buffers(self.model).items()}


def _array(tensor: Tensor) -> Array:
    """A copy of a tensor."""
    array: Array = tensor.detach().cpu().numpy().copy()
    return array
