"""Where actions come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from gossamer.algorithms import Algorithm
from gossamer.data import Action, Tree, Version
from gossamer.exchange import Link


class Policy(Protocol):
    """Answers a batch of observations with actions."""

    def refresh(self) -> Version:
        """Take the newest parameters, where they come from elsewhere; their version."""

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        """obs [B, *O] and the recurrent state before it -> actions, and the state after."""

    def value(self, obs: Tensor, state: Tree) -> Tensor:
        """Estimated return [B] from obs [B, *O]."""


@dataclass(frozen=True)
class Replica:
    """A network of the actor's own, or the very one that learns beside it."""

    model: nn.Module
    algorithm: Algorithm
    link: Link
    rng: torch.Generator
    greedy: bool = False

    def refresh(self) -> Version:
        return self.link.refresh(self.model)

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        return self.algorithm.act(self.model, obs, self.rng, greedy=self.greedy), state

    def value(self, obs: Tensor, state: Tree) -> Tensor:
        return self.algorithm.value(self.model, obs)
