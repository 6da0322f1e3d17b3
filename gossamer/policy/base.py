"""Protocols of policies: from observations to actions. A `Policy` is configuration; `join` creates an actor's end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from gossamer.data import Action, Tree, Version
from gossamer.exchange import Link, Recordable
from gossamer.runtime import Context
from gossamer.spaces import Spec
from gossamer.task import Task


class ActorPolicy(Protocol):
    """An actor's end of a policy: selects actions for batches of observations."""

    @property
    def version(self) -> Version:
        """Version of the parameters, as of the last `refresh`."""

    def refresh(self, position: int) -> Version:
        """Prepare for a rollout: take the newest parameters and return their version. `position`: environment steps in
        the run's budget before the rollout; exploration may depend on it."""

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        """Map obs [B, *O] and the state before it to actions and the state after it."""

    def initial_state(self, num_envs: int) -> Tree:
        """The state [B, ...] at the start of an episode; empty without memory. It is the recurrent state, or stands for
        one that is kept elsewhere."""

    def recorded(self, state: Tree) -> Tree:
        """The recurrent state [B, ...] that `state` is or stands for, to be kept with a trajectory: the initial one, or
        the one of the last call of `value`."""

    def value(self, obs: Tensor, state: Tree) -> Tensor:
        """Estimate the return [B] from obs [B, *O] and the state before it."""

    def state_dict(self) -> Tree:
        """What the next actions depend on besides parameters and observations; `Policy.join` restores it."""

    def beside(self) -> Source | None:
        """Its network, for a policy of other environments of the same actor; None: without a network."""

    def close(self) -> None:
        """The actor ends."""


class Source(Protocol):
    """A network for an actor, and where its parameters come from: a learner or another actor in the same worker, a
    `Follower` or a server."""

    @property
    def model(self) -> nn.Module:
        """The network."""

    @property
    def version(self) -> Version:
        """Version of its parameters, as of the last `refresh`."""

    @property
    def stays(self) -> bool:
        """Whether the parameters stay where they are in a GPU's memory, so that work with them can be recorded."""

    def refresh(self) -> Version:
        """Update the network to the newest parameters and return their version."""

    def leave(self) -> None:
        """The actor ends."""


@dataclass(frozen=True)
class OwnNetwork:
    """The network of a learner in the same worker."""

    model: nn.Module
    link: Link  # of the learner
    version: Version = 0  # before the first `refresh`: the actor's random streams go on with the learner's state

    @property
    def stays(self) -> bool:
        """See `Source`."""
        return self.link.recordable is not Recordable.NOTHING

    def refresh(self) -> Version:
        """See `Source`."""
        return self.link.refresh()

    def leave(self) -> None:
        """The learner leaves by itself."""


class Policy(Protocol):
    """Frozen configuration of where an actor's actions come from."""

    def join(
        self,
        ctx: Context,
        task: Task,
        spec: Spec,
        num_envs: int,
        own: Source | None = None,
        state: Tree | None = None,
        *,
        group: int = 0,
    ) -> ActorPolicy:
        """Create the end of an actor with so many environments. May block until there are parameters. `own`: the
        network of a learner or of another actor in the same worker; `state`: the result of `ActorPolicy.state_dict`;
        `group`: of the worker's `Task.groups`. Raises `Stopped` if the learner has ended before it had parameters."""
