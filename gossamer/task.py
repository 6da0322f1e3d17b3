"""What is learned and with which means, independent of how it is spread over machines; and what a member reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from gossamer.algorithms import Algorithm, Network
from gossamer.envs.base import EnvFactory


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
    steps: int  # of all environments together, until the end
    seed: int = 0
    device: str = "cpu"
    threads: int = 0  # torch threads of one member; 0: leave torch's own choice

    @property
    def gpus(self) -> float:
        """GPUs that a host needs which learns it."""
        return 1.0 if self.device.startswith("cuda") else 0.0

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


@dataclass(frozen=True)
class Report:
    """What a member did since its last report. Loops report; who writes, prints or plots it is not their business."""

    steps: int  # environment steps so far
    updates: int  # optimiser steps so far
    episodes: tuple[Episode, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)  # of the last update
    seconds: dict[str, float] = field(default_factory=dict)  # env, inference, update: where the time went
    exchange: tuple[Any, ...] = ()  # what the exchange kept of itself, in order (`exchange.records`)


@dataclass(frozen=True)
class Note:
    """A sentence for the run's log."""

    text: str
