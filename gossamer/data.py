"""Data exchanged between components: frozen dataclasses of arrays and tensors, with shapes.

Legend, used everywhere in the package:

    T  steps of a rollout            t  time index; `_t` is what happened at t, time runs 0..T
    B  parallel environments         O  shape of one observation
    A  shape of one action           P  parameters of one distribution over actions
    K  environments of one worker process

A *step* is one decision of the agent in one environment; a *frame* is one frame of the emulator (4 to a step on Atari).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Tree: TypeAlias = Any  # nested dicts of tensors; may be empty
Array: TypeAlias = npt.NDArray[Any]
Version: TypeAlias = int  # number of updates that produced a set of parameters


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


@dataclass(frozen=True)
class Action:
    """Output of a policy for a batch of observations."""

    action: Tensor  # [B, *A]
    log_prob: Tensor  # [B]  ln mu(a), of the behaviour policy mu
    parameters: Tensor  # [B, P]  of the behaviour policy's distributions
    value: Tensor  # [B]  estimated return; zeros if the policy has no value head


@dataclass(frozen=True)
class Trajectory:
    """T steps of B environments. There is no `done`: `discount` is 0 at the end of an episode. If the episode was
    truncated, `reward` includes the discounted value of its final observation."""

    obs: Tensor  # [T+1, B, *O]  x_0 .. x_T
    action: Tensor  # [T, B, *A]  a_0 .. a_{T-1}
    reward: Tensor  # [T, B]  r_t for (x_t, a_t)
    discount: Tensor  # [T, B]  gamma * (1 - terminated)
    behaviour: Tensor  # [T, B]  ln mu(a_t), of the behaviour policy mu
    value: Tensor  # [T+1, B]  V(x_t) at acting time, so that on-policy learning needs no second forward pass for it
    begins: Tensor  # [T+1, B] bool  x_t is the first observation of an episode (not after a lost life without reset)
    state: Tree  # [B, ...]  recurrent state before x_0; empty without memory
    version: Tensor  # [B] int64  version of the behaviour policy's parameters

    @property
    def steps(self) -> int:
        """Environment steps, T * B."""
        return self.reward.numel()

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
            version=torch.zeros(envs, dtype=torch.int64, device=device),
        )

    def to(self, device: torch.device | str) -> Trajectory:
        """Copy the trajectory to another device."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        state = {name: each.to(device) for name, each in self.state.items()}
        return replace(self, **{k: v.to(device) for k, v in tensors.items() if isinstance(v, Tensor)}, state=state)


@dataclass(frozen=True)
class Batch:
    """Trajectories for one update, and their keys in the experience."""

    data: Trajectory
    keys: tuple[int, ...] = ()  # slots or replay entries


def on_host(tree: Tree) -> Tree:
    """Copy a tree's tensors to host memory; tensors that are there already are not copied."""
    if isinstance(tree, dict):
        return {key: on_host(leaf) for key, leaf in tree.items()}
    return tree.cpu() if isinstance(tree, Tensor) else tree


def numpy_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Return the torch dtype of a NumPy dtype."""
    return torch.from_numpy(np.zeros(1, dtype)).dtype
