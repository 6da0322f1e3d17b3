"""Observations of several arrays (Gymnasium's Dict and Tuple spaces, action masks), packed into one array of bytes.

Everything between the environment and the network (shared memory, rollouts, messages) then handles one array for each
observation. The network splits it into its parts again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Array, numpy_dtype

WHOLE = "observation"  # name of a part that was the complete observation
MASK = "action_mask"  # name of the part that says which actions are valid; it is not an input of the network
GAME = "game"  # name of the part [G] that says which of several games it is of, a one-hot vector
ASIDE = (MASK, GAME)  # parts that are about an observation, and not in it


@dataclass(frozen=True)
class Part:
    """One array of an observation."""

    name: str
    shape: tuple[int, ...]  # [C, H, W] of a picture, else [N]
    dtype: np.dtype[Any]  # uint8 or float32

    @property
    def picture(self) -> bool:
        return len(self.shape) == 3

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Layout:
    """The parts of a packed observation, in order."""

    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Bytes of one packed observation."""
        return sum(part.size for part in self.parts)

    @cached_property
    def places(self) -> dict[str, tuple[Part, slice]]:
        """Each part and its bytes, by name."""
        found, start = {}, 0
        for part in self.parts:
            found[part.name] = part, slice(start, start + part.size)
            start += part.size
        return found

    def pack(self, arrays: Mapping[str, Array]) -> Array:
        """Pack arrays [..., *part shape] into bytes [..., size]. Pictures are stored channels last, the memory format
        that convolutions use."""
        first = self.parts[0]
        batch = arrays[first.name].shape[: arrays[first.name].ndim - len(first.shape)]
        packed = np.empty((*batch, self.size), np.uint8)
        for name, (part, place) in self.places.items():
            array = np.moveaxis(arrays[name], -3, -1) if part.picture else arrays[name]
            packed[..., place] = np.ascontiguousarray(array, part.dtype).reshape(*batch, -1).view(np.uint8)
        return packed

    def inputs(self, *, game: bool = False) -> tuple[Part, ...]:
        """The parts that a network gets. `game`: also the one that says which game it is."""
        return tuple(part for part in self.parts if part.name not in ASIDE or (game and part.name == GAME))

    def games(self, packed: Tensor | Mapping[str, Tensor]) -> Tensor:
        """The number [...] of each observation's game, among several."""
        return self.part(packed, GAME).argmax(-1)

    def array(self, packed: Array, name: str) -> Array:
        """Return the part [..., *shape] of packed observations [..., size] in NumPy."""
        found: Array = self.part(torch.from_numpy(packed), name).numpy()
        return found

    def part(self, packed: Tensor | Mapping[str, Tensor], name: str) -> Tensor:
        """Return the part [..., *shape] of packed observations [..., size]; also of those that are split already."""
        if isinstance(packed, Mapping):
            return packed[name]
        part, place = self.places[name]
        values = packed[..., place].clone(memory_format=torch.contiguous_format)  # a view may not be aligned
        values = values.view(numpy_dtype(part.dtype))
        if not part.picture:
            return values.view(*packed.shape[:-1], *part.shape)
        channels, height, width = part.shape
        return values.view(*packed.shape[:-1], height, width, channels).movedim(-1, -3)

    def split(self, packed: Tensor) -> dict[str, Tensor]:
        """Return every part of packed observations [..., size]."""
        return {part.name: self.part(packed, part.name) for part in self.parts}


def one_hots(choices: Array, sizes: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return one-hot vectors side by side [..., sum of sizes] of choices [..., K], the i-th one among sizes[i]."""
    encoded = np.zeros((*choices.shape[:-1], sum(sizes)), dtype)
    np.put_along_axis(encoded, choices + np.cumsum([0, *sizes[:-1]]), 1, axis=-1)
    return encoded
