"""Tells one observation from a batch of them by its shape, and takes a batch apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Dict, Space, Tuple

from gossamer.envs.trees import is_text
from gossamer.system.errors import UserError


def count(space: Space[Any], value: Any) -> int | None:
    """The number of observations in a batch; None for a single one. In a batch of a Dict or Tuple space, each array
    has one more dimension, the first. Raises `UserError` if the shapes are neither."""
    found = set(_counts(space, value, ""))
    if len(found) > 1:
        raise UserError("obs: its arrays are of several batch sizes; give one observation, or a batch in every array")
    number = next(iter(found), None)
    if number == 0:
        raise UserError("obs: an empty batch; give at least one observation")
    return number


def row(space: Space[Any] | None, value: Any, i: int) -> Any:
    """Observation `i` of a batch."""
    if isinstance(space, Dict):
        return {key: row(space.spaces.get(key), inner, i) for key, inner in value.items()}
    if isinstance(space, Tuple):
        return tuple(row(inner, each, i) for inner, each in zip(space.spaces, value, strict=True))
    if space is not None and is_text(space):  # it is not read
        return value
    return np.asarray(value)[i]


def _counts(space: Space[Any], value: Any, name: str) -> Iterator[int | None]:
    """What `count` returns, for each array."""
    if isinstance(space, Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            raise UserError(f"obs{name}: must be a dict with the keys {', '.join(map(str, space.spaces))}")
        for key, inner in space.spaces.items():
            yield from _counts(inner, value[key], f"{name}[{key!r}]")
    elif isinstance(space, Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            raise UserError(f"obs{name}: must be a tuple of {len(space.spaces)}")
        for i, (inner, each) in enumerate(zip(space.spaces, value, strict=True)):
            yield from _counts(inner, each, f"{name}[{i}]")
    elif not is_text(space):
        yield _leading(space, value, name)


def _leading(space: Space[Any], value: Any, name: str) -> int | None:
    try:
        shape: tuple[int, ...] = np.shape(value)
    except ValueError as error:  # nested lists of different lengths
        raise UserError(f"obs{name}: not an array ({error})") from error
    if shape == space.shape:
        return None
    if shape[1:] == space.shape and shape:
        return shape[0]
    wanted = ", ".join(map(str, space.shape or ()))
    batch = f"[B, {wanted}]" if wanted else "[B]"
    raise UserError(f"obs{name}: of shape {list(shape)}; one observation has [{wanted}], a batch {batch}")
