"""Conversion of Gymnasium's observation spaces: a `Leaf`, or a tree of them (Dict and Tuple spaces)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gymnasium import spaces

from gossamer.data import Array
from gossamer.envs.leaves import BYTES, Choices, InvalidObservation, Kind, Numbers, Picture, Switches
from gossamer.envs.masks import Mask
from gossamer.spaces.observations import MASK, Part

MOST_CHOICES = 65_536  # of a Discrete or MultiDiscrete: its one-hot vectors have as many bytes
SUPPORTED = (
    "vectors (a one-dimensional Box), images (a uint8 Box [H, W, C], [C, H, W] or [H, W]), Discrete, MultiDiscrete, "
    "MultiBinary, and Dict and Tuple of these are"
)


class Unconvertible(ValueError):
    """A space is not supported."""


class Node(Protocol):
    """An observation, or a part of it."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the packed observation, in order."""

    def arrays(self, value: Any) -> Iterator[tuple[str, Array]]:
        """Yield the converted parts of an observation by name. Raises `InvalidObservation`."""


@dataclass(frozen=True)
class Leaf:
    """One array. `name`: its keys in Dict and Tuple spaces joined by "/"; empty if the observation is this array."""

    name: str
    kind: Kind

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(self.name, self.kind.shape, self.kind.dtype),)

    def arrays(self, value: Any) -> Iterator[tuple[str, Array]]:
        yield self.name, self.convert(value)

    def convert(self, value: Any) -> Array:
        """Convert a value to the part's shape and dtype. Raises `InvalidObservation`."""
        try:
            return self.kind.convert(value)
        except InvalidObservation as error:
            raise InvalidObservation(f"an observation{_quoted(self.name)} {error}") from error.__cause__


@dataclass(frozen=True)
class Group:
    """A Dict or Tuple of observations. `keys`: of a Tuple 0, 1, .."""

    name: str
    keys: tuple[Any, ...]
    nodes: tuple[Node, ...]
    mapping: bool  # a Dict

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for node in self.nodes for part in node.parts)

    def arrays(self, value: Any) -> Iterator[tuple[str, Array]]:
        self._check(value)
        for key, node in zip(self.keys, self.nodes, strict=True):
            yield from node.arrays(value[key])

    def _check(self, value: Any) -> None:
        """Check that the value has exactly these keys."""
        if not isinstance(value, Mapping if self.mapping else (tuple, list)):
            wanted = "a dict" if self.mapping else "a tuple"
            raise InvalidObservation(f"an observation{_quoted(self.name)} of {type(value).__name__}, not {wanted}")
        found = tuple(value) if self.mapping else tuple(range(len(value)))
        if set(found) != set(self.keys):
            raise InvalidObservation(
                f"an observation{_quoted(self.name)} with keys {_listed(found)}; "
                f"its observation_space has {_listed(self.keys)}"
            )


def tree(space: Any, mask: Mask | None) -> Node:
    """Return the conversion of an observation space. `mask`: of the actions, None if they cannot be masked; the key
    "action_mask" of a Dict is one. Raises `Unconvertible`."""
    node = _node(space, mask, "")
    names = [part.name for part in node.parts]
    if not set(names) - {MASK}:
        raise Unconvertible(f"observations of {space} are not supported: they have no arrays")
    if twice := {name for name in names if names.count(name) > 1}:
        raise Unconvertible(f"observations of {space} are not supported: several keys are named {min(twice)!r}")
    return node


def _node(space: Any, mask: Mask | None, name: str) -> Node:
    if name == MASK:
        return _masking(space, mask)
    if name.endswith(f"/{MASK}"):
        raise Unconvertible(f'observations "{name}" are not supported: a mask must be a key of the outermost Dict')
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return Leaf(name, _kind(space, name))
    mapping = isinstance(space, spaces.Dict)
    each = dict(space.spaces) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
    nodes = tuple(_node(inner, mask, f"{name}/{key}" if name else str(key)) for key, inner in each.items())
    return Group(name, tuple(each), nodes, mapping)


def _masking(space: Any, mask: Mask | None) -> Leaf:
    """Return the conversion of the key "action_mask"."""
    if mask is None or _entries(space) != sum(mask.sizes):
        wanted = "these actions cannot be masked" if mask is None else f"the actions need {sum(mask.sizes)} entries"
        raise Unconvertible(f'observations "{MASK}" of {space} are not supported: {wanted}; rename it if it is no mask')
    return Leaf(MASK, mask)


def _entries(space: Any) -> int:
    """The number of entries of a mask."""
    if isinstance(space, spaces.Tuple):
        return sum(map(_entries, space.spaces))
    return math.prod(space.shape) if isinstance(space, spaces.Box | spaces.MultiBinary) else 0


def _kind(space: Any, name: str) -> Kind:
    """Return the conversion of a space that is neither Dict nor Tuple."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return Numbers(space.shape)
    if isinstance(space, spaces.Box) and space.dtype == BYTES and len(space.shape) == 2:
        return Picture(space.shape, (0, 1))
    if isinstance(space, spaces.Box) and space.dtype == BYTES and len(space.shape) == 3:
        return Picture(space.shape, (0, 1, 2) if _channels_first(*space.shape) else (2, 0, 1))
    if isinstance(space, spaces.Discrete):
        return _choices(space, name, (int(space.n),), (int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        return _choices(space, name, tuple(space.nvec.ravel().tolist()), tuple(space.start.ravel().tolist()))
    if isinstance(space, spaces.MultiBinary):
        return Switches(space.shape)
    raise Unconvertible(
        f"observations{_quoted(name)} of {space} are not supported; {SUPPORTED}: {_advice(space)} in a factory of your "
        "own, --env module:factory"
    )


def _channels_first(first: int, second: int, third: int) -> bool:
    """Whether a picture is [C, H, W], and not [H, W, C]. Two equal sides are height and width; else the channels are
    fewer than those."""
    if (first == second) != (second == third):
        return second == third
    return first < third


def _advice(space: Any) -> str:
    """How to observe something else in place of this."""
    if isinstance(space, spaces.Box) and len(space.shape) == 3:
        return (
            "for pictures use gymnasium.wrappers.TransformObservation with numbers from 0 to 255 as uint8, for others "
            "gymnasium.wrappers.FlattenObservation,"
        )
    if isinstance(space, spaces.Box):
        return "use gymnasium.wrappers.FlattenObservation"
    return "use gymnasium.wrappers.TransformObservation with an array of a fixed size"


def _choices(space: Any, name: str, sizes: tuple[int, ...], starts: tuple[int, ...]) -> Choices:
    if sum(sizes) > MOST_CHOICES:
        raise Unconvertible(
            f"observations{_quoted(name)} of {space} are not supported: a one-hot vector would have {sum(sizes):,} "
            f"entries, more than {MOST_CHOICES:,}: observe its features, by a wrapper such as "
            "gymnasium.wrappers.TransformObservation in a factory of your own, --env module:factory"
        )
    return Choices(space.shape, sizes, starts)


def _quoted(name: str) -> str:
    return f' "{name}"' if name else ""


def _listed(keys: tuple[Any, ...]) -> str:
    return ", ".join(map(str, keys)) or "none"
