"""An exchange wraps the optimizer step and adds communication with other members. Exchanges can be nested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol, TypeAlias

from torch import Tensor, nn

from gossamer.data import Tree, Version
from gossamer.exchange.flat import Flat
from gossamer.exchange.gossip.records import PolicyOutputs, Record
from gossamer.runtime import Context


@dataclass(frozen=True)
class Gradient:
    """The gradient of a learner's parameters, clipped and ready for a step. It lies in `.grad`; `Flat.gradient` returns
    it as one vector."""

    norm: Tensor  # []  global L2 norm before clipping
    finite: bool  # whether loss and gradient are finite, see `LocalStep`; otherwise nothing must be done with it
    loss: Tensor  # []  that it is the gradient of


class Dropped(Enum):
    """Why a gradient has changed no parameters."""

    STALE = "stale"  # its parameters were too old
    OUTLIER = "outlier"  # its loss was too large
    LOST = "lost"  # no shard of the server answered
    REPLACED = "replaced"  # the state of other hosts took the place of its parameters


@dataclass(frozen=True)
class Stepped:
    """Result of a step."""

    norm: Tensor  # []  global L2 norm of the gradient before clipping
    finite: bool  # whether loss and gradient were finite, see `LocalStep`; if not, the parameters are unchanged
    waited: float = 0.0  # seconds until the gradients of other learners were there
    staleness: int | None = None  # between the gradient's parameters and those that it changed, in versions
    dropped: Dropped | None = None  # why it changed none


class LocalStep(Protocol):
    """The two halves of a learner's own step. An exchange may act between them, or leave the second one out."""

    def gradient(self, *, checked: bool = True) -> Gradient:
        """Clip the gradients in `.grad`. Unless `checked`, they may not be finite although `Gradient.finite` says so:
        then `apply` changes nothing, and the learner raises its error after the batch. This saves waiting for a GPU at
        each step. It is for a caller that does nothing with the gradients but `apply` them."""

    def apply(self) -> None:
        """Take one optimizer step along the gradients in `.grad`."""


OnStep: TypeAlias = Callable[[], None]  # called after each step that has changed the parameters


def unheard() -> None:
    """An `OnStep` that does nothing."""


class Learning(Protocol):
    """The part of a learner that an exchange uses."""

    model: nn.Module
    rate: float  # learning rate of the next step

    @property
    def flat(self) -> Flat:
        """The learner's flat parameter buffer; nested exchanges share it."""

    def optimizer_state(self) -> Tree:
        """A copy of what the optimizer has accumulated; empty before the first step."""

    def load_optimizer(self, state: Tree) -> None:
        """Copy what another optimizer of the same parameters has accumulated."""

    def statistics(self) -> list[Tensor]:
        """What the optimizer accumulates: its own tensors, in the order of its parameters. Made if there are none."""

    def share_statistics(self, tensors: Sequence[Tensor]) -> None:
        """Let the optimizer accumulate in these tensors, in place of those of `statistics`."""

    def policy_outputs(self) -> PolicyOutputs | None:
        """The current policy's outputs on the reference observations; None for a member without a policy."""


class Exchange(Protocol):
    """Frozen configuration of an exchange; `join` creates one member's `Link`."""

    @property
    def group(self) -> int | None:
        """Number of this member's group. The members of a group keep equal parameters, so that one of them stands for
        all. None: it is in no group, and has parameters of its own."""

    def begin(self, ctx: Context) -> None:
        """A member has started. It joins when its environments and its network are there, which may take minutes."""

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None, on_step: OnStep = unheard) -> Link:
        """Join the exchange before the first step. `state`: the result of `Link.state_dict`, or None at a fresh start;
        a state with only `iteration` gives the progress of the other members. `on_step` is called after each step of
        the link, also after one that it takes for other members outside of `Link.step`."""


class Recordable(Enum):
    """What of a learner's work may be recorded as CUDA graphs."""

    STEP = "step"  # all: a step is the local one, with nothing before it or between its halves
    PASS = "pass"  # losses and gradients
    NOTHING = "nothing"  # the parameters move in memory


class Link(Protocol):
    """One member's connection to an exchange."""

    @property
    def version(self) -> Version:
        """Version of the learner's parameters, without an update of them."""

    @property
    def recordable(self) -> Recordable:
        """What may be recorded on a GPU (`workers.recorded`)."""

    def step(self, local: LocalStep) -> Stepped:
        """Compute the member's next parameters. An exchange acts before the local step (gradient averaging), after it
        (gossip) or instead of it (parameter server). Nothing is sent after a non-finite step."""

    def finish(self, local: LocalStep) -> None:
        """The member has nothing more to learn from. Take the steps that others still take together with it."""

    def refresh(self) -> Version:
        """Return the version of the learner's parameters. An exchange whose parameters live elsewhere updates them
        first."""

    def take(self) -> tuple[Record, ...]:
        """Return the records since the last call."""

    def leave(self) -> None:
        """Leave the exchange. Other members no longer wait for this one."""

    def state_dict(self) -> Tree:
        """Return the state that `join` resumes from."""


@dataclass(frozen=True)
class Alone:
    """A single actor-learner without communication (PAAC)."""

    @property
    def group(self) -> int | None:
        return None

    def begin(self, ctx: Context) -> None: ...

    def join(self, ctx: Context, learner: Learning, state: Tree | None = None, on_step: OnStep = unheard) -> Link:
        return AloneLink(int((state or {}).get("iteration", 0)), on_step)


@dataclass
class AloneLink:
    """Counts the local steps."""

    version: Version = 0
    on_step: OnStep = unheard
    recordable: ClassVar = Recordable.STEP

    def step(self, local: LocalStep) -> Stepped:
        gradient = local.gradient(checked=False)
        if gradient.finite:
            local.apply()
            self.version += 1
            self.on_step()
        return Stepped(gradient.norm, gradient.finite)

    def finish(self, local: LocalStep) -> None: ...

    def refresh(self) -> Version:
        return self.version

    def take(self) -> tuple[Record, ...]:
        return ()

    def leave(self) -> None: ...
    def state_dict(self) -> Tree:
        return {"iteration": self.version}
