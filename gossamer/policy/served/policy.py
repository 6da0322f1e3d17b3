"""An actor's end of a served policy."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count

import torch
from torch import Tensor

from gossamer.data import Action, Tree, Version
from gossamer.policy.base import Source
from gossamer.policy.replica import NetworkPolicy, network_policy
from gossamer.policy.served.messages import Key, PolicyAnswer, Request, Welcome, Who
from gossamer.policy.served.network import RemoteNetwork
from gossamer.policy.served.presence import Presence
from gossamer.policy.served.requests import Requests
from gossamer.runtime import Context, Reaching, Stopped
from gossamer.spaces import Spec
from gossamer.system.machine import settle
from gossamer.task import Task


@dataclass(frozen=True)
class Served:
    """Predictors evaluate the network for all actors; an actor has none.

    Predictors take the newest parameters after they have taken a request. An actor acts only after its lease, which the
    learner's queue grants after the lease's parameters have been published: so actions come from these parameters or
    newer ones."""

    requests: Requests
    presence: Presence | None = None  # of the actors on this host, if the predictors are on another one

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
    ) -> ServedPolicy:
        """See `Policy`. Each group of an actor asks by itself."""
        asking = Asking(ctx, self.requests, task, self.presence, group)
        welcome = asking.join()
        asking.model = network = RemoteNetwork(asking, spec, welcome.initial, task.device)
        network.version = welcome.version
        return ServedPolicy(network_policy(ctx, task, num_envs, asking, state, group, spec.actions), network)


class Asking:
    """Sends the requests of a group of an actor and waits for the answers; the `Source` of its policy."""

    model: RemoteNetwork
    stays = False  # what it asks cannot be recorded

    def __init__(self, ctx: Context, requests: Requests, task: Task, presence: Presence | None, group: int) -> None:
        self._requests, self._device = requests, task.device
        self._packs, self._presence = presence is not None, presence if group == 0 else None
        self._who, self._numbers, self._reach = (
            Who(task.group_number(ctx.rank, group), ctx.restarts),
            count(1),
            Reaching(ctx),
        )

    def join(self) -> Welcome:
        """The actor begins. Waits for the first parameters; raises `Stopped` if the learner ends before."""
        welcome = self._reach(lambda: self._requests.join(self._who))
        if welcome is None:
            self.leave()
            raise Stopped("the learner ended before it had parameters")
        return welcome

    def __call__(self, request: Request) -> PolicyAnswer:
        """Raises `Stopped` if the learner has ended, or its host does not answer for `GONE` seconds."""
        settle(self._device)
        key, sent = Key(self._who, next(self._numbers)), request.packed() if self._packs else request
        reply = self._reach(lambda: self._requests.ask(key, sent))
        if reply is None:
            raise Stopped("the learner has ended")
        return reply.unpacked()

    @property
    def version(self) -> Version:
        """See `Source`."""
        return self.model.version

    def refresh(self) -> Version:
        """The version of the last answer: that of the next one is known only when it is there."""
        return self.model.version

    def leave(self) -> None:
        """The actor ends."""
        with suppress(Stopped):
            self._reach(lambda: self._requests.leave(self._who))
        if self._presence is not None:
            self._presence.leave()


@dataclass(frozen=True)
class ServedPolicy:
    """The policy of a network that predictors evaluate. The parameters may change in the middle of a rollout: each
    action has the version of those that chose it."""

    policy: NetworkPolicy
    network: RemoteNetwork  # of `policy`

    @property
    def version(self) -> Version:
        return self.network.version

    def refresh(self, position: int) -> Version:
        return self.policy.refresh(position)

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        self.network.acts = True
        action, state = self.policy(obs, state)
        version = torch.full((len(obs),), self.network.version, device=obs.device)
        return replace(action, version=version), state

    def initial_state(self, num_envs: int) -> Tree:
        return self.network.initial_state(num_envs)

    def recorded(self, state: Tree) -> Tree:
        return self.network.recorded(state)

    def value(self, obs: Tensor, state: Tree) -> Tensor:
        self.network.acts = False
        return self.policy.value(obs, state)

    def state_dict(self) -> Tree:
        return self.policy.state_dict()

    def beside(self) -> None:
        """There is no network here."""

    def close(self) -> None:
        self.policy.close()
