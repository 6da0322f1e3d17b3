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


class Kind(Protocol):
    """Conversion of one array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the converted array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the converted array."""

    def convert(self, value: Any) -> Array:
        """Convert the value of an observation; a view if possible. Raises `InvalidObservation`."""


@dataclass(frozen=True)
class Numbers:
    """A vector of finite numbers."""

    shape: tuple[int, ...]  # [n]

    dtype: ClassVar[np.dtype[Any]] = FLOATS

    def convert(self, value: Any) -> Array:
        given = array = _array(value, self.shape)
        if array.dtype != FLOATS:
            if array.dtype.kind not in "biuf":
                raise InvalidObservation(f"of {array.dtype}; its observation_space has numbers")
            with np.errstate(over="ignore"):  # float32 overflow gives infinity, which is refused
                array = array.astype(FLOATS)
        if not _finite(array):
            bad = int(np.flatnonzero(~np.isfinite(array))[0])
            why = "too large for float32" if np.isfinite(given[bad]) else "not finite"
            raise InvalidObservation(f"that is {why}: component {bad} is {given[bad]}")
        return array


@dataclass(frozen=True)
class Picture:
    """uint8 pixels. `axes` orders the environment's axes as [C, H, W]; a picture [H, W] has no channel axis."""

    given: tuple[int, ...]  # shape as the environment gives it
    axes: tuple[int, ...]

    dtype: ClassVar[np.dtype[Any]] = BYTES

    @property
    def shape(self) -> tuple[int, ...]:
        shape = tuple(self.given[axis] for axis in self.axes)
        return shape if len(shape) == 3 else (1, *shape)

    def convert(self, value: Any) -> Array:
        array = _array(value, self.given)
        if array.dtype != BYTES:
            array = _whole(array, "uint8 pixels")
            if array.size and not 0 <= array.min() <= array.max() <= 255:
                raise InvalidObservation(f"with pixels from {array.min()} to {array.max()}; they must lie in 0..255")
            array = array.astype(BYTES)
        array = array.transpose(self.axes)
        return array if array.ndim == 3 else array[None]


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

    def convert(self, value: Any) -> Array:
        choices = _whole(_array(value, self.given), "integers").ravel().astype(np.int64) - np.array(self.starts)
        for choice, size, start in zip(choices.tolist(), self.sizes, self.starts, strict=True):
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

    def convert(self, value: Any) -> Array:
        array = _whole(_array(value, self.given), "switches").ravel()
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


def _finite(vector: Array) -> bool:
    if vector.size <= 100:  # ten times as fast as NumPy for small vectors; the float64 sum cannot overflow
        return math.isfinite(sum(vector.tolist()))
    return bool(np.isfinite(vector).all())
