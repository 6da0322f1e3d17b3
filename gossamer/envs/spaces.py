"""Conversion between an environment of Gymnasium and Gossamer: observations (see `trees`), action masks, actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

from gossamer import spaces
from gossamer.data import Array
from gossamer.envs.base import Spaces, UnsupportedSpace
from gossamer.envs.masks import Mask, mask_for
from gossamer.envs.trees import Leaf, Node, Unconvertible, tree
from gossamer.spaces import Bounds, Spec
from gossamer.spaces.observations import MASK, WHOLE, Layout

GymEnv: TypeAlias = gymnasium.Env[Any, Any]
WIDEST = 1e9  # from a bound to the other; wider ones, such as the largest float32, say nothing of the values


@dataclass(frozen=True)
class Adapter:
    """Conversion of the observations and actions of one `gymnasium.Env`."""

    spec: Spec
    observations: Node
    mask: Mask | None  # None: not used
    own_mask: bool  # it is a part of the observation, else `info["action_mask"]`
    start: Any  # the first action: a number, or numbers [*A]
    action_space: Space[Any]

    @property
    def asks_mask(self) -> bool:
        """Whether a mask has to be given beside each observation."""
        return self.mask is not None and not self.own_mask

    def obs(self, value: Any, info: Any, *, final: bool = False) -> Array:
        """Convert an observation, and the mask of its info, to [*O]; a view if possible. `final`: the episode has
        ended. Raises `InvalidObservation`."""
        layout, tree = self.spec.layout, self.observations
        if layout is None and isinstance(tree, Leaf):
            return tree.convert(value)
        assert layout is not None, "only a single array has no layout"
        arrays = {name or WHOLE: array for name, array in tree.arrays(value)}
        if self.mask is not None:
            arrays[MASK] = self._valid(self.mask, arrays, info, final)
        return layout.pack(arrays)

    def batch(self, values: Any, count: int, masks: Array | None, final: Array) -> Array:
        """Convert observations [B, ...] of B = `count` environments at once to [B, *O]. `masks` [B, M]: those of the
        infos, if they are asked for. `final` [B]: the episode has ended. Raises `InvalidObservation`."""
        layout, tree, each = self.spec.layout, self.observations, (count,)
        if layout is None and isinstance(tree, Leaf):
            return tree.convert(values, each)
        assert layout is not None, "only a single array has no layout"
        arrays = {name or WHOLE: array for name, array in tree.arrays(values, each)}
        if self.mask is not None:
            valid = arrays[MASK] if masks is None else masks
            arrays[MASK] = np.where(final[:, None], self.mask.or_every(valid), valid)
            self.mask.check(arrays[MASK], self._source)
        return layout.pack(arrays)

    @property
    def _source(self) -> str:
        """Where masks come from, for messages."""
        return f'an observation "{MASK}"' if self.own_mask else f'an info["{MASK}"]'

    def _valid(self, mask: Mask, arrays: Mapping[str, Array], info: Any, final: bool) -> Array:
        """The valid actions. See `Mask.last` for the last observation of an episode."""
        if final:
            return mask.or_every(arrays[MASK]) if self.own_mask else mask.last(info)
        valid = arrays[MASK] if self.own_mask else mask.read(info)
        mask.check(valid, self._source)
        return valid

    def action(self, action: Any) -> Any:
        """Convert an action [*A] to what the environment takes."""
        if isinstance(self.action_space, Discrete):
            return self.start + action
        converted = self.spec.actions.to_env(action + self.start)
        return converted.reshape(self.action_space.shape).astype(self.action_space.dtype, copy=False)

    def actions(self, actions: Array) -> Array:
        """Convert actions [B, *A] to what a vector of environments takes."""
        shape, dtype = self.action_space.shape or (), self.action_space.dtype
        return self.spec.actions.to_env(actions + self.start).reshape(len(actions), *shape).astype(dtype, copy=False)


def adapt(name: str, env: Spaces, *, masks: bool = False, bounds: Bounds = "clip") -> Adapter:
    """Return the adapter for an environment's spaces. `masks`: its infos have action masks.

    Arrays of numbers become float32 vectors [N]. Pictures become bytes [C, H, W]: uint8 [H, W], [H, W, C], [C, H, W] or
    a stack of these, and numbers from 0 to 1 or from 0 to 255 of such a shape. Discrete and MultiDiscrete become
    one-hot vectors, MultiBinary a vector, both uint8. Dict, Tuple, and anything with an action mask, are packed into
    bytes; text within them is left out. Raises `UnsupportedSpace` for anything else."""
    start, actions = _actions(name, env.action_space, bounds)
    mask = mask_for(actions)
    if masks and mask is None:
        raise UnsupportedSpace(f"{name}: --action-masks: only choices and switches have masks, not {actions}")
    try:
        observations = tree(env.observation_space, mask)
    except Unconvertible as error:
        raise UnsupportedSpace(f"{name}: {error}") from error
    own = mask is not None and mask.part in observations.parts  # then that of the info is not needed
    spec = _spec(observations, mask if masks and not own else None, actions)
    spec = replace(spec, bounds=_bounds(env.observation_space, spec))
    return Adapter(spec, observations, mask if masks or own else None, own, start, env.action_space)


def _bounds(space: Space[Any], spec: Spec) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """The bounds of observations; see `Spec.bounds`."""
    single = spec.layout is None and not spec.pixels and spec.obs_dtype.kind == "f"
    if not single or not isinstance(space, Box) or not np.isfinite([space.low, space.high]).all():
        return None
    low, high = (bound.ravel().astype(float) for bound in (space.low, space.high))
    if (high - low > WIDEST).any():
        return None
    return tuple(low.tolist()), tuple(high.tolist())


def _spec(observations: Node, mask: Mask | None, actions: spaces.Space) -> Spec:
    parts = observations.parts
    if isinstance(observations, Leaf) and mask is None:
        return Spec(parts[0].shape, parts[0].dtype, actions)
    named = tuple(replace(part, name=part.name or WHOLE) for part in parts)
    layout = Layout(named if mask is None else (*named, mask.part))
    return Spec((layout.size,), np.dtype(np.uint8), actions, layout=layout)


def _actions(name: str, space: Space[Any], bounds: Bounds) -> tuple[Any, spaces.Space]:
    """Return the first action and our action space."""
    if 0 in (space.shape or ()):
        raise UnsupportedSpace(f"{name}: actions of {space} are not supported: they are empty")
    if isinstance(space, Discrete):
        return int(space.start), spaces.Discrete(int(space.n))
    if isinstance(space, MultiDiscrete):
        return space.start.ravel(), spaces.MultiDiscrete(tuple(space.nvec.ravel().tolist()))
    if isinstance(space, MultiBinary):
        return 0, spaces.MultiBinary(int(np.prod(space.shape)))
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        if bounds == "squash" and not space.is_bounded():
            raise UnsupportedSpace(f"{name}: --action-bounds squash: needs finite bounds, not {space}; use clip")
        low, high = (tuple(bound.ravel().astype(float).tolist()) for bound in (space.low, space.high))
        return np.float32(0), spaces.Box(low, high, bounds)
    raise UnsupportedSpace(
        f"{name}: actions of {space} are not supported; Discrete, MultiDiscrete, MultiBinary and Box (of floats) are: "
        "use a gymnasium.ActionWrapper in a factory of your own, --env module:factory"
    )
