"""An exchange is the optimiser step with other members in it; because it wraps, exchanges compose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import nn
from torch.optim import Optimizer

from gossamer.data import Version


class Exchange(Protocol):
    """One member's end of it."""

    def refresh(self, model: nn.Module) -> Version:
        """Bring a replica that does not learn up to date; the version of its parameters."""

    def apply(self, model: nn.Module, opt: Optimizer) -> None:
        """Gradients are in `.grad`; leave `model` at this member's next parameters."""


@dataclass
class Alone:
    """One learner that also acts: nobody to exchange with (A2C, PAAC)."""

    version: Version = 0

    def refresh(self, model: nn.Module) -> Version:
        return self.version

    def apply(self, model: nn.Module, opt: Optimizer) -> None:
        opt.step()
        self.version += 1
