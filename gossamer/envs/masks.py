"""Action masks: which choices are valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from gossamer.data import Array
from gossamer.envs.leaves import BYTES, InvalidObservation
from gossamer.spaces import Discrete, MultiBinary, MultiDiscrete, Space
from gossamer.spaces.observations import MASK, Part


@dataclass(frozen=True)
class Mask:
    """A `leaves.LeafKind`: one array [M], or one for each choice, in a tuple or, if all have the same size, as rows.
    Entries from 0 to 1; those above 0 are valid."""

    sizes: tuple[int, ...]  # the i-th choice is one among sizes[i]; a switch has 2 choices, off and on

    dtype: ClassVar[np.dtype[Any]] = BYTES

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(self.sizes),)

    @property
    def every(self) -> Array:
        """The mask [M] that allows every action."""
        return np.ones(self.shape, self.dtype)

    @property
    def part(self) -> Part:
        """The part of a packed observation."""
        return Part(MASK, self.shape, self.dtype)

    def convert(self, value: Any, batch: tuple[int, ...] = ()) -> Array:
        """Return 1 for valid entries, else 0 [*batch, M]. Raises `InvalidObservation`."""
        try:
            join = partial(np.concatenate, axis=-1) if batch else np.hstack
            array = join(value) if isinstance(value, tuple | list) else np.asarray(value)
        except ValueError as error:
            raise InvalidObservation(f"that is not an array ({error})") from error
        if array.shape[-1:] == self.sizes[:1] and len(set(self.sizes)) == 1 and array.shape[: len(batch)] == batch:
            array = array.reshape(*batch, -1)  # a row for each choice
        if array.shape != (*batch, *self.shape):
            raise InvalidObservation(f"of shape {array.shape}; the actions need {self.shape}")
        if array.dtype.kind not in "biuf":
            raise InvalidObservation(f"of {array.dtype}; it must have numbers, 1: valid, 0: not")
        if not ((array >= 0) & (array <= 1)).all():
            raise InvalidObservation("with numbers below 0 or above 1, or NaN; of an additive mask give mask == 0")
        valid: Array = (array != 0).astype(BYTES)
        return valid

    def check(self, valid: Array, source: str) -> None:
        """Raise `InvalidObservation` if a choice has no valid action in [..., M]."""
        if not np.maximum.reduceat(valid, np.cumsum([0, *self.sizes[:-1]]), axis=-1).all():
            each = "" if len(self.sizes) == 1 else " per choice"
            raise InvalidObservation(f"{source} without a valid action{each}")

    def or_every(self, valid: Array) -> Array:
        """The masks [..., M], and of those that leave a choice without a valid action the one that allows every one."""
        there = np.maximum.reduceat(valid, np.cumsum([0, *self.sizes[:-1]]), axis=-1).all(-1, keepdims=True)
        masks: Array = np.where(there, valid, self.every)
        return masks

    def last(self, info: Any) -> Array:
        """`info["action_mask"]` of the last observation of an episode. No action follows it, so it need not have one;
        where it has, the values of only these actions count."""
        try:
            return self.or_every(self.read(info))
        except InvalidObservation:
            return self.every

    def read(self, info: Any) -> Array:
        """Convert `info["action_mask"]`. Raises `InvalidObservation`."""
        if not has_mask(info):
            raise InvalidObservation(f'no info["{MASK}"]; with --action-masks it must give one every time')
        try:
            return self.convert(info[MASK])
        except InvalidObservation as error:
            raise InvalidObservation(f'an info["{MASK}"] {error}') from error.__cause__


def mask_for(actions: Space) -> Mask | None:
    """Return the mask of these actions, None if they cannot be masked."""
    match actions:
        case Discrete(n):
            return Mask((n,))
        case MultiDiscrete(sizes):
            return Mask(sizes)
        case MultiBinary(n):
            return Mask((2,) * n)
    return None


def has_mask(info: Any) -> bool:
    """Whether this is an info with a mask."""
    return isinstance(info, Mapping) and MASK in info
