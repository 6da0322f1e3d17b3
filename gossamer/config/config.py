"""A run's configuration: the composition of its parts' options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from gossamer.algorithms import Algorithm
from gossamer.envs.options import EnvOptions
from gossamer.networks import NetworkOptions
from gossamer.optim import StepRule
from gossamer.options import option, options
from gossamer.program import Program
from gossamer.task import Task


@options
class RunOptions:
    """Options of the run itself."""

    steps: int = option(
        "Until the end, of all environments together.", 10_000_000, least=1, most=10**15, measure="steps"
    )
    rollout_length: int = option(
        "Of each environment between two updates (t_max).", 5, least=1, most=1_000_000, measure="steps"
    )
    seed: int = option("All random streams follow from it.", 1, least=0, most=2**31 - 1)
    device: str = option("auto, cpu, cuda or cuda:N; auto takes a GPU where there is one.", "auto")
    threads: int = option(
        "Of torch on the CPU, for each learner; 0: the cores divided among the learners.", 0, least=0, most=1024
    )
    keep: int = option("Checkpoints to keep, besides the best.", 3, least=1, most=100_000)
    checkpoint_every: float = option("Between two checkpoints.", 60.0, above=0, most=10**9, measure="seconds")
    init_from: str | None = option("Start with the parameters of another run (its directory).", None, unset="none")


@options
class OptimizationOptions:
    """Options that every optimiser has."""

    learning_rate: float = option("At the start.", 1e-3, above=0)
    anneal_steps: int | None = option(
        "Over which the learning rate falls linearly; 0: it is constant.", None, least=0, most=10**15, measure="steps",
        unset="the run's steps",
    )  # fmt: skip
    final_fraction: float = option("Of the learning rate, at the end of --anneal-steps.", 0.1, least=0, most=1)
    max_grad_norm: float = option("Gradients are clipped to this global norm.", 0.5, above=0)


@options
class Control:
    """Options of one call of train or resume. They are not part of the configuration: a resumed run has its own."""

    stop_at_return: float | None = option(
        "End once the mean return of the last 100 episodes reaches this.", None, unset="never"
    )
    max_seconds: float | None = option("End after this long.", None, above=0, measure="seconds", unset="never")
    cluster: str | None = option(
        "Run on Ray: local (processes of this machine), auto (the cluster it is a node of) or IP:PORT of its head.",
        None,
        unset="threads of this process",
    )


@runtime_checkable
class Architecture(Protocol):
    """Options of an architecture, which wire it."""

    def program(self, task: Task) -> Program:
        """The program that learns this task. `UserError` where the options do not fit each other."""


@dataclass(frozen=True)
class Config:
    """One run, completely: every option has its value."""

    preset: str
    architecture: Architecture
    algorithm: Algorithm
    env: EnvOptions
    network: NetworkOptions
    optimizer: StepRule
    optimization: OptimizationOptions
    run: RunOptions

    @property
    def parts(self) -> tuple[Any, ...]:
        """The parts that have options."""
        return self.run, self.env, self.architecture, self.algorithm, self.network, self.optimizer, self.optimization

    def with_run(self, **changes: Any) -> Config:
        """The same with other options of the run."""
        return replace(self, run=replace(self.run, **changes))
