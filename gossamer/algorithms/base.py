"""Protocol of algorithms, and functions shared by actor-critics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from gossamer.data import Action, Trajectory
from gossamer.distributions import Space
from gossamer.losses import Loss
from gossamer.networks import ActorCritic, TorsoFactory


@dataclass(frozen=True)
class Network:
    """A torso, its input scaling, initialisation and precision."""

    torso: TorsoFactory
    input_scale: float = 1.0  # factor of observations (1/255 or 1/64 for bytes)
    centre: bool = False  # subtract the mean observation of random play first
    orthogonal: bool = True  # initialisation; otherwise uniform +-1/sqrt(fan_in)
    dtype: torch.dtype | None = torch.float32  # compute dtype of the torso; None: see `machine.resolve_dtype`


@runtime_checkable
class Algorithm(Protocol):
    """Frozen hyperparameters and four methods, which the worker loops call."""

    @property
    def gamma(self) -> float:
        """Discount per step."""

    def model(self, obs_shape: tuple[int, ...], actions: Space, network: Network) -> nn.Module:
        """Create a network with this algorithm's heads, initialised from torch's global generator."""

    def act(self, model: nn.Module, obs: Tensor, rng: torch.Generator, *, greedy: bool = False) -> Action:
        """Select actions for obs [B, *O]: sampled, or the most probable ones if `greedy`."""

    def value(self, model: nn.Module, obs: Tensor) -> Tensor:
        """Estimate the return [B] from obs [B, *O]."""

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        """Yield one loss per optimiser step. The caller takes the step before it requests the next loss."""


def actor_critic(obs_shape: tuple[int, ...], actions: Space, network: Network) -> nn.Module:
    """Create a shared torso with a policy head and a value head."""
    return ActorCritic(
        obs_shape,
        actions,
        network.torso,
        scale=network.input_scale,
        orthogonal=network.orthogonal,
        compute_dtype=network.dtype or torch.float32,
    )


@torch.no_grad()
def sample(model: nn.Module, obs: Tensor, rng: torch.Generator, *, greedy: bool = False) -> Action:
    """Select actions [B, *A] for obs [B, *O]: sampled, or the most probable ones if `greedy`."""
    policy, value = model(obs)
    action = policy.mode() if greedy else policy.sample(rng)
    return Action(action=action, log_prob=policy.log_prob(action), parameters=policy.parameters, value=value)


@torch.no_grad()
def critic(model: nn.Module, obs: Tensor) -> Tensor:
    """Evaluate the value head: obs [B, *O] -> [B]."""
    value: Tensor = model(obs)[1]
    return value
