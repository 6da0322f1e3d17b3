"""Several games behind one kind of observation and one set of actions.

An observation has the parts that all games have, a mask of the actions that its game has, unless all games have all of
them, and the game itself, a one-hot vector. So the game travels wherever an observation does: through rollouts, replay
memories and messages to the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gossamer.data import Array
from gossamer.envs.base import UnsupportedSpace
from gossamer.spaces import Discrete, Spec
from gossamer.spaces.observations import GAME, MASK, WHOLE, Layout, Part

BYTES = np.dtype(np.uint8)
FACTORY = "in a factory of your own, --env module:factory"


class Union:
    """The union of some games. `spec`: of it.

    Actions are those of the same name, where all games name theirs (Atari's do), else of the same number. Raises
    `UnsupportedSpace` if the games' observations or actions differ in kind or shape."""

    def __init__(self, names: Sequence[str], specs: Sequence[Spec]) -> None:
        self._given = [spec.layout or Layout((Part(WHOLE, spec.obs_shape, spec.obs_dtype),)) for spec in specs]
        self._packed = [spec.layout is not None for spec in specs]
        parts = _common_parts(names, specs, self._given)
        self._own = _own_actions(names, specs)  # of each game [A]: the number of its action; -1: it has none
        masks = [MASK in given.places for given in self._given]
        self._masked = any(masks) or any(own.min(initial=0) < 0 for own in self._own)
        first = specs[0]
        actions = Discrete(len(self._own[0])) if isinstance(first.actions, Discrete) else first.actions
        width = len(self._own[0]) if isinstance(actions, Discrete) else _mask_size(self._given)
        mask = (Part(MASK, (width,), BYTES),) if self._masked else ()
        self._layout = layout = Layout((*parts, *mask, Part(GAME, (len(specs),), BYTES)))
        self.spec = replace(
            first,
            obs_shape=(layout.size,),
            obs_dtype=BYTES,
            actions=actions,
            layout=layout,
            bounds=None,
            action_names=_union_of_names(specs) or (),
            games=tuple(names),
        )
        aside = np.eye(len(specs), dtype=np.uint8)
        self._aside = [np.concatenate([self._valid(game), aside[game]]) for game in range(len(specs))]
        self._size = sum(part.size for part in parts)

    def _valid(self, game: int) -> Array:
        """The mask [A] of a game without one of its own."""
        if not self._masked:
            return np.zeros(0, np.uint8)
        own = self._own[game]
        return (own >= 0).astype(np.uint8) if len(own) else np.ones(self._layout.places[MASK][0].shape, np.uint8)

    def pack(self, game: int, obs: Array) -> Array:
        """Convert observations [b, *O] of a game to those of the union [b, size]."""
        packed = np.empty((len(obs), *self.spec.obs_shape), np.uint8)
        given = self._given[game]
        inner = obs if self._packed[game] else given.pack({WHOLE: obs})
        packed[:, self._size :] = self._aside[game]
        if MASK not in given.places:
            packed[:, : self._size] = inner
            return packed
        kept = [inner[:, place] for part, place in given.places.values() if part.name != MASK]
        packed[:, : self._size] = np.concatenate(kept, axis=1)
        packed[:, self._layout.places[MASK][1]] = self._widened(game, given.array(inner, MASK))
        return packed

    def _widened(self, game: int, mask: Array) -> Array:
        """A game's masks [b, M] as those of the union."""
        own = self._own[game]
        return np.where(own >= 0, mask[:, own], 0) if len(own) else mask

    def own(self, game: int, action: Array) -> Array:
        """Convert actions [b, *A] of the union to those of a game. Raises `ValueError` for one that it does not
        have."""
        if not len(self._own[game]):
            return action
        own = self._own[game][action]
        if own.min(initial=0) < 0:
            raise ValueError(f"{self.spec.games[game]} has no action {int(action[own.argmin()])}")
        return own


def _common_parts(names: Sequence[str], specs: Sequence[Spec], layouts: Sequence[Layout]) -> tuple[Part, ...]:
    """The parts that the observations of all games have."""
    first, *others = [tuple(part for part in layout.parts if part.name != MASK) for layout in layouts]
    if taken := {GAME} & {part.name for part in first}:
        raise UnsupportedSpace(f"{names[0]}: the observation has a key {min(taken)}; rename it to play several games")
    for name, spec, parts in zip(names[1:], specs[1:], others, strict=True):
        if parts != first:
            raise UnsupportedSpace(
                f"{names[0]} and {name} cannot be played by one network: they observe {specs[0].shapes} and "
                f"{spec.shapes}; {_advice(first, parts)} {FACTORY}"
            )
        if spec.history != specs[0].history:
            raise UnsupportedSpace(f"{names[0]} and {name} must stack equally many pictures")
    return first


def _advice(first: Sequence[Part], other: Sequence[Part]) -> str:
    """What would make observations equal."""
    if len(first) != len(other) or {part.name for part in first} != {part.name for part in other}:
        return "give all games a Dict with the same keys,"
    if all(part.picture for part in (*first, *other)):
        return "resize the pictures to one shape (gymnasium.wrappers.ResizeObservation)"
    if any(part.picture for part in (*first, *other)):
        return "give all games a Dict with the keys of both, and zeros where a game has none,"
    return "pad the vectors to one length"


def _own_actions(names: Sequence[str], specs: Sequence[Spec]) -> list[Array]:
    """For each game and each action of the union [A], the number of the game's action, or -1; empty arrays where the
    actions are no single choice, and equal."""
    if all(isinstance(spec.actions, Discrete) for spec in specs):
        named, counts = _union_of_names(specs), [spec.actions.outputs for spec in specs]
        if named is None:
            each = np.arange(max(counts))
            return [np.where(each < count, each, -1) for count in counts]
        return [np.array([_index(spec.action_names, name) for name in named]) for spec in specs]
    for name, spec in zip(names, specs, strict=True):
        if spec.actions != specs[0].actions:
            raise UnsupportedSpace(
                f"{names[0]} and {name} cannot be played by one network: their actions are {specs[0].actions} and "
                f"{spec.actions}; give them the same action space {FACTORY}"
            )
    return [np.zeros(0, np.int64) for _ in specs]


def _union_of_names(specs: Sequence[Spec]) -> tuple[str, ...] | None:
    """The names of all games' actions, in the order in which they first appear; None if a game does not name them."""
    if not all(spec.action_names for spec in specs):
        return None
    return tuple(dict.fromkeys(name for spec in specs for name in spec.action_names))


def _index(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else -1


def _mask_size(layouts: Sequence[Layout]) -> int:
    """Entries of the mask that a game with actions of several choices has; 0 if none has one."""
    return next((layout.places[MASK][0].shape[0] for layout in layouts if MASK in layout.places), 0)
