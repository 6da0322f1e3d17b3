"""Policies of networks in the actors' own process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn

from gossamer.algorithms import Algorithm
from gossamer.algorithms.base import Acting, exploring, initial_state
from gossamer.data import Action, Tree, Version
from gossamer.envs.base import places
from gossamer.exchange import Follower, Parameters, ParameterShard, Pulling
from gossamer.exchange.flat import Flat
from gossamer.policy.base import Source
from gossamer.policy.outputs import Evaluated, evaluated
from gossamer.runtime import Context
from gossamer.spaces import Space, Spec
from gossamer.system.graphs import Repeated
from gossamer.system.machine import single_threaded
from gossamer.task import Task

_SEEDING = threading.Lock()  # torch initialises from one global random stream, which members of a process share


@dataclass(frozen=True)
class Replica:
    """Each actor evaluates a network of its own: a copy that follows a learner, or the very network that learns."""

    parameters: Parameters | None = None  # of the learner that it follows; None: the learner in the same worker

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
    ) -> NetworkPolicy:
        """See `Policy`."""
        if own is None:
            assert self.parameters is not None, "a replica without parameters to follow needs a network of its worker"
            own = Follower(self.parameters, build(task, spec))
        return network_policy(ctx, task, num_envs, own, state, group, spec.actions)


@dataclass(frozen=True)
class PulledReplica:
    """Each actor evaluates a network of its own, with the parameters of a server."""

    shards: Sequence[ParameterShard]

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
    ) -> NetworkPolicy:
        """See `Policy`."""
        if own is None:
            model = build(task, spec)
            own = pulling = Pulling(ctx, self.shards, Flat(model), model, learns=False)
            pulling.wait()
        return network_policy(ctx, task, num_envs, own, state, group, spec.actions)


def network_policy(
    ctx: Context,
    task: Task,
    num_envs: int,
    source: Source,
    state: Tree | None,
    group: int,
    actions: Space,
) -> NetworkPolicy:
    """The policy of a group of an actor, whose parameters come from `source`."""
    number, version = task.group_number(ctx.rank, group), source.version
    rng = task.generator(f"act{life(ctx, version)}", number)
    if state is not None:
        task.restore(rng, state["rng"], f"act {source.refresh()}", number)
    first = number * num_envs
    seats = Seats([first + place for place in places(task.env, num_envs)], ctx.copies * task.groups * num_envs)
    records = actions if task.records and source.stays else None
    return NetworkPolicy(
        source.model, task.algorithm, rng, source=source, version=version, seats=seats, recorded_for=records
    )


@dataclass(frozen=True)
class Seats:
    """An actor's environments among those of all actors. Environments of several games may share one index."""

    indices: Sequence[int] = range(1)
    total: int = 1


@dataclass(frozen=True)
class _Repeated:
    """What a policy does on a GPU, recorded."""

    act: Repeated[tuple[Action, Tree]]
    value: Repeated[Tensor]
    network: nn.Module  # stands in for the network


@dataclass
class NetworkPolicy:
    """The policy of a network in this process."""

    model: nn.Module
    algorithm: Algorithm
    rng: torch.Generator
    greedy: bool = False
    source: Source | None = None  # of newer parameters; None: they do not change
    version: Version = 0
    seats: Seats = field(default_factory=Seats)
    recorded_for: Space | None = None  # these actions: steps are recorded on a GPU; None: they are not

    def __post_init__(self) -> None:
        self._acting: Acting = self.algorithm
        self._repeated = None if self.recorded_for is None else self._recordings(self.recorded_for)

    def _recordings(self, actions: Space) -> _Repeated:
        evaluate = Repeated(partial(evaluated, self.model), self.model, records=True)
        return _Repeated(
            act=Repeated(self._choose, self.model, records=True, rngs=[self.rng]),
            value=Repeated(partial(self.algorithm.value, self.model), self.model, records=True),
            network=Evaluated(self.model, evaluate, actions),
        )

    def refresh(self, position: int) -> Version:
        if self.source is not None:
            self.version = self.source.refresh()
        self._acting = exploring(self.algorithm, position, self.seats.indices, self.seats.total, self.version)
        return self.version

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        model = self.model
        if self._repeated is not None:
            if self._acting is self.algorithm:
                return self._repeated.act(obs, state)
            model = self._repeated.network  # exploration changes
        return self._acting.act(model, obs, state, self.rng, greedy=self.greedy)

    def _choose(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        return self.algorithm.act(self.model, obs, state, self.rng, greedy=self.greedy)

    def initial_state(self, num_envs: int) -> Tree:
        return initial_state(self.model, num_envs)

    def recorded(self, state: Tree) -> Tree:
        return state

    def value(self, obs: Tensor, state: Tree) -> Tensor:
        if self._repeated is not None:
            return self._repeated.value(obs, state)
        return self.algorithm.value(self.model, obs, state)

    def state_dict(self) -> Tree:
        return {"rng": self.rng.get_state()}

    def beside(self) -> Beside:
        return Beside(self)

    def close(self) -> None:
        if self.source is not None:
            self.source.leave()


@dataclass(frozen=True)
class Beside:
    """The network of another policy in the same worker, with the parameters of that one's last `refresh`."""

    policy: NetworkPolicy

    @property
    def model(self) -> nn.Module:
        return self.policy.model

    @property
    def version(self) -> Version:
        return self.policy.version

    @property
    def stays(self) -> bool:
        return self.policy.recorded_for is not None

    def refresh(self) -> Version:
        return self.policy.version

    def leave(self) -> None:
        """The other policy leaves by itself."""


def build(task: Task, spec: Spec) -> nn.Module:
    """Create the task's network on its device, in evaluation mode, with initial parameters common to all members.

    One thread computes them: the last bits of an orthogonal matrix depend on the number of threads."""
    with _SEEDING, torch.random.fork_rng(devices=[]), single_threaded():
        torch.manual_seed(task.stream("model"))
        model = task.algorithm.model(spec, replace(task.network, dtype=task.dtype(pictures=spec.pixels)))
    return model.to(task.device).eval()


def life(ctx: Context, version: Version = 0) -> str:
    """A name for this life of an actor, for its random streams: actors of a resumed run or a restarted host act anew.
    `version`: of the parameters that it begins with."""
    return f" {version}" * bool(version) + f" {ctx.restarts}" * bool(ctx.restarts)
