"""Tile coding (Sutton and Barto 2018, section 9.5.4): a linear function of the tiles that an observation lies in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

MOST = 2**24  # tiles; float32, in which features pass from torso to head, has all integers up to this one


@dataclass(frozen=True)
class TileCoding:
    """`tilings` grids over the space of observations, each with `tiles` tiles along each of its d dimensions."""

    tilings: int = 8
    tiles: int = 8

    def within(self, low: tuple[float, ...], high: tuple[float, ...]) -> Tiles:
        """The torso for observations within these bounds [d]. Raises `ValueError` if there are too many tiles."""
        count = self.tilings * (self.tiles + 1) ** len(low)
        if count > MOST:
            raise ValueError(f"{len(low)} numbers have {count:.3g} tiles, at most {MOST:,}: use fewer --tiles, or mlp")
        return Tiles(self, torch.tensor(low), torch.tensor(high))


class Tiles(nn.Module):
    """Maps observations to the index of their tile in each grid.

    Grid i is shifted against the first one by i * (1, 3, 5, ..) mod m of m-ths of a tile, m the number of grids, which
    spreads them evenly. It has one more tile along each dimension, as the shifted ones reach beyond the bounds.
    Observations beyond the bounds lie in the outermost tiles."""

    low: Tensor  # [d]
    width: Tensor  # [d]  of the space
    shift: Tensor  # [m, d]  in tiles
    stride: Tensor  # [d]
    first: Tensor  # [m]  index of each grid's first tile

    def __init__(self, coding: TileCoding, low: Tensor, high: Tensor) -> None:
        super().__init__()
        self.tilings, self.side = coding.tilings, coding.tiles
        grid, odd = torch.arange(self.tilings), 2 * torch.arange(len(low)) + 1
        self.count = self.tilings * (self.side + 1) ** len(low)
        self.register_buffer("low", low)
        self.register_buffer("width", torch.where(high > low, high - low, 1.0))
        self.register_buffer("shift", grid.unsqueeze(1) * odd % self.tilings / self.tilings)
        self.register_buffer("stride", (self.side + 1) ** torch.arange(len(low)))
        self.register_buffer("first", grid * (self.count // self.tilings))

    def forward(self, obs: Tensor) -> Tensor:
        """[N, d] -> [N, m], as float32: a torso's outputs are of this type."""
        scaled = ((obs - self.low) / self.width).clamp(0, 1) * self.side
        tile = (scaled.unsqueeze(1) + self.shift).floor().long()  # [N, m, d], 0 .. side
        return (self.first + (tile * self.stride).sum(-1)).float()

    def head(self, outputs: int) -> nn.Module:
        """A linear function of the tiles, without a bias."""
        return TileHead(self.count, self.tilings, outputs)


class TileHead(nn.Module):
    """y = sum over the m tiles of an observation of their weights / sqrt(m). Weights are 0 at first.

    Each of the m features is 1 / sqrt(m), so that a step of gradient descent with rate alpha corrects the share alpha
    of an error, however many grids there are: alpha is Sutton and Barto's step size times m. Only the weights of these
    tiles are read."""

    def __init__(self, tiles: int, tilings: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(tiles, outputs))
        self._scale: float = tilings**-0.5

    def forward(self, places: Tensor) -> Tensor:
        """Indices [N, m] -> [N, outputs]."""
        return self._scale * embedding_bag(places.long(), self.weight, mode="sum")
