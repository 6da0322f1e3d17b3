"""The learning problem, independent of its distribution over machines, and the records that a member reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from gossamer.algorithms import Algorithm, Network
from gossamer.data import Rollout
from gossamer.envs.base import EnvFactory
from gossamer.system.errors import EnvironmentFailed
from gossamer.system.machine import resolve_device, resolve_dtype
from gossamer.system.processes import cores


@dataclass(frozen=True)
class Optimization:
    """An optimizer and its learning-rate schedule over environment steps."""

    make: Callable[[ParamsT, float], Optimizer]  # see `StepRule.make`
    learning_rate: float
    anneal_steps: int  # environment steps until annealing ends; 0: constant learning rate
    final_fraction: float = 0.0  # fraction of the learning rate after annealing
    max_grad_norm: float = float("inf")  # global L2 norm to which gradients are clipped
    anneal_from: float = 0.0  # fraction of `anneal_steps` before annealing begins

    def progress(self, steps: int) -> float:
        """Return how far annealing has gone after `steps` environment steps, 0 to 1; 0 if there is none."""
        if self.anneal_steps == 0:
            return 0.0
        over = min(1.0, steps / self.anneal_steps)
        return max(0.0, over - self.anneal_from) / (1 - self.anneal_from)

    def rate(self, steps: int) -> float:
        """Return the learning rate after `steps` environment steps."""
        return self.learning_rate * (1 + (self.final_fraction - 1) * self.progress(steps))


@dataclass(frozen=True)
class Task:
    """One learning problem. Frozen data that is sent to every member."""

    env: EnvFactory
    algorithm: Algorithm
    network: Network
    optimization: Optimization
    rollout_length: int  # T, steps of each environment per rollout
    seed: int = 0
    device: str = "cpu"  # `auto`: see `resolved`
    threads: int = 0  # torch threads per member; 0: see `resolved`
    sharing: int = 0  # members that share a machine's cores; 0: `threads` 0 means torch's default
    groups: int = 1  # of each actor's environments: one steps while the actions of another are computed
    cuda_graphs: bool = True  # on a GPU
    gpu: int | None = 0  # number of the GPU, modulo the machine's GPUs, if `device` names none; None: the worker's rank
    around: bool = False  # whether `placed` has chosen the device

    def resolved(self) -> Task:
        """Resolve device and threads for the machine on which this is called."""
        threads = max(1, cores() // self.sharing) if self.sharing and not self.threads else self.threads
        return replace(self, device=resolve_device(self.device), threads=threads)

    def placed(self, rank: int) -> Task:
        """The task on the GPU of a worker of this rank: see `gpu`. For the device of `resolved`."""
        count = torch.cuda.device_count() if self.device == "cuda" else 0
        if count < 2:
            return self
        return replace(self, device=f"cuda:{(rank if self.gpu is None else self.gpu) % count}", around=True)

    def dtype(self, *, pictures: bool) -> torch.dtype:
        """What the torso computes in, on the device of `resolved`. `pictures`: whether observations have any."""
        return self.network.dtype or resolve_dtype(self.device, pictures=pictures)

    @property
    def records(self) -> bool:
        """Whether work is recorded as CUDA graphs, on the device of `resolved`."""
        return self.cuda_graphs and self.device.startswith("cuda")

    @property
    def gpus(self) -> float:
        """GPUs required on each host."""
        return 1.0 if resolve_device(self.device).startswith("cuda") else 0.0

    def group_number(self, rank: int, group: int) -> int:
        """The number of an actor's group of environments among those of all actors. A group has the random streams that
        an actor of this rank would have."""
        return rank * self.groups + group

    def stream(self, purpose: str, rank: int = 0) -> int:
        """Derive a separate 31-bit seed from `seed` for each purpose and member."""
        words = [self.seed, rank, *purpose.encode()]
        return int(np.random.SeedSequence(words).generate_state(1, np.uint32)[0] >> 1)  # emulators take a C int

    def generator(self, purpose: str, rank: int = 0) -> torch.Generator:
        """Create a generator on the task's device, seeded with `stream`."""
        return torch.Generator(self.device).manual_seed(self.stream(purpose, rank))

    def restore(self, rng: torch.Generator, state: Tensor, purpose: str, rank: int = 0) -> None:
        """Restore a random stream. If the state is of another kind of device, a stream for this purpose begins."""
        state = torch.as_tensor(state).cpu()
        if state.shape == rng.get_state().shape:
            rng.set_state(state)
        else:
            rng.manual_seed(self.stream(purpose, rank))


@dataclass(frozen=True)
class Episode:
    """A finished episode."""

    score: float  # undiscounted return, unclipped
    steps: int
    env: str = ""  # environment name
    index: int = 0  # index of the environment within its worker
    metrics: Mapping[str, float] = field(default_factory=dict)  # what the environment said of it, `envs.metrics`


@dataclass(frozen=True)
class WorkerReport:
    """A member's progress since its last report. Consumers log, print or plot it."""

    steps: int  # environment steps acted
    learned: int = 0  # environment steps learned from
    updates: int = 0  # optimizer steps
    episodes: tuple[Episode, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)  # means of the last update
    seconds: dict[str, float] = field(default_factory=dict)  # time spent in env, inference and update
    exchange: tuple[Any, ...] = ()  # the exchange's records, in order (`exchange.gossip.records`)
    failures: tuple[EnvironmentFailed, ...] = ()  # failures of environments that were restarted
    reused: int = 0  # environment steps learned from once more
    lag: dict[int, int] = field(default_factory=dict)  # policy lag in optimizer steps -> trajectories, of each update
    waiting: int | None = None  # full batches in the queue behind a new one; None without a queue, and for a reused one
    version: int | None = None  # of a learner's parameters after its last update; None of an actor
    staleness: dict[int, int] = field(default_factory=dict)  # of gradients, in a server's updates -> gradients applied
    dropped: dict[str, int] = field(default_factory=dict)  # why gradients were not applied -> gradients
    stored: int | None = None  # environment steps that a replay memory has taken; None: there is none
    drawn: int = 0  # environment steps drawn from replay memories, each as often as it was drawn
    lost: int = 0  # environment steps stored in memories that have failed since
    held: int = 0  # environment steps in a memory of the worker itself, now
    handed_over: tuple[Rollout, ...] = ()  # of `steps`: those that learners elsewhere are to learn from
    refused: tuple[Rollout, ...] = ()  # of these: the learner's side did not take them
    learned_of: tuple[Rollout, ...] = ()  # of `learned`: those that other workers have acted


@dataclass(frozen=True)
class Left:
    """Rollouts that were on the way to a learner when it ended. Some may have been learned from."""

    rollouts: tuple[Rollout, ...]


@dataclass(frozen=True)
class Spent:
    """The time that a worker has spent since its last record, if it neither acts nor learns."""

    seconds: dict[str, float]  # by part


@dataclass(frozen=True)
class Activity:
    """A worker's activity before training, for the progress display."""

    text: str  # for example `measuring the background (random play)`; empty when training starts


@dataclass(frozen=True)
class Recovered:
    """A learner has been restarted after its host was lost."""

    version: int  # of its parameters, in optimizer steps
    optimizer: int  # version at the checkpoint that its optimizer comes from
    copied: bool  # the parameters are those that an actor's host held, and not the checkpoint's

    def told(self, lost: int) -> str:
        """In one sentence. `lost`: updates that were reported and are in no copy."""
        if not self.copied:
            return f"learner restarted from its last checkpoint, update {self.version:,}; updates lost: {lost:,}"
        return (
            f"learner restarted with the parameters of update {self.version:,} from an actor's host and the optimizer "
            f"of update {self.optimizer:,}, its last checkpoint; updates lost: {lost:,}"
        )


@dataclass(frozen=True)
class Event(ABC):
    """Something that the log has, and with its fields `result.json`."""

    event: ClassVar[str]  # name in `result.json`

    @property
    @abstractmethod
    def text(self) -> str:
        """In one sentence."""


@dataclass(frozen=True)
class ShardRestored(Event):
    """A shard of a parameter server goes on from a snapshot, after its host was lost."""

    event = "shard_restarted"
    version: int  # of the snapshot, in updates of the shard
    lost: int  # later updates that learners know of

    @property
    def text(self) -> str:
        return f"the shard continues from update {self.version:,}; updates lost: {self.lost:,}"


@dataclass(frozen=True)
class PredictorReplaced(Event):
    """A predictor has failed, and a new one has its place."""

    event = "predictor_replaced"
    error: str
    requests: int  # that it had taken, and that wait again

    @property
    def text(self) -> str:
        return f"the predictor failed and was replaced; requests that wait again: {self.requests}; {self.error}"


@dataclass(frozen=True)
class Regrouped(Event):
    """Learners average their gradients in a new group of hosts."""

    event = "group_changed"
    epoch: int  # of the group
    hosts: int  # that are in it
    joined: tuple[int, ...]  # hosts that were not in the group before
    left: tuple[int, ...]  # hosts that were
    waited: float  # seconds without a step

    @property
    def text(self) -> str:
        changes = [
            f"{what} {', '.join(map(str, hosts))}"
            for what, hosts in (("without", self.left), ("with", self.joined))
            if hosts
        ]
        of = f"{self.hosts} host{'s' * (self.hosts != 1)}"
        return f"group {self.epoch} of {of}, {' and '.join(changes) or 'the same'}; no steps for {self.waited:.1f} s"


@dataclass(frozen=True)
class Note:
    """A message for the run's log."""

    text: str
