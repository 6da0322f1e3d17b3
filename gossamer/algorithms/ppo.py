"""Proximal policy optimisation (Schulman et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from gossamer.algorithms.base import Network, actor_critic, critic, sample
from gossamer.data import Action, Trajectory
from gossamer.distributions import Space
from gossamer.losses import Loss, ppo
from gossamer.options import option, options
from gossamer.returns import lambda_returns


@options
class PPO:
    """Several epochs of minibatches over each rollout, with the probability ratio clipped to 1 +- `clip_range`."""

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
    gae_lambda: float = option("Lambda of returns and advantages (GAE).", 0.95, least=0, most=1)
    value_coef: float = option("Weight of the value loss.", 1.0, least=0)
    entropy_coef: float = option("Weight of the entropy bonus.", 0.01, least=0)
    clip_range: float = option("The probability ratio is clipped to 1 +- this.", 0.3, above=0)
    epochs: int = option("Passes over each rollout.", 3, least=1, most=1000)
    num_minibatches: int = option("Minibatches per epoch.", 4, least=1, most=65_536)
    normalize_advantage: bool = option("To mean 0 and standard deviation 1 in each minibatch.", False)

    def model(self, obs_shape: tuple[int, ...], actions: Space, network: Network) -> nn.Module:
        return actor_critic(obs_shape, actions, network)

    def act(self, model: nn.Module, obs: Tensor, rng: torch.Generator, *, greedy: bool = False) -> Action:
        return sample(model, obs, rng, greedy=greedy)

    def value(self, model: nn.Module, obs: Tensor) -> Tensor:
        return critic(model, obs)

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        target = lambda_returns(batch.reward, batch.discount, batch.value, self.gae_lambda)
        advantage = (target - batch.value[:-1]).flatten()
        obs, action, target = batch.obs[:-1].flatten(0, 1), batch.action.flatten(0, 1), target.flatten()
        behaviour = batch.behaviour.flatten()
        for _ in range(self.epochs):
            order = torch.randperm(batch.steps, generator=rng, device=action.device)
            for index in order.tensor_split(self.num_minibatches):
                policy, value = model(obs[index])
                yield ppo(
                    policy,
                    value,
                    action[index],
                    target[index],
                    _normalised(advantage[index]) if self.normalize_advantage else advantage[index],
                    behaviour[index],
                    clip_range=self.clip_range,
                    value_coef=self.value_coef,
                    entropy_coef=self.entropy_coef,
                )


def _normalised(advantage: Tensor) -> Tensor:
    """Scale advantages [N] to mean 0 and standard deviation 1."""
    return (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
