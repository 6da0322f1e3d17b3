"""Proximal policy optimization (Schulman et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from gossamer.algorithms.base import ENTROPY_FINAL, PolicyGradient, annealed, observe, return_scaling
from gossamer.algorithms.minibatches import advantages, minibatches
from gossamer.data import Trajectory
from gossamer.losses import Loss, ppo
from gossamer.options import option, options
from gossamer.returns import lambda_returns


@options
class PPO(PolicyGradient):
    """Several epochs of minibatches over each rollout, with the probability ratio clipped to 1 +- `clip_range`."""

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
    gae_lambda: float = option("Lambda of returns and advantages (GAE).", 0.95, least=0, most=1)
    value_coef: float = option("Weight of the value loss.", 1.0, least=0)
    entropy_coef: float = option("Weight of the entropy bonus.", 0.01, least=0)
    entropy_final_fraction: float = option(ENTROPY_FINAL, 1.0, least=0, most=1)
    clip_range: float = option("The probability ratio is clipped to 1 +- this.", 0.3, above=0)
    epochs: int = option("Passes over each rollout.", 3, least=1, most=1000)
    num_minibatches: int = option("Minibatches per epoch.", 4, least=1, most=65_536)
    normalize_advantage: bool = option("To mean 0, deviation 1 in each minibatch (with memory: batch).", False)

    def at(self, progress: float) -> PPO:
        return annealed(self, progress)

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        target = lambda_returns(batch.reward, batch.discount, batch.value, self.gae_lambda)
        scaled = return_scaling(model, target)
        advantage = scaled(target - batch.value[:-1]).flatten()
        advantage_of = advantages(advantage, batch, normalize=self.normalize_advantage)
        returns, action, behaviour = scaled(target.flatten()), batch.action.flatten(0, 1), batch.behaviour.flatten()
        passes = minibatches(model, batch, rng, count=self.num_minibatches, epochs=self.epochs)
        for index, policy, value in passes:
            yield ppo(
                policy,
                scaled(value),
                action[index],
                returns[index],
                advantage_of(index),
                behaviour[index],
                clip_range=self.clip_range,
                value_coef=self.value_coef,
                entropy_coef=self.entropy_coef,
            )
        observe(model, batch, target)
