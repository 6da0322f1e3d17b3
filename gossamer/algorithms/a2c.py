"""Advantage actor-critic, synchronous (Mnih et al. 2016, alg. S3; Clemente et al. 2017, alg. 1)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from gossamer.algorithms.base import ENTROPY_FINAL, PolicyGradient, annealed, evaluate, observe, return_scaling
from gossamer.data import Trajectory
from gossamer.losses import Loss, a2c
from gossamer.options import option, options
from gossamer.returns import lambda_returns


@options
class A2C(PolicyGradient):
    """One gradient step per rollout. `gae_lambda` = 1 gives the papers' n-step returns."""

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
    gae_lambda: float = option("Lambda of returns and advantages; 1: n-step returns.", 1.0, least=0, most=1)
    value_coef: float = option("Weight of the value loss.", 0.5, least=0)
    entropy_coef: float = option("Weight of the entropy bonus.", 0.01, least=0)
    entropy_final_fraction: float = option(ENTROPY_FINAL, 1.0, least=0, most=1)
    loss_scale: float = option("Factor of the whole loss (PAAC: 5, tuned for sums over 5 steps).", 1.0, above=0)

    def at(self, progress: float) -> A2C:
        return annealed(self, progress)

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        # On policy, the values computed when acting are valid targets; the second forward pass is for the gradient.
        target = lambda_returns(batch.reward, batch.discount, batch.value, self.gae_lambda)
        scaled = return_scaling(model, target)  # first: the first rollout sets the units of the network's values
        policy, value = evaluate(model, batch)
        yield a2c(
            policy,
            scaled(value),
            batch.action.flatten(0, 1),
            scaled(target.flatten()),
            scaled((target - batch.value[:-1]).flatten()),
            value_coef=self.value_coef,
            entropy_coef=self.entropy_coef,
            scale=self.loss_scale,
        )
        observe(model, batch, target)
