"""One-step Q-learning and one-step Sarsa without replay (Mnih et al. 2016, algorithm 1 and section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gossamer.algorithms.action_values import OnPolicyValues, normalize_layers
from gossamer.algorithms.base import evaluating, own_rewards
from gossamer.algorithms.exploration import (
    EPSILON_END,
    EPSILON_START,
    EPSILON_STEPS,
    EXPLORATION,
    Exploration,
    epsilon_of,
    explore_a_tenth,
)
from gossamer.algorithms.losses import Loss, q_learning
from gossamer.algorithms.rescaling import Scale
from gossamer.algorithms.sequences import ACTED, NEXT, q_of
from gossamer.algorithms.target import add_target, target_by_version
from gossamer.data import Trajectory, Tree
from gossamer.nn.networks import Network, QNetwork, action_values
from gossamer.presets.layers import Layer
from gossamer.presets.rules import long_rollouts_with_memory
from gossamer.spaces import IMPOSSIBLE, Spec
from gossamer.system.options import option, options


@options
class OneStep(OnPolicyValues):
    """Options of both. One gradient step per rollout, from the squared errors of all its steps. With `rescale_values`
    the network learns h(target), and values in targets are h^-1 of the target network's outputs (`rescaling`)."""

    on_policy = True

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
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

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("exploration ends after a tenth of the run", rules=(explore_a_tenth,)),
        Layer(
            "as nstep-q: 42x42 pictures centred on their background, a small network (not tuned)",
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
            "as nstep-q",
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
        Layer("few environments: more updates", {"num_envs": 8}, kind="vector", beside=("paac",)),
    )


@options
class OneStepQ(OneStep):
    """The target of Q(x_t, a_t) is r_t + discount_t * max_a Q(x_{t+1}, a) by the target network."""

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        """See `Algorithm`."""
        target_net = target_by_version(model, self.target_period)
        reward = own_rewards(self, target_net, batch)
        with torch.no_grad(), evaluating(target_net):
            following = self.scale.returns(q_of(target_net, batch, NEXT).amax(-1))  # [T, B]
        yield _loss(self, q_of(model, batch, ACTED), batch, reward + batch.discount * following)


@options
class Sarsa(OneStep):
    """The target of Q(x_t, a_t) is r_t + discount_t * Q(x_{t+1}, a_{t+1}) by the target network, where a_{t+1} is the
    action that was taken next.

    After the last step of a rollout, and where an episode was truncated, that action is not known. Its expected value
    takes its place: the network's best action with probability 1 - epsilon, else a random one. That has the same mean,
    and less variance."""

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        """See `Algorithm`."""
        target_net = target_by_version(model, self.target_period)
        reward = own_rewards(AtEnd(self.gamma, self.scale, model, batch), target_net, batch)
        with torch.no_grad(), evaluating(target_net):
            older = self.scale.returns(q_of(target_net, batch, NEXT))  # [T, B, A]
        own = q_of(model, batch, slice(None))  # [T+1, B, A]
        with torch.no_grad():
            chosen = older[:-1].gather(2, batch.action[1:].unsqueeze(2)).squeeze(2)
            epsilon = epsilon_of(batch.behaviour[-1], valid(own[-2]).sum(-1))
            following = torch.cat([chosen, expected(older[-1], own[-1], epsilon).unsqueeze(0)])
        yield _loss(self, own[ACTED], batch, reward + batch.discount * following)


@dataclass(frozen=True)
class AtEnd:
    """Expected values of the next actions after the final observations of a batch."""

    gamma: float
    scale: Scale
    chooses: nn.Module  # the network whose best actions the policy prefers
    batch: Trajectory

    @torch.no_grad()
    def value(self, model: nn.Module, obs: Tensor, state: Tree) -> Tensor:
        """Their expected values [F] by the network `model`, for the F final observations."""
        times, envs = zip(*((final.t, final.b) for final in self.batch.finals), strict=True)
        with evaluating(self.chooses):
            before, _ = action_values(
                self.chooses, self.batch.obs[times, envs], state
            )  # any state: the mask is as good
            epsilon = epsilon_of(self.batch.behaviour[times, envs], valid(before).sum(-1))
            own, older = (action_values(each, obs, state)[0] for each in (self.chooses, model))
            return expected(self.scale.returns(older), own, epsilon)


def valid(q: Tensor) -> Tensor:
    """Which actions [.., A] are, of action values [.., A]."""
    return q > IMPOSSIBLE / 2


def expected(q: Tensor, own: Tensor, epsilon: Tensor) -> Tensor:
    """Expected value [B] of the next action: the mean of q [B, A] over the epsilon-greedy policy that prefers the best
    actions of `own` [B, A]. `epsilon`: [B]."""
    best = q.gather(-1, own.argmax(-1, keepdim=True)).squeeze(-1)
    random = q.masked_fill(~valid(own), 0.0).sum(-1) / valid(own).sum(-1)
    return (1 - epsilon) * best + epsilon * random


def _loss(options: OneStep, q: Tensor, batch: Trajectory, target: Tensor) -> Loss:
    """The loss of action values [T, B, A] and target returns [T, B]."""
    target = options.scale.of(target).flatten()
    return q_learning(q.flatten(0, 1), batch.action.flatten(), target, huber=options.huber, scale=options.loss_scale)
