"""Conversion of Gymnasium's observation spaces: a `Leaf`, or a tree of them (Dict and Tuple spaces)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from gymnasium import spaces

from gossamer.data import Array
from gossamer.envs.leaves import BYTES, Choices, InvalidObservation, LeafKind, Numbers, Picture, Switches
from gossamer.envs.masks import Mask
from gossamer.spaces.observations import MASK, Part

MOST_CHOICES = 65_536  # of a Discrete or MultiDiscrete: its one-hot vectors have as many bytes
LEAST_SIDE = 8  # pixels: smaller arrays of numbers are no pictures
SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these are"


class Unconvertible(ValueError):
    """A space is not supported."""


class Node(Protocol):
    """An observation, or a part of it."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the packed observation, in order."""

    def arrays(self, value: Any, batch: tuple[int, ...] = ()) -> Iterator[tuple[str, Array]]:
        """Yield the converted parts [*batch, *part shape] of observations by name. Raises `InvalidObservation`."""


@dataclass(frozen=True)
class Leaf:
    """One array. `name`: its keys in Dict and Tuple spaces joined by "/"; empty if the observation is this array."""

    name: str
    kind: LeafKind

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(self.name, self.kind.shape, self.kind.dtype),)

    def arrays(self, value: Any, batch: tuple[int, ...] = ()) -> Iterator[tuple[str, Array]]:
        yield self.name, self.convert(value, batch)

    def convert(self, value: Any, batch: tuple[int, ...] = ()) -> Array:
        """Convert values to the part's shape and dtype, [*batch, *shape]. Raises `InvalidObservation`."""
        try:
            return self.kind.convert(value, batch)
        except InvalidObservation as error:
            raise InvalidObservation(f"an observation{_quoted(self.name)} {error}") from error.__cause__


@dataclass(frozen=True)
class LeftOut:
    """Text within a Dict or Tuple, which the network does not observe."""

    parts: ClassVar[tuple[Part, ...]] = ()

    def arrays(self, value: Any, batch: tuple[int, ...] = ()) -> Iterator[tuple[str, Array]]:
        yield from ()


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

    def arrays(self, value: Any, batch: tuple[int, ...] = ()) -> Iterator[tuple[str, Array]]:
        self._check(value)
        for key, node in zip(self.keys, self.nodes, strict=True):
            yield from node.arrays(value[key], batch)

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
    if is_text(space) and name:
        return LeftOut()
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return Leaf(name, _kind(space, name))
    nodes = tuple(_node(inner, mask, part) for part, inner in _within(space, name))
    keys = tuple(space.spaces) if isinstance(space, spaces.Dict) else tuple(range(len(space.spaces)))
    return Group(name, keys, nodes, mapping=isinstance(space, spaces.Dict))


def _within(space: spaces.Dict | spaces.Tuple[Any], name: str) -> Iterator[tuple[str, Any]]:
    """The spaces within a Dict or Tuple, with the names of their parts."""
    each = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    for key, inner in each:
        yield f"{name}/{key}" if name else str(key), inner


def is_text(space: Any) -> bool:
    """Whether this is Gymnasium's Text, or a space of one's own for text, as MiniGrid's missions."""
    return isinstance(space, spaces.Text) or (space.dtype is not None and space.dtype.kind == "U")


def texts(space: Any, name: str = "") -> Iterator[str]:
    """The names of the parts that are left out of observations of this space, since they are text."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part, inner in _within(space, name):
            yield from texts(inner, part)
    elif is_text(space):
        yield name


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


def _kind(space: Any, name: str) -> LeafKind:
    """Return the conversion of a space that is neither Dict nor Tuple."""
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary) and 0 in space.shape:
        raise Unconvertible(f"observations{_quoted(name)} of {space} are not supported: they are empty; leave them out")
    if isinstance(space, spaces.Box):
        return _box(space)
    if isinstance(space, spaces.Discrete):
        return _choices(space, name, (int(space.n),), (int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        return _choices(space, name, tuple(space.nvec.ravel().tolist()), tuple(space.start.ravel().tolist()))
    if isinstance(space, spaces.MultiBinary):
        return Switches(space.shape)
    raise Unconvertible(
        f"observations{_quoted(name)} of {space} are not supported; {SUPPORTED}: use "
        "gymnasium.wrappers.TransformObservation with an array of a fixed size in a factory of your own, --env "
        "module:factory"
    )


def _box(space: spaces.Box) -> Numbers | Picture:
    """Return the conversion of an array: of a picture, if it has the shape and the range of one, else of numbers."""
    axes = _axes(space.shape)
    if not axes or space.dtype == BYTES:
        return Picture(space.shape, axes) if axes else Numbers(space.shape)
    picture = Picture(space.shape, axes, most=_most(space))
    return picture if picture.most and min(picture.shape[1:]) >= LEAST_SIDE else Numbers(space.shape)


def _most(space: spaces.Box) -> int | None:
    """The upper bound of numbers that all lie in 0..1 or in 0..255, else None."""
    most = space.high.flat[0]
    same = most in (1, 255) and (space.low == 0).all() and (space.high == most).all()
    return int(most) if same else None


def _axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The order of axes that makes a picture, or a stack of pictures along the first axis, [..., C, H, W]; empty for
    any other number of axes."""
    if len(shape) == 2:
        return (0, 1)
    if len(shape) not in (3, 4):
        return ()
    *stack, first, second, third = range(len(shape))
    return (*stack, first, second, third) if _channels_first(*shape[-3:]) else (*stack, third, first, second)


def _channels_first(first: int, second: int, third: int) -> bool:
    """Whether a picture is [C, H, W], and not [H, W, C]. Two equal sides are height and width; else the channels are
    fewer than those."""
    if (first == second) != (second == third):
        return second == third
    return first < third


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
