"""A small model and a learner of it, for simulations of an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.optim import SGD

from gossamer.data import Tree
from gossamer.exchange import Gradient
from gossamer.exchange.flat import Flat

ELEMENTS = 16  # of a stand-in model


class Point(nn.Module):
    """A model with one parameter vector."""

    def __init__(self, elements: int = ELEMENTS) -> None:
        super().__init__()
        self.point = nn.Parameter(torch.zeros(elements))


@dataclass
class StandIn:
    """A learner as an exchange sees it."""

    model: nn.Module
    rate: float = 0.0

    def __post_init__(self) -> None:
        self._opt = SGD(self.model.parameters(), self.rate)

    @cached_property
    def flat(self) -> Flat:
        return Flat(self.model)

    def optimizer_state(self) -> Tree:
        """Its optimizer accumulates nothing."""
        return {}

    def load_optimizer(self, state: Tree) -> None:
        """See `optimizer_state`."""

    def statistics(self) -> list[Tensor]:
        """See `optimizer_state`."""
        return []

    def share_statistics(self, tensors: Sequence[Tensor]) -> None:
        """See `optimizer_state`."""

    def policy_outputs(self) -> None:
        """A stand-in has no policy."""

    def gradient(self, *, checked: bool = True) -> Gradient:
        """It clips nothing."""
        return Gradient(torch.zeros(()), True, torch.zeros(()))

    def apply(self) -> None:
        """One step of gradient descent."""
        self._opt.step()
