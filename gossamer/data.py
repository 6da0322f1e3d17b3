"""What flows between the parts: frozen dataclasses of arrays and tensors, one field a line, its shape beside it.

Legend, used everywhere in the package:

    T  steps of a rollout            t  a step; `_t` is what happened at t, time runs 0..T
    B  environments side by side     O  shape of one observation
    A  number of actions             K  environments of one worker process

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

Tree: TypeAlias = Any  # nested dicts of tensors; an empty dict where there is nothing
Array: TypeAlias = npt.NDArray[Any]
Version: TypeAlias = int  # how many updates a set of parameters has seen


@dataclass(frozen=True)
class Step:
    """What a vector of environments answers to one action each (NumPy, on the host)."""

    obs: Array  # [B, *O]  the next observation; of the new episode where one has just begun
    reward: Array  # [B] float32  as learned from (clipped, where the preset says so)
    score: Array  # [B] float32  as the game gave it
    terminated: Array  # [B] bool  the future is worth nothing from here on
    truncated: Array  # [B] bool  cut short by a limit: the future still has its value
    over: Array  # [B] bool  a new episode has begun (a lost life may terminate without one)
    final_obs: Array | None  # [B, *O]  last observation before autoreset, valid where `truncated`


@dataclass(frozen=True)
class Action:
    """What a policy answers to a batch of observations."""

    action: Tensor  # [B] int64
    logits: Tensor  # [B, A]  of the policy that acted
    value: Tensor  # [B]  its estimate of the return, zeros where it has none


@dataclass(frozen=True)
class Trajectory:
    """T steps of B environments. There is no `done`: `discount` carries termination, and where an episode was cut
    short its final observation's discounted value is already part of `reward` (discount 0)."""

    obs: Tensor  # [T+1, B, *O]  x_0 .. x_T
    action: Tensor  # [T, B] int64  a_0 .. a_{T-1}
    reward: Tensor  # [T, B]  r_t for (x_t, a_t)
    discount: Tensor  # [T, B]  gamma * (1 - terminated)
    behaviour: Tensor  # [T, B, A]  logits of the policy that acted
    value: Tensor  # [T+1, B]  V(x_t) of the policy that acted: on policy, no second forward pass is needed
    state: Tree  # [B, ...]  recurrent state before x_0
    version: Tensor  # [B] int64  of the parameters that acted

    @property
    def steps(self) -> int:
        """Environment steps in it, T * B."""
        return self.action.numel()

    @staticmethod
    def empty(
        rollout: int,
        envs: int,
        obs_shape: Sequence[int],
        obs_dtype: torch.dtype,
        actions: int,
        device: torch.device | str = "cpu",
    ) -> Trajectory:
        """A slot to be filled in place: allocated once, used for the whole run. Pictures lie channels last in memory,
        as convolutions want them, so that the bytes are put in order once, when acting."""
        steps = (rollout, envs)
        channels, *plane = obs_shape
        obs = torch.zeros((rollout + 1, envs, *plane, channels), dtype=obs_dtype, device=device)
        return Trajectory(
            obs=obs.movedim(-1, 2),
            action=torch.zeros(steps, dtype=torch.int64, device=device),
            reward=torch.zeros(steps, device=device),
            discount=torch.zeros(steps, device=device),
            behaviour=torch.zeros((*steps, actions), device=device),
            value=torch.zeros((rollout + 1, envs), device=device),
            state={},
            version=torch.zeros(envs, dtype=torch.int64, device=device),
        )

    def to(self, device: torch.device | str) -> Trajectory:
        """The same trajectory on another device."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v.to(device) for k, v in tensors.items() if isinstance(v, Tensor)})


@dataclass(frozen=True)
class Batch:
    """What a learner takes at once: trajectories side by side, and what the experience must know of them again."""

    data: Trajectory
    keys: tuple[int, ...] = ()  # which slots or replay entries these are


def on_host(tree: Tree) -> Tree:
    """The tree with its tensors in host memory, where any process can read them."""
    if isinstance(tree, dict):
        return {key: on_host(leaf) for key, leaf in tree.items()}
    return tree.cpu() if isinstance(tree, Tensor) else tree


def numpy_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """The torch dtype of a NumPy one."""
    return torch.from_numpy(np.zeros(1, dtype)).dtype
