"""Networks of a user's own: dropout and batch normalisation are in the right mode, and given weights are kept."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from some_parts import a_task, a_trajectory
from torch import Tensor, nn

import gossamer
from gossamer.algorithms import DQN, NStepQ, OneStepQ, Sarsa
from gossamer.algorithms.appo import AsyncPPO
from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.vtrace import VTrace
from gossamer.data import Final
from gossamer.envs.toy import Catch
from gossamer.exchange import AloneLink, Broadcast, Follower, Parameters
from gossamer.policy import build
from gossamer.system.errors import UserError
from gossamer.workers.learner import Learner

SPEC = Catch().make(1).spec


class Moody(nn.Module):
    """A torso that behaves differently in training, and notes in which mode it learns and acts."""

    modes: ClassVar[set[tuple[str, bool]]] = set()

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(math.prod(shape), 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Tanh()
        )

    def forward(self, x: Tensor) -> Tensor:
        self.modes.add(("learn" if torch.is_grad_enabled() else "act", self.training))
        result: Tensor = self.layers(x)
        return result


def given(shape: tuple[int, ...]) -> nn.Module:
    """Weights of an earlier training, of which some are frozen."""
    layer = nn.Linear(math.prod(shape), 16)
    with torch.no_grad():
        layer.weight.fill_(0.125)
        layer.bias.fill_(0.5)
    return nn.Sequential(nn.Flatten(), layer.requires_grad_(False), nn.Tanh())


@pytest.mark.parametrize(
    ("architecture", "options"),
    [("paac", {}), ("gala", {}), ("impala", {}), ("appo", {}), ("appo", {"target_period": 2})],
    ids=str,
)
def test_policies_act_in_evaluation_mode_and_learn_in_training_mode(
    architecture: str, options: dict[str, Any], tmp_path: Path
) -> None:
    Moody.modes.clear()
    run = gossamer.train(
        architecture, env="catch", network=f"{__name__}:Moody", steps=3200, run_dir=tmp_path / "run", **options
    )
    assert Moody.modes == {("act", False), ("learn", True)}
    gossamer.evaluate(run.directory, episodes=2)
    policy = gossamer.load(run.directory, greedy=True)
    obs = np.random.default_rng(0).random((50, *SPEC.obs_shape), np.float32)
    assert np.array_equal(policy.act(obs), policy.act(obs))
    assert ("act", True) not in Moody.modes


@pytest.mark.parametrize(
    "algorithm",
    [
        VTrace(),
        AsyncPPO(),
        *(kind(target_period=period) for kind in (NStepQ, OneStepQ, Sarsa) for period in (0, 5)),
        *(DQN(double=True, n_step=4, target_period=period) for period in (0, 5)),  # a batch from replay
    ],
    ids=str,
)
def test_the_value_of_one_truncated_episode_is_estimated_in_evaluation_mode(algorithm: Algorithm) -> None:
    """Batch normalisation cannot train on a single observation, and would take its statistics from it."""
    learner = Learner(a_task(algorithm=algorithm, torso=Moody, own_torso=True), SPEC)
    batch = a_trajectory(SPEC, 4, 3, 0)
    batch.finals.append(Final(1, 2, batch.obs[2, 2].clone(), {}, 0.5))
    Moody.modes.clear()
    learner.update(batch, AloneLink(), 0)
    assert Moody.modes == {("act", False), ("learn", True)}


def test_actors_get_the_buffers_that_learning_changes() -> None:
    task = a_task(torso=Moody, own_torso=True)
    learner, parameters = Learner(task, SPEC), Parameters()
    link = Broadcast(parameters).join(SimpleNamespace(restarts=0), learner)  # type: ignore[arg-type]
    replica = build(task, SPEC)
    follower = Follower(parameters, replica)
    before = replica.torso.layers[2].running_mean.clone()  # type: ignore[union-attr, index]
    learner.update(a_trajectory(SPEC, 4, 3, 0), link, 0)
    follower.refresh()
    assert not torch.equal(before, learner.model.torso.layers[2].running_mean)  # type: ignore[union-attr, index]
    for name, buffer in learner.model.named_buffers():
        assert torch.equal(replica.get_buffer(name), buffer)


def test_a_network_with_running_averages_computes_in_float32() -> None:
    task = a_task(dtype=torch.bfloat16, torso=Moody, own_torso=True)
    learner = Learner(task, SPEC)
    assert learner.model.compute_dtype == torch.float32
    learner.update(a_trajectory(SPEC, 4, 3, 0), AloneLink(), 0)


def test_given_weights_are_kept() -> None:
    model = build(a_task(torso=given, own_torso=True, orthogonal=True), SPEC)
    assert bool((model.torso[1].weight == 0.125).all())  # type: ignore[union-attr, index]
    assert bool((model.torso[1].bias == 0.5).all())  # type: ignore[union-attr, index]


@pytest.mark.parametrize("persistent", [True, False])
def test_an_infinite_buffer_is_refused_before_a_checkpoint_is(persistent: bool) -> None:
    def masked(shape: tuple[int, ...]) -> nn.Module:
        torso = Moody(shape)
        torso.register_buffer("mask", torch.full((2,), -math.inf), persistent=persistent)
        return torso

    task = a_task(torso=masked, own_torso=True)
    if persistent:
        with pytest.raises(ValueError, match="mask of the torso is NaN or infinite, which no checkpoint may have"):
            build(task, SPEC)
    else:
        build(task, SPEC)


@pytest.mark.parametrize(("architecture", "whose"), [("a3c", "shared"), ("gorila", "a parameter server's")])
def test_frozen_layers_are_refused_in_one_line_where_gradients_are_exchanged(
    architecture: str, whose: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"{whose} parameters all need gradients: make the weights of frozen layers"):
        gossamer.train(
            architecture, env="catch", network=f"{__name__}:given", steps=64, num_envs=2, run_dir=tmp_path / "run"
        )
