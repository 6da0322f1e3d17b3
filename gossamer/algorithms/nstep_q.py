"""n-step Q-learning without replay, synchronous (Mnih et al. 2016, algorithm S2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from gossamer.algorithms.action_values import DoubleQ, OnPolicyValues, normalize_layers
from gossamer.algorithms.base import Valued, evaluating, own_rewards
from gossamer.algorithms.exploration import (
    EPSILON_END,
    EPSILON_START,
    EPSILON_STEPS,
    EXPLORATION,
    Exploration,
    explore_a_tenth,
)
from gossamer.algorithms.losses import Loss, q_learning
from gossamer.algorithms.returns import n_step
from gossamer.algorithms.sequences import ACTED, LAST, q_of
from gossamer.algorithms.target import add_target, target_by_version
from gossamer.data import Trajectory
from gossamer.nn.networks import Network, QNetwork
from gossamer.presets.layers import Layer
from gossamer.presets.rules import long_rollouts_with_memory
from gossamer.spaces import Spec
from gossamer.system.options import option, options


@options
class NStepQ(OnPolicyValues):
    """One gradient step per rollout. The target of Q(x_t, a_t) is the sum of the discounted rewards to the end of the
    rollout and the discounted value of its last observation by the target network; with `double`, of the action that
    the network itself prefers there. There is no correction for actions that were not the best ones. With
    `rescale_values` the network learns h(target), and the value is h^-1 of the target network's (`rescaling`)."""

    on_policy = True

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
    double: bool = option("The network chooses the action whose value the target network gives.", False)
    dueling: bool = option("Heads for the state's value and for the advantages of actions.", False)
    huber: bool = option("Errors above 1 count linearly; otherwise all are squared.", False)
    loss_scale: float = option("Factor of the whole loss (A3C: sums over 5 steps).", 1.0, above=0)
    target_period: int = option(
        "Between two copies to the target network; 0: none.", 50, least=0, most=10**9, measure="updates"
    )
    exploration: Exploration = EXPLORATION("schedule")
    epsilon_start: float = EPSILON_START(1.0)
    epsilon_end: float = EPSILON_END(0.01)
    epsilon_steps: int = EPSILON_STEPS(100_000)

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """A torso with a head of action values, and a target network."""
        model = QNetwork(spec, network, dueling=self.dueling, returns=self.scale.returns)
        if self.target_period:
            add_target(model)
        return model

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        target_net = target_by_version(model, self.target_period)
        estimate: Valued = self.scale.estimate(DoubleQ(self.gamma, model)) if self.double else self
        reward = own_rewards(estimate, target_net, batch)
        target = self.scale.of(n_step(reward, batch.discount, self._bootstrap(model, target_net, batch)))
        q = q_of(model, batch, ACTED).flatten(0, 1)
        yield q_learning(q, batch.action.flatten(), target.flatten(), huber=self.huber, scale=self.loss_scale)

    @torch.no_grad()
    def _bootstrap(self, model: nn.Module, target_net: nn.Module, batch: Trajectory) -> Tensor:
        """The value [B] of a rollout's last observation."""
        with evaluating(target_net):
            older = q_of(target_net, batch, LAST)[0]
        if not self.double:
            return self.scale.returns(older.amax(-1))
        with evaluating(model):
            best = q_of(model, batch, LAST)[0].argmax(-1, keepdim=True)
        return self.scale.returns(older.gather(-1, best).squeeze(-1))

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("exploration ends after a tenth of the run", rules=(explore_a_tenth,)),
        Layer(
            "42x42 pictures centred on their background, a small network (not tuned; no full run of Pong yet)",
            {
                "screen_size": 42,
                "rollout_length": 5,
                "learning_rate": 1e-3,
                "final_fraction": 0.1,
                "max_grad_norm": 10.0,
            },
            kind="pixels",
        ),
        Layer(
            "tried on Catch",
            {
                "rollout_length": 8,
                "gamma": 0.98,
                "target_period": 20,
                "epsilon_end": 0.05,
                "learning_rate": 1e-3,
                "final_fraction": 0.0,
                "max_grad_norm": 10.0,
            },
            (normalize_layers, long_rollouts_with_memory),
            kind="vector",
        ),
        Layer("80 steps between updates", {"num_envs": 16}, kind="pixels", beside=("paac",)),
        Layer(
            "tuned on CartPole-v1, tried on Catch: 16 steps between updates",
            {"num_envs": 4, "rollout_length": 4, "target_period": 100},
            (long_rollouts_with_memory,),
            kind="vector",
            beside=("paac",),
        ),
    )
