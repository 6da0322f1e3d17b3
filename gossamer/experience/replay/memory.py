"""A replay memory: rings of the newest steps of some environments, from which windows of steps are drawn.

Each picture is stored once. Where an observation is a stack of pictures (`Spec.history`), a step adds only the newest
picture to the ring of its environment, the first observation of an episode adds all of its pictures, and the final
observation of a truncated episode adds one. So every observation is a run of consecutive pictures, and is rebuilt
exactly as the environment gave it, whatever an environment fills the first stack of an episode with. Observations
without history are stored as they are.
"""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Array, Final, Trajectory, numpy_dtype
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


class ReplayMemory:
    """The newest `capacity` steps of `num_envs` environments together, in host memory.

    A memory of short episodes may hold fewer: an episode takes `Spec.history` - 1 pictures more than it has steps, and
    there is room for 5 % more pictures than steps."""

    def __init__(self, spec: Spec, num_envs: int, capacity: int) -> None:
        """Raises `ValueError` if the capacity is less than a step of each environment, or if the channels of an
        observation are no multiple of its history."""
        self.history, self.num_envs, self.length = spec.history, num_envs, capacity // num_envs
        if self.length < 1:
            raise ValueError(f"a replay memory of {capacity} steps: {num_envs} environments need at least {num_envs}")
        if spec.obs_shape[0] % self.history:
            raise ValueError(f"observations of {spec.obs_shape[0]} channels are not {self.history} pictures")
        self._shape = spec.obs_shape
        self._picture = (spec.obs_shape[0] // self.history, *spec.obs_shape[1:])
        self._room = self.length + spare(self.length, self.history)  # pictures of each environment
        self._pictures = torch.empty((num_envs, self._room, *self._picture), dtype=numpy_dtype(spec.obs_dtype))
        self._rows = self.length + 1  # the observation after the newest step has a row, too
        self._added = np.zeros(num_envs, np.int64)  # [B] pictures ever added
        self._newest = np.zeros((num_envs, self._rows), np.int64)  # number of the newest picture of x_t
        self._finals = np.full((num_envs, self._rows), -1, np.int64)  # and of a final observation; -1: there is none
        self._oldest = np.zeros(num_envs, np.int64)  # [B] first step that is still there
        self._steps: dict[str, Tensor] = {}  # the trajectory's other tensors, [B, rows, ...]; made with the first one
        self._final_values = torch.zeros((num_envs, self._rows))
        self.written = 0  # steps of each environment so far

    def __len__(self) -> int:
        """Steps that are stored."""
        return int((self.written - self._oldest).sum())

    def add(self, rollout: Trajectory) -> None:
        """Store a rollout that follows the last one. Raises `ValueError` if it has a recurrent state, or more steps of
        each environment than the memory."""
        steps = rollout.reward.shape[0]
        if rollout.state:
            raise ValueError("a replay memory of windows keeps no recurrent state")
        if steps > self.length:
            raise ValueError(f"a rollout of {steps} steps: the memory keeps {self.length} of each environment")
        obs = rollout.obs.cpu()
        begins = rollout.begins.cpu().numpy()
        finals = {(final.t, final.b): final for final in rollout.finals}
        if not self.written:
            self._begin(rollout)
            self._add(obs[0], np.ones(self.num_envs, bool), row=0)
        for t in range(steps):
            row = (self.written + t) % self._rows
            self._finals[:, row] = -1
            for b in np.flatnonzero(begins[t + 1]) if finals else ():
                if (t, int(b)) in finals:
                    self._add_final(finals[t, int(b)], row)
            self._add(obs[t + 1], begins[t + 1], row=(row + 1) % self._rows)
        rows = torch.arange(self.written, self.written + steps) % self._rows
        for name, ring in self._steps.items():
            ring[:, rows] = getattr(rollout, name)[:steps].movedim(0, 1).to(ring.device)
        self._steps["value"][:, (rows[-1] + 1) % self._rows] = rollout.value[-1].cpu()
        self._steps["begins"][:, (rows[-1] + 1) % self._rows] = rollout.begins[-1].cpu()
        self.written += steps
        self._forget()

    def windows(self, length: int) -> Array:
        """The number of windows of so many steps in each environment [B]."""
        found: Array = np.maximum(0, self.written - length + 1 - self._oldest)
        return found

    def draw(self, count: int, length: int, rng: torch.Generator) -> Tensor:
        """Keys [count] of windows of `length` steps, drawn uniformly with replacement. Raises `ValueError` if there is
        none."""
        ends = np.cumsum(self.windows(length))
        if not ends[-1]:
            raise ValueError(f"the replay memory has no window of {length} steps")
        drawn = torch.randint(int(ends[-1]), (count,), generator=rng).numpy()
        envs = np.searchsorted(ends, drawn, side="right")
        firsts = self._oldest[envs] + drawn - np.where(envs > 0, ends[envs - 1], 0)
        return torch.from_numpy(firsts * self.num_envs + envs)

    def window(self, keys: Tensor, length: int) -> Trajectory:
        """The windows with these keys [W] as a trajectory of `length` steps of W environments, copied."""
        firsts, envs = np.divmod(keys.numpy(), self.num_envs)
        rows = (firsts + np.arange(length + 1)[:, None]) % self._rows  # [T+1, W]
        places = torch.from_numpy(envs * self._rows + rows)  # in the flattened rings

        def taken(name: str, upto: int) -> Tensor:
            return self._steps[name].flatten(0, 1)[places[:upto]]

        return Trajectory(
            obs=self._stacks(envs, self._newest[envs, rows]),
            action=taken("action", length),
            reward=taken("reward", length),
            discount=taken("discount", length),
            behaviour=taken("behaviour", length),
            value=taken("value", length + 1),
            begins=taken("begins", length + 1),
            state={},
            version=taken("version", length),
            finals=self._window_finals(envs, rows[:length]),
        )

    def _begin(self, rollout: Trajectory) -> None:
        """Allocate the rings that have the dtypes of a rollout."""
        for name in ("action", "reward", "discount", "behaviour", "value", "begins", "version"):
            like = getattr(rollout, name)
            self._steps[name] = torch.zeros((self.num_envs, self._rows, *like.shape[2:]), dtype=like.dtype)

    def _add(self, obs: Tensor, begins: Array, *, row: int) -> None:
        """Add the observations [B, *O] of one time. `begins` [B]: those of which all pictures are new."""
        channels = self._picture[0]
        if self.history > 1:
            for b in np.flatnonzero(begins):
                for older in range(self.history - 1):
                    place = self._added[b] % self._room
                    self._pictures[b, place] = obs[b, older * channels : (older + 1) * channels]
                    self._added[b] += 1
        envs = torch.arange(self.num_envs)
        self._pictures[envs, torch.from_numpy(self._added % self._room)] = obs[:, -channels:]
        self._newest[:, row] = self._added
        self._added += 1

    def _add_final(self, final: Final, row: int) -> None:
        """Add the final observation of an episode that was truncated in the step of this row."""
        b = final.b
        self._pictures[b, self._added[b] % self._room] = final.obs[-self._picture[0] :].cpu()
        self._finals[b, row], self._final_values[b, row] = self._added[b], final.value
        self._added[b] += 1

    def _forget(self) -> None:
        """Find the first step of each environment whose observation is still there."""
        self._oldest = np.maximum(self._oldest, self.written - self.length)
        envs = np.arange(self.num_envs)
        while True:
            first = self._newest[envs, self._oldest % self._rows] - self.history + 1
            gone = (first < self._added - self._room) & (self._oldest < self.written)
            if not gone.any():
                return
            self._oldest[gone] += 1

    def _stacks(self, envs: Array, newest: Array) -> Tensor:
        """The observations [..., *O] of which these pictures [..., W] of the environments [W] are the newest."""
        numbers = newest[..., None] + np.arange(1 - self.history, 1)  # [..., W, history]
        places = torch.from_numpy(envs[:, None] * self._room + numbers % self._room)
        pictures = self._pictures.flatten(0, 1).index_select(0, places.flatten())
        return pictures.view(*newest.shape, *self._shape)

    def _window_finals(self, envs: Array, rows: Array) -> list[Final]:
        """The final observations within windows whose steps have these rows [T, W]."""
        numbers = self._finals[envs, rows]
        found = []
        for t, w in np.argwhere(numbers >= 0):
            obs = self._stacks(envs[w : w + 1], numbers[t : t + 1, w])[0]
            found.append(Final(int(t), int(w), obs, {}, float(self._final_values[envs[w], rows[t, w]])))
        return found
