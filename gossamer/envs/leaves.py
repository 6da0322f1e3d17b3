"""Conversion of single arrays of observations: pictures channel-first, numbers float32, choices and switches uint8."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from gossamer.data import Array
from gossamer.spaces.observations import one_hots

BYTES, FLOATS = np.dtype(np.uint8), np.dtype(np.float32)


class InvalidObservation(ValueError):
    """An observation does not fit its space. The message continues "step() gave "."""


class LeafKind(Protocol):
    """Conversion of one array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the converted array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the converted array."""

    def convert(self, value: Any, batch: tuple[int, ...] = ()) -> Array:
        """Convert values [*batch, ...] of observations to [*batch, *shape]; a view if possible. Raises
        `InvalidObservation`."""


@dataclass(frozen=True)
class Numbers:
    """Finite numbers, as a vector."""

    given: tuple[int, ...]  # shape as the environment gives it

    dtype: ClassVar[np.dtype[Any]] = FLOATS

    @property
    def shape(self) -> tuple[int, ...]:
        return (math.prod(self.given),)

    def convert(self, value: Any, batch: tuple[int, ...] = ()) -> Array:
        given = array = _array(value, (*batch, *self.given))
        if array.dtype != FLOATS:
            if array.dtype.kind not in "biuf":
                raise InvalidObservation(f"of {array.dtype}; its observation_space has numbers")
            with np.errstate(over="ignore", under="ignore"):  # float32 overflow gives infinity, which is refused
                array = array.astype(FLOATS)
        if not _finite(array):
            bad = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
            why = "too large for float32" if np.isfinite(given[bad]) else "not finite"
            place = ", ".join(map(str, bad))
            raise InvalidObservation(f"that is {why}: component {place or 0} is {given[bad]}")
        return array if len(self.given) == 1 else array.reshape(*batch, -1)


@dataclass(frozen=True)
class Picture:
    """Pixels as bytes. `axes` orders the environment's axes: height and width are the last two, and the channels are
    those before them (none: one channel; of a stack of pictures [K, H, W, C]: K * C)."""

    given: tuple[int, ...]  # shape as the environment gives it
    axes: tuple[int, ...]
    most: int | None = None  # numbers of any type from 0 to this are mapped to 0..255 and rounded; None: uint8

    dtype: ClassVar[np.dtype[Any]] = BYTES

    @property
    def shape(self) -> tuple[int, ...]:
        *channels, height, width = (self.given[axis] for axis in self.axes)
        return math.prod(channels), height, width

    def convert(self, value: Any, batch: tuple[int, ...] = ()) -> Array:
        array = _array(value, (*batch, *self.given))
        if self.most is not None:
            array = _rounded(array, self.most)
        elif array.dtype != BYTES:
            array = _whole(array, "uint8 pixels")
            if array.size and not 0 <= array.min() <= array.max() <= 255:
                raise InvalidObservation(f"with pixels from {array.min()} to {array.max()}; they must lie in 0..255")
            array = array.astype(BYTES)
        first = len(batch)
        array = array.transpose(*range(first), *(first + axis for axis in self.axes))
        return array.reshape(*batch, *self.shape)


@dataclass(frozen=True)
class Choices:
    """Choices, the i-th one among sizes[i] from starts[i] on, as one-hot vectors side by side."""

    given: tuple[int, ...]  # shape as the environment gives it
    sizes: tuple[int, ...]
    starts: tuple[int, ...]

    dtype: ClassVar[np.dtype[Any]] = BYTES

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(self.sizes),)

    def convert(self, value: Any, batch: tuple[int, ...] = ()) -> Array:
        whole = _whole(_array(value, (*batch, *self.given)), "integers")
        choices = whole.reshape(*batch, len(self.sizes)).astype(np.int64) - np.array(self.starts)
        for row in choices.reshape(-1, len(self.sizes)).tolist():
            for choice, size, start in zip(row, self.sizes, self.starts, strict=True):
                if not 0 <= choice < size:
                    raise InvalidObservation(f"with value {choice + start}; it must lie in {start}..{start + size - 1}")
        return one_hots(choices, self.sizes, BYTES)


@dataclass(frozen=True)
class Switches:
    """Switches, 0 or 1."""

    given: tuple[int, ...]  # shape as the environment gives it

    dtype: ClassVar[np.dtype[Any]] = BYTES

    @property
    def shape(self) -> tuple[int, ...]:
        return (math.prod(self.given),)

    def convert(self, value: Any, batch: tuple[int, ...] = ()) -> Array:
        array = _whole(_array(value, (*batch, *self.given)), "switches").reshape(*batch, -1)
        if array.size and not 0 <= array.min() <= array.max() <= 1:
            raise InvalidObservation(f"with switches from {array.min()} to {array.max()}; they must be 0 or 1")
        return array.astype(BYTES)


def _array(value: Any, shape: tuple[int, ...]) -> Array:
    """Return the value as an array of this shape."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # nested lists of different lengths
        raise InvalidObservation(f"that is not an array ({error})") from error
    if array.shape != shape:
        raise InvalidObservation(f"of shape {array.shape}; its observation_space has {shape}")
    return array


def _whole(array: Array, wanted: str) -> Array:
    """Refuse numbers that are not integers: rounding could change them."""
    if array.dtype.kind not in "biu":
        raise InvalidObservation(f"of {array.dtype}; its observation_space has {wanted}")
    return array


def _rounded(array: Array, most: int) -> Array:
    """Map numbers from 0 to `most` to bytes. Errors of rounding beyond the limits are accepted, others are not."""
    if array.dtype.kind not in "biuf":
        raise InvalidObservation(f"of {array.dtype}; its observation_space has numbers")
    scaled = np.rint(array * (255 / most))
    if array.size and not (scaled.min() >= 0 and scaled.max() <= 255):  # false for NaN
        raise InvalidObservation(f"with pixels from {array.min()} to {array.max()}; they must lie in 0..{most}")
    return scaled.astype(BYTES)


def _finite(array: Array) -> bool:
    if array.ndim == 1 and array.size <= 100:  # ten times as fast as NumPy; the float64 sum cannot overflow
        return math.isfinite(sum(array.tolist()))
    return bool(np.isfinite(array).all())
