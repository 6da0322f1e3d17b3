"""An exchange is the optimiser step with other members in it; because it wraps, exchanges compose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import nn
from torch.optim import Optimizer

from gossamer.data import Version
from gossamer.exchange.gossip.records import PolicyOutputs, Record
from gossamer.program import Context


class Learning(Protocol):
    """What an exchange sees of a member that learns."""

    model: nn.Module
    steps: int  # environment steps learned from

    def policy_outputs(self) -> PolicyOutputs | None:
        """The present policy on the reference observations; None for a member without a policy."""


class Exchange(Protocol):
    """One member's end of it."""

    def join(self, ctx: Context, learner: Learning) -> None:
        """Take part, before the first `apply`."""

    def leave(self) -> None:
        """Take part no more; others must not wait for this member from now on."""

    def take(self) -> tuple[Record, ...]:
        """What is worth reporting since the last call."""

    def refresh(self, model: nn.Module) -> Version:
        """Bring a replica that does not learn up to date; the version of its parameters."""

    def apply(self, model: nn.Module, opt: Optimizer) -> None:
        """Gradients are in `.grad`; leave `model` at this member's next parameters."""


@dataclass
class Alone:
    """One learner that also acts: nobody to exchange with (A2C, PAAC)."""

    version: Version = 0

    def join(self, ctx: Context, learner: Learning) -> None: ...
    def leave(self) -> None: ...
    def take(self) -> tuple[Record, ...]:
        return ()

    def refresh(self, model: nn.Module) -> Version:
        return self.version

    def apply(self, model: nn.Module, opt: Optimizer) -> None:
        opt.step()
        self.version += 1
