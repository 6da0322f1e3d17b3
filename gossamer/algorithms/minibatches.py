"""Minibatches of rollouts, for algorithms that pass over a rollout several times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.algorithms.base import evaluate
from gossamer.data import Trajectory
from gossamer.nn.networks import Preparing
from gossamer.spaces.distributions import Distribution

KEPT = 2**28  # bytes; a rollout's inputs are kept in memory for its passes if they need no more


def minibatches(
    model: nn.Module, batch: Trajectory, rng: torch.Generator, *, count: int, epochs: int = 1
) -> Iterator[tuple[Tensor, Distribution, Tensor]]:
    """Split a rollout at random into `count` minibatches, fewer if it is too small for so many, `epochs` times. Yield
    the indices [N] of each in the flattened rollout, with the model's outputs for them. With memory a minibatch
    consists of whole sequences: all steps of some environments."""
    if not batch.state:
        evaluated = by_index(model, batch.obs[:-1].flatten(0, 1))
        for index in shuffled(batch, rng, count=count, epochs=epochs):
            policy, value = evaluated(index)
            yield index, policy, value
        return
    for envs, index in sequences(batch, rng, count=count, epochs=epochs):
        yield index, *evaluate(model, batch, envs)


def shuffled(batch: Trajectory, rng: torch.Generator, *, count: int, epochs: int = 1) -> Iterator[Tensor]:
    """Split the steps of a rollout at random into `count` minibatches, fewer if there are fewer steps, `epochs` times.
    Yield the indices [N] of each in the flattened rollout."""
    for _ in range(epochs):
        steps = torch.randperm(batch.steps, generator=rng, device=batch.reward.device)
        yield from steps.tensor_split(min(count, batch.steps))


def sequences(
    batch: Trajectory, rng: torch.Generator, *, count: int, epochs: int = 1
) -> Iterator[tuple[Tensor, Tensor]]:
    """Split the environments of a rollout at random into `count` groups, fewer if there are fewer environments,
    `epochs` times. Yield each group, and the indices [N] of all its steps in the flattened rollout."""
    length, envs = batch.reward.shape
    steps = torch.arange(length, device=batch.reward.device).unsqueeze(1) * envs  # [T, 1]
    for _ in range(epochs):
        order = torch.randperm(envs, generator=rng, device=batch.reward.device)
        for chosen in order.tensor_split(min(count, envs)):
            yield chosen, (steps + chosen).flatten()


def by_index(model: nn.Module, obs: Tensor) -> Callable[[Tensor], Any]:
    """A function from indices [N] to the model's outputs for these rows of obs [M, *O]."""
    if not isinstance(model, Preparing) or obs.numel() * torch.float32.itemsize > KEPT:
        return lambda index: model(obs.index_select(0, index))
    prepared = model.prepare(obs)
    return lambda index: model.outputs(prepared.rows(index))


def advantages(advantage: Tensor, batch: Trajectory, *, normalize: bool) -> Callable[[Tensor], Tensor]:
    """Return a function from the indices [N] of a minibatch in the flattened rollout to its advantages [N].

    `normalize` scales them to mean 0 and standard deviation 1: over the minibatch, or with memory over the whole batch,
    because a minibatch of a few whole sequences has too few independent steps."""
    if normalize and not batch.state:
        return lambda index: normalised(advantage[index])
    whole = normalised(advantage) if normalize else advantage
    return lambda index: whole[index]


def normalised(advantage: Tensor) -> Tensor:
    """Scale advantages [N] to mean 0 and standard deviation 1."""
    return (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
