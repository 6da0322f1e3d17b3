"""Rings of the newest pictures of some environments, from which observations are rebuilt.

Each picture is stored once. Where an observation is a stack of pictures (`Spec.history`), a step adds only the newest
picture to the ring of its environment, the first observation of an episode adds all of its pictures, and the final
observation of a truncated episode adds one. So every observation is a run of consecutive pictures, and is rebuilt
exactly as the environment gave it, whatever an environment fills the first stack of an episode with. Observations
without history are stored as they are.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Array, Tree, numpy_dtype
from gossamer.spaces import Spec

SPARE = 0.05  # of the pictures, for those that begin and end episodes


def spare(capacity: int, history: int) -> int:
    """Pictures that a ring of so many steps has room for besides one a step."""
    return int(capacity * SPARE) + 2 * history


def nbytes(spec: Spec, capacity: int) -> int:
    """Bytes of the pictures (or other observations) of a memory of so many steps."""
    return (capacity + spare(capacity, spec.history)) * _picture_bytes(spec)


def _picture_bytes(spec: Spec) -> int:
    return prod(spec.obs_shape) * spec.obs_dtype.itemsize // spec.history


class Pictures:
    """The newest pictures of `num_envs` environments, numbered in the order in which they were added."""

    def __init__(self, spec: Spec, num_envs: int, length: int, file: Path | None = None) -> None:
        """`length`: steps of each environment; `file`: where the pictures lie, mapped into memory. None: in host
        memory. Raises `ValueError` if the channels of an observation are no multiple of its history."""
        if spec.obs_shape[0] % spec.history:
            raise ValueError(f"observations of {spec.obs_shape[0]} channels are not {spec.history} pictures")
        self.history, self._num_envs, self._shape = spec.history, num_envs, spec.obs_shape
        self._channels = spec.obs_shape[0] // spec.history
        self.room = length + spare(length, spec.history)  # pictures of each environment
        shape, dtype = (num_envs, self.room, self._channels, *spec.obs_shape[1:]), numpy_dtype(spec.obs_dtype)
        if file is None:
            self._ring = torch.empty(shape, dtype=dtype)
        else:
            self._ring = torch.from_file(str(file), shared=True, size=prod(shape), dtype=dtype).view(shape)
        self._array: Array = self._ring.numpy()  # the same memory: NumPy copies single channels of pictures faster
        self.added = np.zeros(num_envs, np.int64)  # [B] pictures ever added

    @property
    def nbytes(self) -> int:
        """Bytes of all pictures."""
        return self._ring.nbytes

    def add(self, obs: Tensor, begins: Array, first: int) -> Array:
        """Add the observations [b, *O] that environments first .. first + b - 1 gave at one time. `begins` [b]: those
        of which all pictures are new. Returns the numbers [b] of their newest pictures."""
        channels, envs = self._channels, np.arange(first, first + len(obs))
        if self.history > 1:
            for i in np.flatnonzero(begins):
                for older in range(self.history - 1):
                    self._put(first + int(i), obs[i, older * channels : (older + 1) * channels])
        newest = self.added[envs]
        self._array[envs, newest % self.room] = obs.numpy()[:, -channels:]
        self.added[envs] += 1
        return newest

    def add_final(self, env: int, obs: Tensor) -> int:
        """Add the final observation [*O] of a truncated episode. Returns the number of its newest picture."""
        return self._put(env, obs[-self._channels :].cpu())

    def _put(self, env: int, picture: Tensor) -> int:
        number = int(self.added[env])
        self._ring[env, number % self.room] = picture
        self.added[env] += 1
        return number

    def gone(self, envs: Array, newest: Array) -> Array:
        """Whether the stacks [W] of which these pictures [W] of the environments [W] are the newest have lost any."""
        lost: Array = newest - self.history + 1 < self.added[envs] - self.room
        return lost

    def stacks(self, envs: Array, newest: Array) -> Tensor:
        """The observations [..., W, *O] of which these pictures [..., W] of the environments [W] are the newest."""
        numbers = newest[..., None] + np.arange(1 - self.history, 1)  # [..., W, history]
        places = torch.from_numpy(envs[:, None] * self.room + numbers % self.room)
        pictures = self._ring.flatten(0, 1).index_select(0, places.flatten())
        return pictures.view(*newest.shape, *self._shape)

    def state_dict(self) -> Tree:
        """All pictures, as views: the next `add` changes them."""
        filled = int(min(self.room, self.added.max()))
        return {"pictures": self._ring[:, :filled], "added": self.added.copy()}

    def load_state_dict(self, state: Tree) -> None:
        """Copy a state of `state_dict`."""
        self._ring[:, : state["pictures"].shape[1]] = state["pictures"]
        self.added[:] = np.asarray(state["added"])
