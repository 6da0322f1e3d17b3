"""Conversion of Gymnasium's spaces: images to channel-first, vectors to float32, actions to ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

from gossamer import spaces
from gossamer.data import Array
from gossamer.envs.base import UnsupportedSpace
from gossamer.spaces import Spec

GymEnv: TypeAlias = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class Adapter:
    """Conversion of the observations and actions of one `gymnasium.Env`."""

    spec: Spec
    axes: tuple[int, ...]  # permutation of the observation's axes; an image [H, W] has no channel axis
    start: Any  # the first action: a number, or numbers [*A]
    action_space: Space[Any]

    def obs(self, obs: Any) -> Array:
        """Convert an observation to [*O]; a view if possible."""
        array = np.asarray(obs).transpose(self.axes)
        return array if array.ndim == len(self.spec.obs_shape) else array[None]

    def action(self, action: Any) -> Any:
        """Convert an action [*A] to what the environment takes."""
        if isinstance(self.action_space, Discrete):
            return self.start + action
        converted = self.spec.actions.to_env(action + self.start)
        return converted.reshape(self.action_space.shape).astype(self.action_space.dtype, copy=False)


def adapt(name: str, env: GymEnv) -> Adapter:
    """Return the adapter for an environment's spaces.

    Vectors [N] become float32 [N]. Images (uint8) [H, W] become [1, H, W]; [H, W, C] and [C, H, W] become [C, H, W],
    where C is the shorter of the first and last axes. Raises `UnsupportedSpace` for anything else."""
    start, actions = _actions(name, env.action_space)
    rest = start, env.action_space
    space = env.observation_space
    if isinstance(space, Box) and len(space.shape) == 1:
        return Adapter(Spec(space.shape, np.dtype(np.float32), actions), (0,), *rest)
    if isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) == 2:
        return Adapter(Spec((1, *space.shape), np.dtype(np.uint8), actions), (0, 1), *rest)
    if isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) == 3:
        axes = (0, 1, 2) if space.shape[0] < space.shape[2] else (2, 0, 1)
        shape = tuple(space.shape[axis] for axis in axes)
        return Adapter(Spec(shape, np.dtype(np.uint8), actions), axes, *rest)
    raise UnsupportedSpace(
        f"{name}: observations of {space} are not supported; vectors (a one-dimensional Box) and images (a uint8 Box "
        "[H, W, C], [C, H, W] or [H, W]) are: use a wrapper such as gymnasium.wrappers.FlattenObservation "
        "in a factory of your own, --env module:factory"
    )


def _actions(name: str, space: Space[Any]) -> tuple[Any, spaces.Space]:
    """Return the first action and our action space."""
    if isinstance(space, Discrete):
        return int(space.start), spaces.Discrete(int(space.n))
    if isinstance(space, MultiDiscrete):
        return space.start.ravel(), spaces.MultiDiscrete(tuple(space.nvec.ravel().tolist()))
    if isinstance(space, MultiBinary):
        return 0, spaces.MultiBinary(int(np.prod(space.shape)))
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (tuple(bound.ravel().astype(float).tolist()) for bound in (space.low, space.high))
        return np.float32(0), spaces.Box(low, high)
    raise UnsupportedSpace(
        f"{name}: actions of {space} are not supported; Discrete, MultiDiscrete, MultiBinary and Box (of floats) are: "
        "use a gymnasium.ActionWrapper in a factory of your own, --env module:factory"
    )
