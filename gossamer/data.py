"""Data exchanged between components: frozen dataclasses of arrays and tensors, with shapes.

Legend, used everywhere in the package:

    T  steps of a rollout            t  time index; `_t` is what happened at t, time runs 0..T
    B  parallel environments         O  shape of one observation
    A  shape of one action           P  parameters of one distribution over actions
    M  entries of an action mask     K  environments of one worker process

A *step* is one decision of the agent in one environment; a *frame* is one frame of the emulator (4 to a step on Atari).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gossamer.system.transfers import uploaded

Tree: TypeAlias = Any  # nested dicts of tensors; may be empty
Array: TypeAlias = npt.NDArray[Any]
Version: TypeAlias = int  # number of updates that produced a set of parameters


class Stamp(NamedTuple):
    """The order of a learner's parameters. Those after a restart of its host follow all earlier ones, although their
    version may be lower: it continues from a checkpoint."""

    life: int  # restarts of the learner's host
    version: Version


@dataclass(frozen=True)
class Step:
    """Result of one step of a vector environment (NumPy, on the host)."""

    obs: Array  # [B, *O]  next observation; after an autoreset, the first one of the new episode
    reward: Array  # [B] float32  reward for learning (clipped if the preset requires it)
    score: Array  # [B] float32  unclipped reward
    terminated: Array  # [B] bool  the return from here on is zero
    truncated: Array  # [B] bool  the episode was cut off by a limit; its value must be bootstrapped
    over: Array  # [B] bool  a new episode has begun (a lost life can terminate without one)
    final_obs: Array | None  # [B, *O]  last observation before autoreset, valid where `truncated`
    metrics: Mapping[int, Mapping[str, float]] = field(default_factory=dict)  # environment -> of its ended episode


@dataclass(frozen=True)
class Action:
    """Output of a policy for a batch of observations."""

    action: Tensor  # [B, *A]
    log_prob: Tensor | None  # [B]  ln mu(a), of the behaviour policy mu; None: as `parameters` and the action say
    parameters: Tensor  # [B, P]  of the behaviour policy's distributions
    value: Tensor  # [B]  estimated return; zeros if the policy has no value head
    version: Tensor | None = None  # [B] int64  of the parameters that chose; None: those of the last `refresh`
    chosen: Tensor | None = None  # [B]  Q(x, a) of the action; None: a policy without action values


@dataclass(frozen=True)
class Final:
    """The final observation of a truncated episode."""

    t: int  # r_t was the episode's last reward
    b: int  # environment
    obs: Tensor  # [*O]
    state: Tree  # recurrent state before it; empty without memory
    value: float  # discounted value at acting time, which the trajectory's `reward` includes

    def to(self, device: torch.device | str) -> Final:
        """Copy it to another device."""
        state = {name: uploaded(each, device) for name, each in self.state.items()}
        return replace(self, obs=uploaded(self.obs, device), state=state)


@dataclass(frozen=True)
class Trajectory:
    """T steps of B environments. There is no `done`: `discount` is 0 at the end of an episode. If the episode was
    truncated, `reward` includes the discounted value of its final observation, as the behaviour policy estimated it;
    `finals` lets a learner with other parameters estimate it anew."""

    obs: Tensor  # [T+1, B, *O]  x_0 .. x_T; [2, B, *O]  x_0 and x_T, where a `ReplayPlan` wants no others
    action: Tensor  # [T, B, *A]  a_0 .. a_{T-1}
    reward: Tensor  # [T, B]  r_t for (x_t, a_t)
    discount: Tensor  # [T, B]  gamma * (1 - terminated)
    behaviour: Tensor  # [T, B]  ln mu(a_t), of the behaviour policy mu
    value: Tensor  # [T+1, B]  V(x_t) at acting time, so that on-policy learning needs no second forward pass for it
    begins: Tensor  # [T+1, B] bool  x_t is the first observation of an episode (not after a lost life without reset)
    state: Tree  # [B, ...]  recurrent state before x_0; empty without memory
    version: Tensor  # [T, B] int64  version of the behaviour policy's parameters
    finals: list[Final] = field(default_factory=list)  # of the episodes that were truncated
    weight: Tensor | None = None  # [B]  of each environment's loss, for samples of a memory; None: 1
    chosen: Tensor | None = None  # [T, B]  Q(x_t, a_t) at acting time; None: not wanted
    mask: Tensor | None = None  # [T, B] bool  steps to learn from; None: all

    @property
    def steps(self) -> int:
        """Environment steps, T * B."""
        return self.reward.numel()

    @property
    def num_envs(self) -> int:
        """Environments, B."""
        return self.reward.shape[1]

    @staticmethod
    def empty(
        rollout: int,
        envs: int,
        obs_shape: Sequence[int],
        obs_dtype: torch.dtype,
        action_shape: Sequence[int] = (),
        action_dtype: torch.dtype = torch.int64,
        device: torch.device | str = "cpu",
        state: Tree | None = None,
    ) -> Trajectory:
        """Allocate a slot, which is filled in place during the whole run. Images are stored channels last, the memory
        format that convolutions use, so that they are converted only once, when acting. `state`: a recurrent state."""
        steps = (rollout, envs)
        channels, *plane = obs_shape
        obs = torch.zeros((rollout + 1, envs, *plane, channels), dtype=obs_dtype, device=device)
        return Trajectory(
            obs=obs.movedim(-1, 2),
            action=torch.zeros((*steps, *action_shape), dtype=action_dtype, device=device),
            reward=torch.zeros(steps, device=device),
            discount=torch.zeros(steps, device=device),
            behaviour=torch.zeros(steps, device=device),
            value=torch.zeros((rollout + 1, envs), device=device),
            begins=torch.zeros((rollout + 1, envs), dtype=torch.bool, device=device),
            state={name: each.clone() for name, each in (state or {}).items()},
            version=torch.zeros(steps, dtype=torch.int64, device=device),
        )

    def with_chosen(self) -> Trajectory:
        """This slot, which an actor also writes `chosen` to."""
        return replace(self, chosen=torch.zeros_like(self.reward))

    def to(self, device: torch.device | str) -> Trajectory:
        """The trajectory on this device, with its final observations; the tensors that are there already as they are.
        Copies to a GPU do not wait."""
        moved = self._map(lambda tensor, _: uploaded(tensor, device))
        return replace(moved, finals=[final.to(device) for final in self.finals])

    def columns(self, start: int, end: int) -> Trajectory:
        """The trajectories of environments start .. end - 1, as views, with final observations of their own."""
        return replace(self._map(lambda tensor, dim: tensor.narrow(dim, start, end - start)), finals=[])

    def column(self, b: int) -> Trajectory:
        """The trajectory of environment b, as views, with its final observations."""
        finals = [replace(final, b=0) for final in self.finals if final.b == b]
        return replace(self.columns(b, b + 1), finals=finals)

    def new_empty(self, envs: int) -> Trajectory:
        """Allocate a trajectory of `envs` environments, otherwise with this one's shapes, dtypes and memory formats.
        Its content is arbitrary."""

        def allocated(tensor: Tensor, dim: int) -> Tensor:
            return tensor.new_empty((*tensor.shape[:dim], envs, *tensor.shape[dim + 1 :]))

        return replace(self._map(allocated), finals=[])

    def copy_(self, other: Trajectory) -> None:
        """Copy another trajectory of the same shapes into the memory of this one."""
        for each in fields(self):
            if isinstance(tensor := getattr(self, each.name), Tensor):
                tensor.copy_(getattr(other, each.name))
        for name, tensor in self.state.items():
            tensor.copy_(other.state[name])
        self.finals[:] = other.finals

    def _map(self, change: Callable[[Tensor, int], Tensor]) -> Trajectory:
        """Apply a function to each tensor and the number of its dimension B; to observations as [T+1, B, .., channels],
        as they lie in memory."""
        changed: dict[str, Any] = {"state": {name: change(each, 0) for name, each in self.state.items()}}
        for each in fields(self):
            if isinstance(tensor := getattr(self, each.name), Tensor) and each.name != "obs":
                changed[each.name] = change(tensor, 0 if each.name == "weight" else 1)
        return replace(self, obs=change(self.obs.movedim(2, -1), 1).movedim(-1, 2), **changed)

    @staticmethod
    def concatenated(parts: Sequence[Trajectory]) -> Trajectory:
        """Copy trajectories of equal length, all with or all without `weight`, `chosen` and `mask`, side by side into
        a new one."""
        dims = {name: int(name != "weight") for name, each in vars(parts[0]).items() if isinstance(each, Tensor)}
        del dims["obs"]
        joined = {name: torch.cat([getattr(part, name) for part in parts], dim) for name, dim in dims.items()}
        joined["obs"] = torch.cat([part.obs.movedim(2, -1) for part in parts], 1).movedim(-1, 2)  # keeps the format
        state = {name: torch.cat([part.state[name] for part in parts]) for name in parts[0].state}
        return Trajectory(**joined, state=state, finals=merged_finals(parts))


@dataclass(frozen=True)
class Packed:
    """A trajectory in transit between hosts: arrays, which are pickled out of band."""

    arrays: dict[str, Array]  # the trajectory's tensors by name; observations channels last
    state: dict[str, Array]
    finals: tuple[tuple[int, int, Array, dict[str, Array], float], ...]

    @property
    def nbytes(self) -> int:
        """Bytes in transit, without what the pickle adds."""
        finals = [array for _, _, obs, state, _ in self.finals for array in (obs, *state.values())]
        return sum(array.nbytes for array in (*self.arrays.values(), *self.state.values(), *finals))

    @staticmethod
    def of(trajectory: Trajectory) -> Packed:
        """A copy of the trajectory, whose memory is then free for the next one."""
        arrays = {each.name: getattr(trajectory, each.name) for each in fields(trajectory)}
        arrays["obs"] = trajectory.obs.movedim(2, -1)
        finals = tuple(
            (each.t, each.b, each.obs.cpu().numpy().copy(), _arrays(each.state), each.value)
            for each in trajectory.finals
        )
        return Packed(_arrays(arrays), _arrays(trajectory.state), finals)

    def trajectory(self) -> Trajectory:
        """The trajectory, on the host: a copy, because received arrays may be read-only."""
        tensors = {name: torch.tensor(array) for name, array in self.arrays.items()}
        tensors["obs"] = tensors["obs"].movedim(-1, 2)
        finals = [
            Final(t, b, torch.tensor(obs), {k: torch.tensor(v) for k, v in state.items()}, value)
            for t, b, obs, state, value in self.finals
        ]
        state = {name: torch.tensor(array) for name, array in self.state.items()}
        return Trajectory(**tensors, state=state, finals=finals)

    def unpack(self, slot: Trajectory) -> None:
        """Copy the trajectory into a slot. Raises `ValueError` if it has another shape."""
        for name, array in self.arrays.items():
            into = slot.obs.movedim(2, -1) if name == "obs" else getattr(slot, name)
            if into is None:
                raise ValueError(f"a trajectory with {name}, for which the slot has no memory")
            if into.shape != array.shape:
                raise ValueError(f"a trajectory whose {name} is {array.shape}, not {tuple(into.shape)}")
            into.copy_(torch.from_numpy(array))
        for name, array in self.state.items():
            slot.state[name].copy_(torch.from_numpy(array))
        slot.finals[:] = [
            Final(t, b, _tensor(obs, slot), {k: _tensor(v, slot) for k, v in state.items()}, value)
            for t, b, obs, state, value in self.finals
        ]


def _tensor(array: Array, slot: Trajectory) -> Tensor:
    """The array on the slot's device."""
    return torch.from_numpy(array).to(slot.obs.device)


def _arrays(tree: Mapping[str, Any]) -> dict[str, Array]:
    """The tensors of a tree, copied to arrays."""
    return {name: each.cpu().numpy().copy() for name, each in tree.items() if isinstance(each, Tensor)}


def first_episode(begins: Tensor) -> Tensor:
    """The steps [T, W] of each window that belong to the episode of its first one. `begins` [T, W]: as in
    `Trajectory`."""
    later = begins.clone()
    later[0] = False
    return later.cumsum(0) == 0


def merged_finals(parts: Sequence[Trajectory]) -> list[Final]:
    """The final observations of trajectories that lie side by side."""
    found, first = [], 0
    for part in parts:
        found += [replace(final, b=first + final.b) for final in part.finals]
        first += part.num_envs
    return found


class Rollout(NamedTuple):
    """Names what an actor has filled in one claim, on its way to a learner."""

    actor: int  # its rank
    life: int  # restarts of its host; -1: it is of an earlier session of the run
    number: int  # of the actor's rollouts in this life
    position: int  # environment steps in the run's budget before it
    steps: int  # environment steps in it


@dataclass(frozen=True)
class Batch:
    """Trajectories for one update."""

    data: Trajectory
    fresh: int  # environment steps that reach the learner with it and have not been counted as learned from before
    position: int  # environment steps in the run's budget before it; of a drawn batch: when it was drawn
    key: int = 0  # in the experience
    waiting: int | None = None  # further batches that are ready; None without a queue
    windows: Tensor | None = None  # [W] int64  keys of its last W trajectories, which are from replay memories
    rollouts: tuple[Rollout, ...] = ()  # of other workers, that `fresh` counts

    @property
    def own(self) -> bool:
        """Whether its trajectories are those of the worker's own environments, in their order."""
        return self.windows is None and self.waiting is None


class NoBatch(Enum):
    """Why there is no batch."""

    YET = "yet"  # act first, then ask again
    END = "end"  # there will be no more


@dataclass(frozen=True)
class Updated:
    """Result of an update with one batch."""

    metrics: dict[str, float]  # means over its optimizer steps
    priority: Tensor | None = None  # [B]  new priorities of the batch's trajectories, for a replay memory


def on_host(tree: Tree) -> Tree:
    """Copy a tree's tensors to host memory; tensors that are there already are not copied."""
    if isinstance(tree, dict):
        return {key: on_host(leaf) for key, leaf in tree.items()}
    return tree.cpu() if isinstance(tree, Tensor) else tree


def copied(tree: Tree) -> Tree:
    """Copy a tree with its tensors and arrays."""
    if isinstance(tree, dict):
        return {key: copied(leaf) for key, leaf in tree.items()}
    if isinstance(tree, list):
        return [copied(leaf) for leaf in tree]
    if isinstance(tree, Tensor):
        return tree.clone()
    return tree.copy() if isinstance(tree, np.ndarray) else tree


def numpy_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Return the torch dtype of a NumPy dtype."""
    return torch.from_numpy(np.zeros(1, dtype)).dtype
