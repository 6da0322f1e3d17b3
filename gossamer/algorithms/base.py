"""What every algorithm promises, and what actor-critics share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from gossamer.data import Action, Trajectory
from gossamer.losses import Loss
from gossamer.networks import ActorCritic, TorsoFactory


@dataclass(frozen=True)
class Network:
    """Which torso, and how its inputs and weights begin."""

    torso: TorsoFactory
    input_scale: float = 1.0  # observations are multiplied by it (1/255 or 1/64 for bytes)
    centre: bool = False  # take the mean observation of random play off first
    orthogonal: bool = True  # else uniform +-1/sqrt(fan_in)
    dtype: torch.dtype | None = torch.float32  # the torso computes in it; None: see `machine.resolve_dtype`


@runtime_checkable
class Algorithm(Protocol):
    """Frozen data with four methods; the loops call them, in whatever place they run."""

    @property
    def gamma(self) -> float:
        """Discount, per step."""

    def model(self, obs_shape: tuple[int, ...], actions: int, network: Network) -> nn.Module:
        """A fresh network with this algorithm's heads, initialised from torch's global stream."""

    def act(self, model: nn.Module, obs: Tensor, rng: torch.Generator, *, greedy: bool = False) -> Action:
        """Actions for obs [B, *O]: sampled, or the best one."""

    def value(self, model: nn.Module, obs: Tensor) -> Tensor:
        """Estimated return [B] from obs [B, *O]."""

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        """One loss for each step of the optimiser; the parameters have moved when the next is asked for."""


def actor_critic(obs_shape: tuple[int, ...], actions: int, network: Network) -> nn.Module:
    """A shared torso with a policy head and a value head."""
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
    """Act by the policy head: obs [B, *O] -> actions [B] ~ softmax(logits), or their argmax."""
    logits, value = model(obs)
    if greedy:
        action = logits.argmax(-1)
    else:
        # What torch.multinomial does, without its check: NaN logits must come as far as the loss, which reports them.
        pi = logits.softmax(-1)
        action = (pi / torch.empty_like(pi).exponential_(generator=rng)).argmax(-1)
    return Action(action=action, logits=logits, value=value)


@torch.no_grad()
def critic(model: nn.Module, obs: Tensor) -> Tensor:
    """The value head alone: obs [B, *O] -> [B]."""
    value: Tensor = model(obs)[1]
    return value
