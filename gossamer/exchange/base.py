"""An exchange is the optimiser step with other members in it; because it wraps, exchanges compose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from torch import Tensor, nn

from gossamer.data import Tree, Version
from gossamer.exchange.flat import Flat
from gossamer.exchange.gossip.records import PolicyOutputs, Record
from gossamer.program import Context


@dataclass(frozen=True)
class Stepped:
    """What a local step did."""

    norm: Tensor  # []  of the gradient before clipping, global L2
    finite: bool  # whether loss and gradient were; if not, the parameters are as they were before


LocalStep: TypeAlias = Callable[[], Stepped]  # clip the gradients in `.grad`, and take one step of the optimiser


class Learning(Protocol):
    """What an exchange sees of a learner."""

    model: nn.Module

    @property
    def flat(self) -> Flat:
        """The learner's only flat buffer of parameters; exchanges within each other share it."""

    def policy_outputs(self) -> PolicyOutputs | None:
        """The present policy on the reference observations; None for a member without a policy."""


class Exchange(Protocol):
    """Frozen data that is wired; `join` makes one member's live end of it."""

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None) -> Link:
        """Take part, before the first step. `state`: what `Link.state_dict` gave, or None at a fresh start; a state
        with nothing but `iteration` says how far the others are."""


class Link(Protocol):
    """One member's live end of an exchange."""

    def step(self, local: LocalStep) -> Stepped:
        """Take the member to its next parameters. A wrapper acts before the local step (averages gradients), after it
        (gossip) or in its place (server). After a step that was not finite nothing is sent."""

    def refresh(self, model: nn.Module) -> Version:
        """Bring a replica that does not learn up to date; the version of its parameters."""

    def take(self) -> tuple[Record, ...]:
        """Records since the last call."""

    def leave(self) -> None:
        """Take part no more; others do not wait for this member from now on."""

    def state_dict(self) -> Tree:
        """What `join` continues from."""


@dataclass(frozen=True)
class Alone:
    """One learner that also acts and exchanges nothing (PAAC)."""

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None) -> Link:
        return AloneLink(int((state or {}).get("iteration", 0)))


@dataclass
class AloneLink:
    """Counts the local steps."""

    version: Version = 0

    def step(self, local: LocalStep) -> Stepped:
        stepped = local()
        self.version += stepped.finite
        return stepped

    def refresh(self, model: nn.Module) -> Version:
        return self.version

    def take(self) -> tuple[Record, ...]:
        return ()

    def leave(self) -> None: ...
    def state_dict(self) -> Tree:
        return {"iteration": self.version}
