"""Policies: from observations to actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from gossamer.algorithms import Algorithm
from gossamer.algorithms.base import initial_state
from gossamer.data import Action, Tree, Version


class Policy(Protocol):
    """Selects actions for batches of observations."""

    def refresh(self) -> Version:
        """Update to the newest parameters and return their version."""

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        """Map obs [B, *O] and the recurrent state before it to actions and the state after it."""

    def initial_state(self, num_envs: int) -> Tree:
        """The recurrent state [B, ...] at the start of an episode; empty without memory."""

    def value(self, obs: Tensor, state: Tree) -> Tensor:
        """Estimate the return [B] from obs [B, *O] and the recurrent state before it."""


class Source(Protocol):
    """Where a replica's parameters come from: a learner's own link, or a `Follower`."""

    def refresh(self, model: nn.Module) -> Version:
        """Update the replica to the newest parameters and return their version."""


@dataclass(frozen=True)
class Replica:
    """A policy network: a copy that belongs to the actor, or the learner's own network."""

    model: nn.Module
    algorithm: Algorithm
    source: Source
    rng: torch.Generator
    greedy: bool = False

    def refresh(self) -> Version:
        return self.source.refresh(self.model)

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        return self.algorithm.act(self.model, obs, state, self.rng, greedy=self.greedy)

    def initial_state(self, num_envs: int) -> Tree:
        return initial_state(self.model, num_envs)

    def value(self, obs: Tensor, state: Tree) -> Tensor:
        return self.algorithm.value(self.model, obs, state)
