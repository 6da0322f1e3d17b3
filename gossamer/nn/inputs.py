"""From observations to the inputs of a torso: converted, centred on their background, scaled or normalised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from gossamer.data import Array
from gossamer.nn.normalization import Normalized
from gossamer.spaces.observations import Layout, Part
from gossamer.system.graphs import recording

INPUT_SCALES = {"background": 1 / 64, "unit": 1 / 255, "raw": 1.0}
Observations: TypeAlias = Tensor | Mapping[str, Tensor]  # packed, or split into parts
Inputs: TypeAlias = Tensor | Mapping[str, Tensor]  # of a torso: [N, ...], or those of each part of an observation


@dataclass(frozen=True)
class Prepared:
    """What a network computes from observations [N, *O] without its parameters."""

    inputs: Inputs  # of the torso
    mask: Tensor | None  # [N, ...] of valid actions; None: all are
    game: Tensor | None = None  # [N] number of the game among several; None: there is one

    def rows(self, index: Tensor) -> Prepared:
        """The rows with these indices [M]."""
        all_, mask = self.inputs, self.mask
        if isinstance(all_, Tensor):
            inputs: Inputs = _rows(all_, index)
        else:
            inputs = {name: _rows(each, index) for name, each in all_.items()}
        return Prepared(inputs, *(None if each is None else each.index_select(0, index) for each in (mask, self.game)))


def _rows(inputs: Tensor, index: Tensor) -> Tensor:
    """Rows of [N, ...]. Pictures stay channels-last. `index_select` is faster than `inputs[index]`: it copies rows."""
    if inputs.dim() != 4:
        return inputs.index_select(0, index)
    return inputs.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)


class Centred(nn.Module):
    """Maps observations to network inputs: (x - offset) * scale. Each of several games has an offset of its own.

    Images are centred on their background, the mean image of random play. Pong then needs a third of the steps that it
    needs with x / 255. Vectors are not changed (offset 0, scale 1), unless the option says so of one that is alone."""

    offset: Tensor
    scale: Tensor

    def __init__(self, obs_shape: tuple[int, ...], scale: float, *, unchanged: bool = False, games: int = 1) -> None:
        """`unchanged`: only convert to the network's type, whatever `offset` and `scale` are (for small vectors, where
        each operation counts)."""
        super().__init__()
        self._unchanged = unchanged
        self.several = games > 1 and not unchanged
        self.register_buffer("offset", torch.zeros((games, *obs_shape) if self.several else obs_shape))  # [*O], [G, *O]
        self.register_buffer("scale", torch.tensor(scale))  # []
        self._cast: tuple[Any, Tensor, Tensor] = (None, self.offset, self.scale)

    def forward(self, obs: Tensor, dtype: torch.dtype, game: Tensor | None = None) -> Tensor:
        """Map [N, *O] of any dtype to [N, *O] of `dtype`; images in channels-last format. `game` [N]: the number of
        each one's, if there are `several`."""
        if self._unchanged:
            return obs.to(dtype)
        shift, scale = self._shifted(dtype)
        if self.several:
            assert game is not None, "several games are in every observation"
            shift = _rows(shift, game)
        return torch.addcmul(shift, _channels_last(obs).to(dtype), scale)

    def _shifted(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """-offset * scale [1, *O] or [G, *O], and `scale` [], in `dtype`: computed again only if one has changed. A
        recording computes them each time: it would go on with what was kept, of which the memory may be freed."""
        if recording():
            return self._computed(dtype)
        now = (dtype, self.offset.device, self.offset._version, self.scale._version)
        if now != self._cast[0]:
            self._cast = (now, *self._computed(dtype))
        return self._cast[1:]

    def _computed(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        shift = -self.offset * self.scale
        shift = _channels_last(shift if self.several else shift.unsqueeze(0))
        return shift.to(dtype), self.scale.to(dtype)


def _channels_last(obs: Tensor) -> Tensor:
    """Convert images [N, C, H, W] to channels-last format, and leave anything else as it is. Adding tensors of
    different formats would be ten times as slow, and would lose the format."""
    return obs.contiguous(memory_format=torch.channels_last) if obs.dim() == 4 else obs


class CentredParts(nn.Module):
    """Splits packed observations and maps some of their parts to inputs of the torso."""

    def __init__(self, layout: Layout, parts: tuple[Part, ...], make: Callable[[Part], nn.Module]) -> None:
        """`parts`: see `Layout.inputs`; `make`: see `input_of`."""
        super().__init__()
        self.layout, self.parts = layout, parts
        self.inputs = nn.ModuleList(map(make, self.parts))

    def forward(self, obs: Observations, dtype: torch.dtype) -> dict[str, Tensor]:
        """Map [N, bytes], or the parts [N, *part shape], to {name: [N, *part shape]} of `dtype`."""
        found, game = dict[str, Tensor](), None
        for part, module in zip(self.parts, self.inputs, strict=True):
            seen = self.layout.part(obs, part.name)
            if isinstance(module, Centred) and module.several:
                game = self.layout.games(obs) if game is None else game
                found[part.name] = module(seen, dtype, game)
            else:
                found[part.name] = module(seen, dtype)
        return found

    def named(self) -> list[tuple[str, nn.Module]]:
        """The inputs, by the name of their part."""
        return [(part.name, module) for part, module in zip(self.parts, self.inputs, strict=True)]


def input_of(part: Part, *, scale: float, centre: bool, normalize: bool, alone: bool, games: int = 1) -> nn.Module:
    """The module that maps a part of the observation to an input of the torso.

    `scale`: factor of images, and of a vector that is the whole observation (`alone`); `centre`: the background of that
    will be subtracted (`centre_on`), of each of several `games` its own; `normalize`: vectors, by their running mean
    and deviation."""
    if part.dtype.kind == "f" and normalize:
        return Normalized(part.shape)
    if part.picture:
        return Centred(part.shape, scale, games=games if centre else 1)
    factor = scale if alone else 1.0
    return Centred(part.shape, factor, unchanged=factor == 1.0 and not (alone and centre))


def centre_on(model: nn.Module, means: Mapping[str, Array]) -> None:
    """Set the mean observations [*O] that the model subtracts, by the name of the part."""
    inputs: list[tuple[str, nn.Module]] = []
    for module in model.modules():
        inputs += module.named() if isinstance(module, CentredParts) else [("", module)]
    for name, module in inputs:
        if isinstance(module, Centred) and name in means:
            module.offset.copy_(torch.as_tensor(means[name]))
