"""Reference observations, on which all members evaluate their policies, so that the policies can be compared.

KL(pi_i || pi_j) needs the answers of both policies to the same observations. Sending parameters to one place and
evaluating them there would cost a whole parameter vector for each member. Instead each member evaluates its own policy,
in its own precision, and reports logits [M, A]: a few kilobytes. The observations must then be known to all members
without being sent. They come from random play of one environment with a seed that follows from the run's: each process
plays it once, when it first needs it, beside the environments that its members learn in, so neither the start of a run
nor what is learned depends on it. Members report a checksum of each observation, and only observations that all members
have are used. An environment that is not reproducible, or too slow for the same number of steps everywhere, thus gives
fewer of them or none, and never a wrong KL.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from gossamer.data import Array
from gossamer.envs.base import EnvFactory
from gossamer.exchange.gossip.records import PolicyOutputs
from gossamer.random_play import OncePerProcess, play
from gossamer.task import Task

STEPS = 512  # of random play
EVERY = 4  # steps from one observation that is kept to the next
SECONDS = 2.0  # at most, of random play

_played = OncePerProcess[tuple[Array, Array]]()


def policy_outputs(task: Task, model: nn.Module) -> PolicyOutputs:
    """The policy of this model on the reference observations. Leaves the model as it is."""
    observations, checksums = reference_observations(task)
    with torch.no_grad(), _evaluating(model):
        batch = torch.from_numpy(observations).to(task.device)
        logits = task.algorithm.act(model, batch, torch.Generator(task.device), greedy=True).logits
    return PolicyOutputs(checksums, logits.float().cpu())


def reference_observations(task: Task) -> tuple[Array, Array]:
    """Observations [M, *O] of random play, and their checksums [M] uint32; the same ones in every process."""
    seed = task.stream("reference")
    return _played.get((task.env, seed), lambda: _play(task.env, seed))


def _play(env: EnvFactory, seed: int) -> tuple[Array, Array]:
    until, kept = time.monotonic() + SECONDS, []
    for step, obs in enumerate(play(env, 1, seed, STEPS - 1, lambda silence: None)):
        if step % EVERY == 0:
            kept.append(np.array(obs[0]))
        if time.monotonic() >= until:
            break
    return np.stack(kept), np.array([zlib.crc32(obs.tobytes()) for obs in kept], np.uint32)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode: no dropout, no running statistics."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
