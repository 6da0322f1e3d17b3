"""Help texts and checks of the options that architectures with a queue have."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from gossamer.algorithms import Algorithm
from gossamer.envs.base import threads_of
from gossamer.errors import UserError
from gossamer.processes import cores
from gossamer.task import Task

HOSTS = "Hosts of actors, each one process; 0: the actors are on the learner's host."
LEARNERS = "Learners, each a thread with actors of its own; they average their gradients."
ACTORS = "Actors of each learner on each host, each a thread; 0: one a core, but one core for each learner."
NUM_ENVS = "Environments of all actors of a host together."
ENV_WORKERS = (
    "Of an actor: threads for Atari (0: cores / actors; learners in float32 keep a core each), processes for Gymnasium "
    "(0 or 1: none)."
)
BATCH_ROLLOUTS = "Rollouts of each batch, one of an actor each; 0: as many as actors."
DEPTH = "Batches being filled, full or trained on; 1: acting and learning take turns."
REUSE = "Passes over each batch, in turn with newer ones."
REPLAY_SHARE = "Fraction of old trajectories in each batch."
REPLAY_SIZE = "Newest trajectories kept for it."
PARALLEL_LOADING = (
    "A thread assembles the next batch while the learner trains; on where there is something to copy: with "
    "--replay-share or --hosts, and --depth 2 or more."
)
NAMES = (
    "hosts",
    "learners",
    "actors",
    "num_envs",
    "env_workers",
    "batch_rollouts",
    "depth",
    "reuse",
    "replay_share",
    "replay_size",
    "parallel_loading",
)


FEWEST_ENVS = 4  # of an actor, where the number of actors is not given: smaller batches make inference slow


def actors_for(num_envs: int, learners: int, cores: int) -> int:
    """The number of actors of each learner on a machine with so many cores: it divides the learner's environments."""
    envs = num_envs // learners
    most = max(1, min(cores // learners - 1, envs // FEWEST_ENVS))
    return next(actors for actors in range(most, 0, -1) if envs % actors == 0 or actors == 1)


class QueueOptions(Protocol):
    """The options that `check` reads."""

    @property
    def learners(self) -> int: ...
    @property
    def hosts(self) -> int: ...
    @property
    def actors(self) -> int: ...
    @property
    def env_workers(self) -> int: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def batch_rollouts(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def reuse(self) -> int: ...


def arguments(options: QueueOptions, task: Task) -> dict[str, Any]:
    """The arguments of the wiring for these options. Raises as `check`."""
    check(options, task.algorithm)
    chosen = {name: getattr(options, name) for name in NAMES}
    actors = options.actors or actors_for(options.num_envs, options.learners, cores())
    workers = options.env_workers or (0 if options.hosts else _beside_learners(task, options.learners, actors))
    return {**chosen, "actors": actors, "env_workers": workers, "gpus": task.gpus}


def _beside_learners(task: Task, learners: int, actors: int) -> int:
    """Native threads of each actor beside learners on the same machine. Learners that compute in float32 on the CPU
    keep a core each, because their updates take longer than acting. Otherwise 0: the actors share all cores."""
    here = task.resolved()
    slow = here.device == "cpu" and here.network.dtype == torch.float32
    return threads_of(task.env, learners * (actors + 1)) if slow else 0


def check(options: QueueOptions, algorithm: Algorithm) -> None:
    """Raise `UserError` if the options contradict each other, or if the algorithm is on-policy."""
    envs, depth, groups = options.num_envs, options.depth, options.learners * max(1, options.actors)
    counts = {"--learners": options.learners, "--actors": options.actors}
    name = " x ".join(f"{flag} {count}" for flag, count in counts.items() if count > 1)
    if envs < groups:
        raise UserError(f"--num-envs {envs}: fewer environments than {name}; each actor needs one or more")
    if envs % groups:
        raise UserError(f"--num-envs {envs}: must be a multiple of {name}: all actors have equally many")
    if options.reuse > 1 and options.reuse >= depth:
        raise UserError(
            f"--reuse {options.reuse}: needs --depth {options.reuse + 1} or more (now {depth}): the learner holds as "
            "many batches, and the actors need another one"
        )
    if algorithm.on_policy:
        kind = type(algorithm).__name__.lower()
        raise UserError(f"--algorithm {kind}: on-policy, but batches of a queue are older; use vtrace or appo")
