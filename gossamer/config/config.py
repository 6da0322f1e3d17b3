"""A run's configuration, composed of the options of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

from gossamer.algorithms import Algorithm
from gossamer.envs.options import EnvOptions
from gossamer.nn.networks import NetworkOptions
from gossamer.nn.optim import StepRule
from gossamer.program import Program
from gossamer.system.options import declared, option, options
from gossamer.task import Task


@options
class RunOptions:
    """Options of the run itself."""

    steps: int = option(
        "Length of the run, of all environments together.", 10_000_000, least=1, most=10**15, measure="steps"
    )
    rollout_length: int = option(
        "Steps of each environment between two updates (t_max).", 5, least=1, most=1_000_000, measure="steps"
    )
    alternating: bool = option(
        "Environments of each actor in two groups: one steps while the other's actions are computed.", False
    )
    seed: int = option("Seed of all random streams.", 1, least=0, most=2**31 - 1)
    device: str = option("auto, cpu, cuda or cuda:N; auto uses a GPU if there is one.", "auto")
    cuda_graphs: bool = option(
        "On a GPU: record steps and updates as CUDA graphs, and repeat each with one call.", True
    )
    threads: int = option(
        "CPU threads of torch for each learner; 0: an equal share of the cores.", 0, least=0, most=1024
    )
    keep: int = option("Checkpoints to keep, in addition to the best.", 3, least=1, most=100_000)
    checkpoint_every: float = option("Checkpoint interval.", 60.0, above=0, most=10**9, measure="seconds")
    init_from: str | None = option("Directory of a run whose parameters to start with.", None, unset="none")
    log: str = option(
        "Where metrics go besides metrics.jsonl: tensorboard,wandb,trackio,mlflow or none.", "tensorboard"
    )
    eval_every: int = option(
        "Evaluate the newest parameters about this often, while training goes on; 0: never.",
        0, least=0, most=10**15, measure="steps",
    )  # fmt: skip
    eval_exact: bool = option(
        "Evaluate at every multiple of --eval-every: what there is no time for meanwhile, after training.",
        False,
    )
    eval_episodes: int = option("Games of each of these evaluations.", 10, least=1, most=100_000)
    eval_protocol: Literal["noop", "sticky"] | None = option(
        "Their protocol (Atari): no-ops at the start, or sticky actions.", None, unset="as in gossamer evaluate"
    )


@options
class OptimizationOptions:
    """Options of every optimizer."""

    learning_rate: float = option("Initial learning rate.", 1e-3, above=0)
    anneal_steps: int | None = option(
        "Steps until the learning rate has fallen, linearly; 0: constant.", None, least=0, most=10**15, measure="steps",
        unset="the run's steps",
    )  # fmt: skip
    anneal_from: float = option(
        "Fraction of --anneal-steps before learning rate and entropy bonus begin to fall.", 0.0, least=0, below=1
    )
    final_fraction: float = option("Final learning rate, as a fraction of the initial one.", 0.1, least=0, most=1)
    max_grad_norm: float = option("Maximum global norm of the gradients; larger ones are clipped.", 0.5, above=0)


@options
class Control:
    """Options of one call of train or resume. They are not stored with the configuration."""

    stop_at_return: float | None = option(
        "End when the mean return of the last 100 episodes reaches this.", None, unset="never"
    )
    stop_at_eval: float | None = option(
        "End when the mean return of an evaluation (--eval-every) reaches this.", None, unset="never"
    )
    max_seconds: float | None = option("End after this time.", None, above=0, measure="seconds", unset="never")
    cluster: str | None = option(
        "Run on Ray: local (processes of this machine), auto (this machine's cluster) or IP:PORT of a head.",
        None,
        unset="threads of this process",
    )
    page: int | None = option(
        "Serve the live page of the run to this machine, at this port (without a number: 6006).",
        None, least=1, most=65_535, unset="no page",
    )  # fmt: skip
    callback: str | None = option(
        "Code of yours that watches the run: module:Name, a gossamer.Callback; several with commas.", None, unset="none"
    )


@runtime_checkable
class Architecture(Protocol):
    """The options of an architecture; `program` wires it."""

    def program(self, task: Task) -> Program:
        """The program for this task. Raises `UserError` if the options contradict each other."""


@dataclass(frozen=True)
class Config:
    """The complete configuration of a run: every option has a value."""

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
        """A copy with these options of the run changed."""
        return replace(self, run=replace(self.run, **changes))

    def changed(self, options: Mapping[str, Any]) -> Config:
        """A copy with these options of the run and of the optimization changed; None keeps an option's value."""
        given = {name: value for name, value in options.items() if value is not None}
        run = {name: value for name, value in given.items() if name in declared(RunOptions)}
        optimization = {name: value for name, value in given.items() if name in declared(OptimizationOptions)}
        return replace(self, run=replace(self.run, **run), optimization=replace(self.optimization, **optimization))
