"""Target networks: an older copy of a network, inside it, so that checkpoints include it."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

PREFIX = "target."  # of its parameters' names in the network's


class Target(nn.Module):
    """A copy of a network that is not trained. Each learner keeps its own: exchanges leave it out, since actors do not
    need it, and learners copy it from parameters that they have exchanged."""

    exchanged = False
    age: Tensor

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = deepcopy(model).requires_grad_(False)
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))  # [] calls of `used` since the last copy

    def train(self, mode: bool = True) -> Target:
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def used(self, model: nn.Module, period: int) -> nn.Module:
        """Return the copy, which is renewed from `model` in the first of every `period` calls."""
        if int(self.age) == 0:
            source = model.state_dict()
            for name, tensor in self.model.state_dict().items():
                tensor.copy_(source[name])
        self.age.copy_((self.age + 1) % period)
        return self.model


def add_target(model: nn.Module) -> None:
    """Give a network a target network."""
    model.target = Target(model)


def target_of(model: nn.Module, period: int) -> nn.Module:
    """The network's target network, copied every `period` calls; with period 0 the network itself."""
    target = getattr(model, "target", None) if period else None
    return target.used(model, period) if isinstance(target, Target) else model
