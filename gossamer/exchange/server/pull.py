"""Parameters that are kept at those of a parameter server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from gossamer.data import Array, Version
from gossamer.exchange.broadcast.broadcast import copy_buffers
from gossamer.exchange.flat import ALIGN, Flat, buffers
from gossamer.exchange.server.shard import ParameterShard, Pulled, ShardVersion
from gossamer.runtime import GONE, Calling, Context, Stopped, Unreachable

RETRY = 0.2  # seconds between two looks of an actor for the first parameters


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

    stays = True  # see `policy.Source`

    def __init__(
        self, ctx: Context, shards: Sequence[ParameterShard], flat: Flat, model: nn.Module, *, learns: bool
    ) -> None:
        """`learns`: whether it offers its parameters to shards that have none, as actors do not."""
        self.shards, self.model = shards, model
        self.slices = slices(len(flat.vector), len(shards))
        self.stamps: list[ShardVersion | None] = [None] * len(shards)  # of what is here; None: not the shard's
        self._ctx, self._flat, self._learner = ctx, flat, ctx.rank if learns else None
        self.call = Calling(ctx, len(shards))

    @property
    def version(self) -> Version:
        """Updates of the first shard that the parameters here include."""
        first = self.stamps[0]
        return 0 if first is None else first.version

    def refresh(self) -> Version:
        """Pull what has changed. A shard that does not answer keeps its parameters here."""
        pulls = {i: partial(shard.pull, self._learner, self.stamps[i]) for i, shard in enumerate(self.shards)}
        pulled = self.call(pulls)
        changed = [self._take(i, each) for i, each in pulled.items()]
        empty = [i for i, each in pulled.items() if each is not None and each.parameters is None]
        if empty and self._learner is not None:
            self.call({i: partial(self.shards[i].offer, *self._offered(i)) for i in empty})
            pulled = self.call({i: partial(self.shards[i].pull, self._learner, None) for i in empty})
            changed += [self._take(i, each) for i, each in pulled.items()]
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

    def _take(self, shard: int, pulled: Pulled | None) -> bool:
        """Use what was pulled from a shard. Returns whether parameters have changed."""
        if pulled is None or pulled.parameters is None:
            return False
        self._flat.vector[self.slices[shard]].copy_(torch.from_numpy(pulled.parameters))
        if self._learner is None and self.stamps[shard] is None:
            copy_buffers({name: torch.tensor(each) for name, each in pulled.buffers.items()}, self.model)
        self.stamps[shard] = pulled.stamp
        return True

    def _offered(self, shard: int) -> tuple[Array, Version, dict[str, Array]]:
        """What a shard that has nothing begins with."""
        return _array(self._flat.vector[self.slices[shard]]), self.version, self._buffers()

    def _buffers(self) -> dict[str, Array]:
        """A copy of what the network has besides parameters, such as the background."""
        return {name: _array(each) for name, each in buffers(self.model).items()}


def _array(tensor: Tensor) -> Array:
    """A copy of a tensor."""
    array: Array = tensor.detach().cpu().numpy().copy()
    return array
