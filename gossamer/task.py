"""What is learned and with which means, independent of how it is spread over machines; and what a member reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from gossamer.algorithms import Algorithm, Network
from gossamer.envs.base import EnvFactory, cores
from gossamer.errors import EnvironmentFailed
from gossamer.machine import resolve_device, resolve_dtype


@dataclass(frozen=True)
class Optimization:
    """Which optimiser, and its schedule over environment steps."""

    make: Callable[[Iterable[nn.Parameter], float], Optimizer]  # parameters, learning rate
    learning_rate: float
    anneal_steps: int  # the rate falls linearly until then; 0 keeps it constant
    final_fraction: float = 0.0  # of the learning rate, from then on
    max_grad_norm: float = float("inf")  # of the gradient, global L2

    def rate(self, steps: int) -> float:
        """Learning rate after so many environment steps."""
        if self.anneal_steps == 0:
            return self.learning_rate
        progress = min(1.0, steps / self.anneal_steps)
        return self.learning_rate * (1 + (self.final_fraction - 1) * progress)


@dataclass(frozen=True)
class Task:
    """One learning problem. Frozen data: it travels to wherever a member runs."""

    env: EnvFactory
    algorithm: Algorithm
    network: Network
    optimization: Optimization
    rollout_length: int  # T, steps of each environment between two updates
    seed: int = 0
    device: str = "cpu"  # `auto`: see `here`
    threads: int = 0  # torch threads of each member; 0: see `here`
    sharing: int = 0  # members that share a machine's cores; 0: threads that are not given are torch's own choice

    def here(self) -> Task:
        """The task with what was left to the machine it runs on: device, precision and threads."""
        device = resolve_device(self.device)
        network = replace(self.network, dtype=self.network.dtype or resolve_dtype(device))
        threads = max(1, cores() // self.sharing) if self.sharing and not self.threads else self.threads
        return replace(self, device=device, network=network, threads=threads)

    @property
    def gpus(self) -> float:
        """GPUs that a host needs which learns it."""
        return 1.0 if resolve_device(self.device).startswith("cuda") else 0.0

    def stream(self, purpose: str, rank: int = 0) -> int:
        """A seed of its own for each purpose and member, all from `seed`."""
        words = [self.seed, rank, *purpose.encode()]
        return int(np.random.SeedSequence(words).generate_state(1, np.uint32)[0] >> 1)  # 31 bits: emulators take an int

    def generator(self, purpose: str, rank: int = 0) -> torch.Generator:
        """A random stream on the task's device."""
        return torch.Generator(self.device).manual_seed(self.stream(purpose, rank))


@dataclass(frozen=True)
class Episode:
    """A finished game."""

    score: float  # undiscounted return, unclipped
    steps: int
    env: str = ""  # the name of its environment
    index: int = 0  # which one of its worker's


@dataclass(frozen=True)
class Report:
    """What a member did since its last report. Loops report; who writes, prints or plots it is not their business."""

    steps: int  # environment steps acted
    learned: int = 0  # environment steps learned from
    updates: int = 0  # optimiser steps
    episodes: tuple[Episode, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)  # of the last update
    seconds: dict[str, float] = field(default_factory=dict)  # env, inference, update: where the time went
    exchange: tuple[Any, ...] = ()  # what the exchange kept of itself, in order (`exchange.records`)
    failures: tuple[EnvironmentFailed, ...] = ()  # of environments that were restarted


@dataclass(frozen=True)
class Activity:
    """What a worker does before it trains, for the progress display."""

    text: str  # as in `measuring the background (random play)`; empty once the worker begins to train


@dataclass(frozen=True)
class Note:
    """A sentence for the run's log."""

    text: str
