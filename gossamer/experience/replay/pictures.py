"""Rings of the newest pictures of some environments, from which observations are rebuilt.

Each picture is stored once. Where an observation is a stack of pictures (`Spec.history`), a step adds only the newest
picture to the ring of its environment, the first observation of an episode adds all of its pictures, and the final
observation of a truncated episode adds one. So every observation is a run of consecutive pictures, and is rebuilt
exactly as the environment gave it, whatever an environment fills the first stack of an episode with. Of a packed
observation (`Spec.layout`), the other parts are stored beside the newest picture. Observations without history are
stored as they are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Array, Tree, numpy_dtype
from gossamer.spaces import Spec
from gossamer.spaces.observations import Layout, Part
from gossamer.system.errors import UserError

SPARE = 0.05  # of the pictures, for those that begin and end episodes


def spare(capacity: int, history: int) -> int:
    """Pictures that a ring of so many steps has room for besides one a step."""
    return int(capacity * SPARE) + 2 * history


STEP_BYTES = 56  # of a step besides the observation and the action: reward, discount, value, priority, numbers, ..


def nbytes(spec: Spec, capacity: int) -> int:
    """Bytes of a memory of so many steps, without recurrent states."""
    packed = Packed.of(spec)
    others = 0 if packed is None else (capacity + spare(capacity, spec.history)) * packed.others_size
    step = STEP_BYTES + prod(spec.actions.shape) * spec.actions.dtype.itemsize
    return picture_bytes(spec, capacity) + others + capacity * step


def picture_bytes(spec: Spec, capacity: int) -> int:
    """Bytes of its pictures, which may lie on disk."""
    packed = Packed.of(spec)
    stack = prod(spec.obs_shape) * spec.obs_dtype.itemsize if packed is None else packed.part.size
    return (capacity + spare(capacity, spec.history)) * (stack // spec.history)


@dataclass(frozen=True)
class Packed:
    """Packed observations one of whose parts is the stack of pictures."""

    layout: Layout
    part: Part  # the stack

    @staticmethod
    def of(spec: Spec) -> Packed | None:
        """Those of a specification; None: its observations are not packed, or have no history."""
        if spec.layout is None or spec.history == 1:
            return None
        (part,) = (part for part in spec.layout.parts if part.picture)
        return Packed(spec.layout, part)

    @property
    def others_size(self) -> int:
        """Bytes of the other parts."""
        return self.layout.size - self.part.size

    def split(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The stacks [..., *part shape] of observations [..., size], and the bytes [..., others] of the other parts."""
        _, place = self.layout.places[self.part.name]
        others = torch.cat([obs[..., : place.start], obs[..., place.stop :]], -1)
        return self.layout.part(obs, self.part.name), others

    def join(self, stacks: Tensor, others: Tensor) -> Tensor:
        """The inverse of `split`."""
        _, place = self.layout.places[self.part.name]
        inside = stacks.movedim(-3, -1).flatten(-3)
        return torch.cat([others[..., : place.start], inside, others[..., place.start :]], -1)


class Pictures:
    """The newest pictures of `num_envs` environments, numbered in the order in which they were added."""

    def __init__(self, spec: Spec, num_envs: int, length: int, folder: str = "") -> None:
        """`length`: steps of each environment; `folder`: where the pictures lie, in a file without a name that is
        mapped into memory; empty: in host memory. Raises `UserError` if the folder cannot be used or its disk has no
        room for them, and `ValueError` if the channels of an observation are no multiple of its history."""
        self._packed = Packed.of(spec)
        self._shape = spec.obs_shape if self._packed is None else self._packed.part.shape
        if self._shape[0] % spec.history:
            raise ValueError(f"observations of {self._shape[0]} channels are not {spec.history} pictures")
        self.history, self._num_envs = spec.history, num_envs
        self._channels = self._shape[0] // spec.history
        self.room = length + spare(length, spec.history)  # pictures of each environment
        others = 0 if self._packed is None else self._packed.others_size
        self._others = torch.empty(
            (num_envs, self.room, others), dtype=torch.uint8
        )  # of the stack with this newest one
        shape, dtype = (num_envs, self.room, self._channels, *self._shape[1:]), numpy_dtype(spec.obs_dtype)
        self._ring = _mapped(Path(folder), shape, dtype) if folder else torch.empty(shape, dtype=dtype)
        self._array: Array = self._ring.numpy()  # the same memory: NumPy copies single channels of pictures faster
        self.added = np.zeros(num_envs, np.int64)  # [B] pictures ever added

    @property
    def nbytes(self) -> int:
        """Bytes of all pictures."""
        return self._ring.nbytes + self._others.nbytes

    def add(self, obs: Tensor, begins: Array, first: int) -> Array:
        """Add the observations [b, *O] that environments first .. first + b - 1 gave at one time. `begins` [b]: those
        of which all pictures are new. Returns the numbers [b] of their newest pictures."""
        channels, envs = self._channels, np.arange(first, first + len(obs))
        obs, others = (obs, None) if self._packed is None else self._packed.split(obs)
        if self.history > 1:
            for i in np.flatnonzero(begins):
                for older in range(self.history - 1):
                    self._put(first + int(i), obs[i, older * channels : (older + 1) * channels])
        newest = self.added[envs]
        picture, row = obs.numpy()[:, -channels:], newest % self.room
        self._array[envs, row] = picture
        if others is not None:
            self._others[torch.from_numpy(envs), torch.from_numpy(row)] = others
        self.added[envs] += 1
        return newest

    def add_final(self, env: int, obs: Tensor) -> int:
        """Add the final observation [*O] of a truncated episode. Returns the number of its newest picture."""
        obs, others = (obs, None) if self._packed is None else self._packed.split(obs)
        number = self._put(env, obs[-self._channels :].cpu())
        if others is not None:
            self._others[env, number % self.room] = others.cpu()
        return number

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
        stacks = pictures.view(*newest.shape, *self._shape)
        if self._packed is None:
            return stacks
        others = self._others[torch.from_numpy(envs), torch.from_numpy(newest % self.room)]
        return self._packed.join(stacks, others)

    def state_dict(self) -> Tree:
        """All pictures, as views: the next `add` changes them."""
        filled = int(min(self.room, self.added.max()))
        return {
            "pictures": self._ring[:, :filled],
            "others": self._others[:, :filled],
            "added": self.added.copy(),
        }

    def load_state_dict(self, state: Tree) -> None:
        """Copy a state of `state_dict`."""
        filled = state["pictures"].shape[1]
        self._ring[:, :filled], self._others[:, :filled] = state["pictures"], state["others"]
        self.added[:] = np.asarray(state["added"])


def _mapped(folder: Path, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory on disk. The file is deleted at once, and its space is free when the process ends, however it does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder) as file:
            # A full disk would kill the process later
            os.posix_fallocate(file.fileno(), 0, prod(shape) * dtype.itemsize)
            return torch.from_file(file.name, shared=True, size=prod(shape), dtype=dtype).view(shape)
    except OSError as error:
        raise UserError(f"--replay-dir {folder}: cannot be used ({error.strerror}); give another folder") from error
