"""Options of architectures with a queue between actors and learners, and their checks. Each architecture gives the
defaults, as in `depth: int = DEPTH(2)`."""

from __future__ import annotations

from functools import partial

import torch

from gossamer.algorithms import Algorithm
from gossamer.algorithms.base import FromReplay
from gossamer.envs.base import threads_of
from gossamer.system.errors import UserError
from gossamer.system.options import option, word
from gossamer.task import Task

HOSTS = partial(
    option, "Hosts of actors, each one process; 0: the actors are on the learner's host.", least=0, most=65_536
)
LEARNERS = partial(
    option, "Learners, each a thread with actors of its own; they average their gradients.", least=1, most=1024
)
LEARNER_HOSTS = partial(
    option, "Hosts of --learners learners each; all of them average their gradients.", least=1, most=4096
)
ACTORS = partial(
    option,
    "Actors of each learner on each host, each a thread; 0: one a core, but one core for each learner.",
    least=0,
    most=65_536,
)
NUM_ENVS = partial(option, "Environments of all actors of a host together.", least=1, most=16_384)
ENV_WORKERS = partial(
    option,
    "Of an actor: threads for Atari (0: cores / actors; learners in float32 keep a core each), processes for Gymnasium "
    "(0 or 1: none).",
    least=0,
    most=1024,
)
BATCH_ROLLOUTS = partial(
    option, "Rollouts of each batch, one of an actor each; 0: as many as actors.", least=0, most=16_384
)
DEPTH = partial(
    option,
    "Batches being filled, full or trained on; 1: acting and learning take turns.",
    least=1,
    most=65_536,
    measure="batches",
)
REUSE = partial(option, "Passes over each batch, in turn with newer ones.", least=1, most=1000)
REPLAY_SHARE = partial(option, "Fraction of old trajectories in each batch.", least=0, below=1)
REPLAY_SIZE = partial(
    option,
    "Newest trajectories kept for it, by the learner or on each of --hosts.",
    least=1,
    most=10**7,
    measure="trajectories",
)
PARALLEL_LOADING = partial(
    option,
    "A thread assembles the next batch while the learner trains; on where there is something to copy: with "
    "--replay-share or --hosts, and --depth 2 or more.",
)


def threads_beside(task: Task, learners: int, actors: int) -> int:
    """Native threads of each actor beside learners on the same machine. Learners that compute pictures in float32 on
    the CPU keep a core each, because their updates take longer than acting. Otherwise 0: the actors share all cores."""
    here = task.resolved()
    slow = here.device == "cpu" and here.dtype(pictures=True) == torch.float32
    return threads_of(task.env, learners * (actors + 1)) if slow else 0


def check_envs(num_envs: int, learners: int, actors: int, option: str = "--actors") -> None:
    """Raise `UserError` unless so many actors of each learner (0: as many as fit) have equally many environments.
    `option`: that has their number."""
    groups, counts = learners * max(1, actors), {"--learners": learners, option: actors}
    name, who = " x ".join(f"{flag} {count}" for flag, count in counts.items() if count > 1), option.removeprefix("--")
    if num_envs < groups:
        raise UserError(f"--num-envs {num_envs}: fewer environments than {name}; each of the {who} needs one or more")
    if num_envs % groups:
        raise UserError(f"--num-envs {num_envs}: must be a multiple of {name}: all {who} have equally many")


def check_reuse(reuse: int, depth: int) -> None:
    """Raise `UserError` if actors would have no batch to fill."""
    if reuse > 1 and reuse >= depth:
        raise UserError(
            f"--reuse {reuse}: needs --depth {reuse + 1} or more (now {depth}): the learner holds as many batches, and "
            "the actors need another one"
        )


def check_off_policy(algorithm: Algorithm) -> None:
    """Raise `UserError` if the losses are wrong for batches of an older policy."""
    kind = word(type(algorithm))
    if isinstance(algorithm, FromReplay):
        raise UserError(f"--algorithm {kind}: learns from a replay memory, not from a queue; use vtrace or appo")
    if algorithm.on_policy:
        raise UserError(f"--algorithm {kind}: on-policy, but batches of a queue are older; use vtrace or appo")
