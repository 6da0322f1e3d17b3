"""Sparse messages: each has a share of the parameters. The others stay as they are at its receivers.

`random` (as in SPARTA): at each exchange all members draw the same parameters, from a common seed. The message needs no
indices, and the exchange is gossip of these parameters alone: whatever gossip conserves, it conserves.

`rotation` (as the fragments of Streaming DiLoCo, Douillard et al. 2025, arXiv 2501.18512): the parameters are divided
into parts, and each exchange has one of them, every part once in each round. A round has an order of its own, drawn
by the common seed: else a part could meet the same edges of a changing graph each time. Otherwise as `random`, but
every parameter has its turn after at most two rounds, and nothing of the vector's size is drawn. Where members do not
wait for each other, a message takes the place of an unread one with other parameters, which are then sent again in
the next round: to average each part, however old, needed more steps on Pong (docs/architectures/gala.md).

`changed` (Grounds and Kudenko 2008): each member sends the parameters that have changed most since they were last
exchanged, with their indices. The choices of the members differ, so a plain average at the receivers would change the
mean over members. Each member therefore keeps `known` z [P]: the average of each parameter when it was last exchanged,
with which all members began alike. A member that has not sent a parameter counts with z, as if it had not changed it.
Its unsent change e = x - z stays with it, until it is large enough to be sent. For each parameter that any of n members
has sent, with u_j = x_j of those that have sent it and u_j = z of the others:

    z' = 1/n sum_j u_j,    x_i' = z' + (x_i - u_i)

The sum over i of x_i' is that of x_i: the mean is conserved. This needs that all members hear of all messages: a
complete graph in lock-step. With share 1, u_j = x_j everywhere, and the exchange is the average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from gossamer.exchange.gossip.averaging import Received, average
from gossamer.exchange.gossip.formats import rounded
from gossamer.exchange.gossip.messages import Message

Select: TypeAlias = Literal["random", "rotation", "changed"]


@dataclass(frozen=True)
class Sparse:
    """Which parameters a message has. Raises `ValueError` unless 0 < share <= 1."""

    share: float
    select: Select = "random"
    seed: int = 0  # of `random` and `rotation`, common to all members

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share {self.share}: must be above 0 and at most 1")

    def of(self, vector: Tensor, separable: int, known: Tensor | None, view: int) -> Selection:
        """The selection of a member with parameters [P], which are all known to the others unless `known` [P] says
        otherwise. Those from element `separable` on, running statistics and layers in their units, belong together:
        every message has them. `view`: version of the membership."""
        if self.select != "changed":
            return Selection(self, separable, len(vector), None, view)
        known = vector if known is None else known  # on the CPU if it is a checkpoint's
        known = known.to(vector.device, copy=True)
        return Selection(self, separable, len(vector), known, view)


class Selection:
    """One member's choice of parameters, and their average."""

    def __init__(self, sparse: Sparse, separable: int, size: int, known: Tensor | None, view: int) -> None:
        """`known` [P]: see `changed` above; else None. `separable`, `view`: see `Sparse.of`."""
        self.known = known
        self._sparse, self._separable, self._size, self._view = sparse, separable, size, view
        self._count = max(1, round(sparse.share * separable))
        self.sent = torch.zeros(0, dtype=torch.int64)  # [K] indices of the parameters in the last message

    def chosen(self, mine: Tensor, exchange: int, view: int) -> tuple[Tensor, Tensor | None]:
        """The parameters [K] of the message of this exchange, and their indices if its receivers do not know them. It
        has all parameters [P] if the membership has changed: a member that comes back needs them."""
        changed, self._view = view != self._view, view
        self.sent = self._all(mine.device) if changed else self._places(mine, exchange)
        if len(self.sent) == self._size:
            return mine, None
        return mine[self.sent], None if self.known is None else self.sent

    def places_of(self, message: Message, exchange: int) -> Tensor:
        """Indices [K] of the parameters that a message has, ascending."""
        device = self.sent.device
        if message.places is not None:
            return message.places.to(device)
        if len(message.parameters) == self._size:
            return self._all(device)
        return self._drawn(exchange, device)

    def mixed(self, mine: Tensor, published: Tensor, received: Sequence[Received], places: Sequence[Tensor]) -> Tensor:
        """Average parameters [P] with those received [K], which have the indices `places` [K], into a new vector.
        Parameters of which no message has a value are not changed. `published` [K]: what the member's own message of
        this exchange has, `mine` but for rounding."""
        touched = torch.zeros(self._size, dtype=torch.bool, device=mine.device)
        for indices in (self.sent, *places):
            touched[indices] = True
        where = touched.nonzero().squeeze(1)
        if self.known is None:
            base = own = mine[where]
        else:
            base = self.known[where]  # u of a member that has not sent it
            own = base.index_put((torch.searchsorted(where, self.sent),), published)
        others = []
        for each, indices in zip(received, places, strict=True):
            at, values = torch.searchsorted(where, indices), each.vector
            if each.format != "fp32":  # cancel the rounding error when sender and receiver are equal
                values = values + own[at] - rounded(own[at], each.format, each.exact)
            others.append(Received(base.index_put((at,), values), each.share))
        mean, _ = average(own, others)
        if self.known is not None:
            self.known[where] = mean
        return mine.index_put((where,), mean + (mine[where] - own))

    def _places(self, mine: Tensor, exchange: int) -> Tensor:
        """Indices [K] of the parameters to send, ascending."""
        if self.known is None:
            return self._drawn(exchange, mine.device)
        change = (mine[: self._separable] - self.known[: self._separable]).abs_()
        most = change.topk(self._count, sorted=False).indices.sort().values
        return torch.cat([most, torch.arange(self._separable, self._size, device=mine.device)])

    def _drawn(self, exchange: int, device: torch.device) -> Tensor:
        draw = _drawn if self._sparse.select == "random" else _turn
        return draw(self._sparse.seed, exchange, self._count, self._separable, self._size).to(device)

    def _all(self, device: torch.device) -> Tensor:
        return torch.arange(self._size, device=device)


@lru_cache(maxsize=4)  # shared by all members of a process
def _drawn(seed: int, exchange: int, count: int, separable: int, size: int) -> Tensor:
    """`count` of the first `separable` elements, and all after them, in ascending order."""
    chosen = np.sort(np.random.default_rng([seed, exchange]).permutation(separable)[:count])
    return torch.cat([torch.from_numpy(chosen), torch.arange(separable, size)])


@lru_cache(maxsize=4)  # shared by all members of a process
def _turn(seed: int, exchange: int, count: int, separable: int, size: int) -> Tensor:
    """The part, of at most `count` of the first `separable` elements, whose turn it is, and all elements after them, in
    ascending order."""
    parts = -(-separable // count)
    round_, place = divmod(exchange - 1, parts)
    first = count * int(np.random.default_rng([seed, round_]).permutation(parts)[place])
    return torch.cat([torch.arange(first, min(first + count, separable)), torch.arange(separable, size)])
