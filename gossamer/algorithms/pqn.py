"""PQN: Q-learning from many environments, without replay and target network (Gallici et al. 2024, "Simplifying Deep
Temporal Difference Learning")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from gossamer.algorithms.action_values import OnPolicyValues, normalize_layers
from gossamer.algorithms.exploration import (
    EPSILON_END,
    EPSILON_START,
    EPSILON_STEPS,
    EXPLORATION,
    Exploration,
    explore_a_tenth,
)
from gossamer.algorithms.losses import Loss, q_learning
from gossamer.algorithms.minibatches import by_index, sequences, shuffled
from gossamer.algorithms.returns import lambda_returns
from gossamer.algorithms.sequences import ACTED, q_of
from gossamer.data import Trajectory
from gossamer.nn.networks import Network, QNetwork
from gossamer.presets.layers import Layer
from gossamer.presets.rules import long_rollouts_with_memory
from gossamer.spaces import Spec
from gossamer.system.options import option, options


@options
class PQN(OnPolicyValues):
    """Several epochs of minibatches over each rollout. The target of Q(x_t, a_t) is Q(lambda)'s, from the values of the
    best actions at acting time:

        R_t = r_t + discount_t * ((1 - lambda) * max_a Q(x_{t+1}, a) + lambda * R_{t+1}),   R_T = max_a Q(x_T, a)

    There is no correction for actions that were not the best ones. With `rescale_values` the network learns h(R_t),
    and the values are h^-1 of its outputs."""

    on_policy = True

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
    gae_lambda: float = option("Lambda of returns; 1: n-step returns.", 0.65, least=0, most=1)
    epochs: int = option("Passes over each rollout.", 2, least=1, most=1000)
    num_minibatches: int = option("Minibatches per epoch.", 4, least=1, most=65_536)
    dueling: bool = option("Heads for the state's value and for the advantages of actions.", False)
    huber: bool = option("Errors above 1 count linearly; otherwise all are squared.", False)
    exploration: Exploration = EXPLORATION("schedule")
    epsilon_start: float = EPSILON_START(1.0)
    epsilon_end: float = EPSILON_END(0.01)
    epsilon_steps: int = EPSILON_STEPS(100_000)

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """A torso with a head of action values."""
        return QNetwork(spec, network, dueling=self.dueling, returns=self.scale.returns)

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        target = self.scale.of(lambda_returns(batch.reward, batch.discount, batch.value, self.gae_lambda)).flatten()
        action = batch.action.flatten()
        for index, q in self._minibatches(model, batch, rng):
            yield q_learning(q, action[index], target[index], huber=self.huber)

    def _minibatches(
        self, model: nn.Module, batch: Trajectory, rng: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The indices [N] of each minibatch in the flattened rollout, and its action values [N, A]."""
        if batch.state:
            for envs, index in sequences(batch, rng, count=self.num_minibatches, epochs=self.epochs):
                yield index, q_of(model, batch, ACTED, envs).flatten(0, 1)
            return
        values_of = by_index(model, batch.obs[:-1].flatten(0, 1))
        for index in shuffled(batch, rng, count=self.num_minibatches, epochs=self.epochs):
            yield index, values_of(index)

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("as published: RAdam; a tenth of the run explores", {"optimizer": "radam"}, (explore_a_tenth,)),
        Layer(
            "tried on Pong: 42x42 pictures centred on their background, a small network; with a rate of 1e-3, two "
            "epochs and a lambda of 0.65, 450,000 steps reach 2 in place of 17",
            {
                "screen_size": 42,
                "rollout_length": 32,
                "gae_lambda": 0.8,
                "epochs": 4,
                "num_minibatches": 8,
                "learning_rate": 5e-4,
                "final_fraction": 0.1,
                "max_grad_norm": 10.0,
            },
            kind="pixels",
        ),
        Layer(
            "tuned on CartPole-v1, tried on Catch: short rollouts, small minibatches",
            {
                "rollout_length": 8,
                "gamma": 0.98,
                "gae_lambda": 0.9,
                "epochs": 4,
                "num_minibatches": 4,
                "learning_rate": 1e-3,
                "final_fraction": 0.1,
                "max_grad_norm": 10.0,
            },
            (long_rollouts_with_memory,),
            kind="vector",
        ),
        Layer("512 steps between updates", {"num_envs": 16}, kind="pixels", beside=("paac",)),
        Layer("tuned on CartPole-v1", {"num_envs": 16}, kind="vector", beside=("paac",)),
        Layer(
            "PQN as published: the settings of its code for Atari games (pqn_atari.yaml)",
            {
                "steps": 10_000_000,
                "preprocessing": "gala",
                "num_envs": 128,
                "rollout_length": 32,
                "gae_lambda": 0.65,
                "epochs": 2,
                "num_minibatches": 32,
                "epsilon_end": 0.001,
                "epsilon_steps": 1_000_000,
                "network": "nature",
                "input": "unit",
                "optimizer": "radam",
                "epsilon": 1e-8,
                "learning_rate": 2.5e-4,
                "anneal_steps": 0,
                "max_grad_norm": 10.0,
            },
            preset="paper",
            beside=("paac",),
        ),
        Layer("layer normalisation instead of a target network", rules=(normalize_layers,), preset=None),
    )
