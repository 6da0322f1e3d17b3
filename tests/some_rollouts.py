"""Checks of the rollouts that reach a learner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from some_parts import sharpen
from torch import nn
from torch.testing import assert_close

from gossamer.algorithms import PPO, VTrace
from gossamer.algorithms.base import evaluate_to_end, own_rewards
from gossamer.data import Trajectory
from gossamer.losses import Loss
from gossamer.networks import Network
from gossamer.spaces import Spec


@dataclass(frozen=True)
class Checked(VTrace):
    """V-trace on Counter, which checks every batch before it learns from it. The learning rate must be 0: then actors
    and learner have equal parameters at all times."""

    seen: ClassVar[list[tuple[int, int, int]]] = []  # (environment, episode, age), in the order of the updates

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """A policy that depends on observation and memory."""
        model = super().model(spec, network)
        sharpen(model)
        return model

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        check_steps(batch, self.gamma)
        check_policy(model, batch, self.gamma)
        self.seen.extend(steps_of(batch))
        yield from super().losses(model, batch, rng)


@dataclass(frozen=True)
class CheckedMembers(PPO):
    """PPO on Counter, which checks every rollout of every member before it learns from it. The learning rate must be 0:
    then all members have equal parameters at all times, and pi = mu in every minibatch."""

    seen: ClassVar[dict[int, list[tuple[int, int, int]]]] = {}  # as in `Checked`, by the `id` of the member's network

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """A policy that depends on observation and memory."""
        model = super().model(spec, network)
        sharpen(model)
        return model

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        check_steps(batch, self.gamma)
        check_policy(model, batch, self.gamma)
        self.seen.setdefault(id(model), []).extend(steps_of(batch))
        yield from super().losses(model, batch, rng)


def steps_of(batch: Trajectory) -> list[tuple[int, int, int]]:
    """(environment, episode, age) of each step on Counter, one environment after the other."""
    return [(int(env), int(episode), int(age)) for b in batch.obs[:-1].unbind(1) for age, episode, env in b]


def check_steps(batch: Trajectory, gamma: float) -> None:
    """Each trajectory must be one piece of the episodes of Counter(7), which all its observations number."""
    age, episode = batch.obs[..., 0], batch.obs[..., 1]  # [T+1, B]
    begins = batch.begins
    assert torch.equal(begins, age == 0)
    assert torch.equal(batch.discount, gamma * ~begins[1:])
    follows = ~begins[1:]
    assert torch.equal(age[1:][follows], (age[:-1] + 1)[follows])
    assert torch.equal(episode[1:], episode[:-1] + begins[1:])
    reward = batch.reward.clone()
    for final in batch.finals:  # of an episode that was cut off after seven steps
        reward[final.t, final.b] -= final.value
        assert final.obs.tolist() == [7, episode[final.t, final.b], batch.obs[0, final.b, 2]]
    assert_close(reward, age[:-1])  # Counter pays the age


@torch.no_grad()
def check_policy(model: nn.Module, batch: Trajectory, gamma: float) -> None:
    """The learner's network must give the actor's probabilities and values: for its actions, from its state."""
    policy, value = evaluate_to_end(model, batch)
    assert_close(value, batch.value)
    assert_close(policy.log_prob(batch.action.flatten(0, 1)).view_as(batch.behaviour), batch.behaviour)
    assert_close(own_rewards(model, batch, gamma), batch.reward)
    middle = ~batch.begins[0]  # a rollout that begins within an episode has a state
    for rows in batch.state.values():
        assert torch.equal(rows.abs().sum(1) > 0, middle)
