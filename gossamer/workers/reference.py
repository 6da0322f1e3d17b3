"""Reference observations on which all members evaluate their policies, to compare the policies.

KL(pi_i || pi_j) needs the outputs of both policies on the same observations. Evaluating all policies in one place would
require sending every parameter vector. Instead, each member evaluates its own policy, in its own precision, and reports
the parameters [M, P] of its distributions over actions, a few kilobytes. All members must then have the same
observations without exchanging them. Each process
generates them once, at first use, by random play of a separate environment, with a seed derived from the run's seed.
This affects neither the start of a run nor learning. Members also report a checksum of each observation, and only
observations common to all members are used. An environment that is not reproducible, or too slow to make the same
number of steps everywhere, thus gives fewer observations or none, but never a wrong KL.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from gossamer.algorithms.base import ByValue, initial_state
from gossamer.data import Array
from gossamer.envs.base import EnvFactory, one_of_each
from gossamer.envs.once import OncePerProcess
from gossamer.envs.random_play import play
from gossamer.exchange.gossip.records import PolicyOutputs
from gossamer.spaces import Space
from gossamer.task import Task

STEPS = 512  # steps of random play
EVERY = 4  # steps between observations that are kept
SECONDS = 2.0  # time limit of random play

_played = OncePerProcess[tuple[Array, Array]]()


def policy_outputs(task: Task, model: nn.Module, actions: Space) -> PolicyOutputs | None:
    """Evaluate the model's policy on the reference observations, in evaluation mode; None for one that takes the action
    of the highest value always, since KL is not finite then. Does not modify the model."""
    if isinstance(task.algorithm, ByValue) and not task.algorithm.epsilon_end:
        return None
    observations, checksums = reference_observations(task)
    with torch.no_grad(), _evaluating(model):
        batch = torch.from_numpy(observations).to(task.device)
        state = initial_state(model, len(batch))
        answer, _ = task.algorithm.act(model, batch, state, torch.Generator(task.device))
    return PolicyOutputs(checksums, answer.parameters.float().cpu(), actions)


def reference_observations(task: Task) -> tuple[Array, Array]:
    """Return observations [M, *O] of random play and their checksums [M] uint32, equal in every process."""
    seed = task.stream("reference")
    return _played.get((task.env, seed), lambda: _play(task.env, seed))


def _play(env: EnvFactory, seed: int) -> tuple[Array, Array]:
    until, kept = time.monotonic() + SECONDS, []
    for step, (_, obs) in enumerate(play(env, one_of_each(env), seed, STEPS - 1, lambda silence: None)):
        if step % EVERY == 0:
            kept += list(np.array(obs))
        if time.monotonic() >= until:
            break
    return np.stack(kept), np.array([zlib.crc32(obs.tobytes()) for obs in kept], np.uint32)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switch the model to evaluation mode, and restore the mode of each module afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
