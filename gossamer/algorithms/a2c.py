"""Advantage actor-critic, synchronous (Mnih et al. 2016, alg. S3; Clemente et al. 2017, alg. 1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import nn

from gossamer.algorithms.base import ENTROPY_FINAL, PolicyGradient, annealed, evaluate, observe, return_scaling
from gossamer.algorithms.losses import Loss, a2c
from gossamer.algorithms.returns import lambda_returns
from gossamer.data import Trajectory
from gossamer.presets import accelerated
from gossamer.presets.layers import Layer
from gossamer.presets.rules import critic_without_memory, long_rollouts_with_memory
from gossamer.system.options import option, options


@options
class A2C(PolicyGradient):
    """One gradient step per rollout. `gae_lambda` = 1 gives the papers' n-step returns."""

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
    gae_lambda: float = option("Lambda of returns and advantages; 1: n-step returns.", 1.0, least=0, most=1)
    value_coef: float = option("Weight of the value loss.", 0.5, least=0)
    entropy_coef: float = option("Weight of the entropy bonus.", 0.01, least=0)
    entropy_final_fraction: float = option(ENTROPY_FINAL, 1.0, least=0, most=1)
    loss_scale: float = option("Factor of the whole loss (PAAC: 5, tuned for sums over 5 steps).", 1.0, above=0)
    log_epsilon: float = option(
        "Least probability of an action in the policy loss (GA3C: 1e-6); 0: none.", 0.0, least=0, below=1
    )

    def at(self, progress: float) -> A2C:
        return annealed(self, progress)

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        # On policy, the values computed when acting are valid targets; the second forward pass is for the gradient.
        target = lambda_returns(batch.reward, batch.discount, batch.value, self.gae_lambda)
        scaled = return_scaling(model, batch, target)  # first: the first rollout sets the units of the network's values
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
            log_epsilon=self.log_epsilon,
        )
        observe(model, batch, target)

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer(
            "tuned on Pong: PAAC's network and rollout, pictures centred on their background, Adam instead of RMSProp",
            {
                "rollout_length": 5,
                "gae_lambda": 1.0,
                "value_coef": 0.5,
                "entropy_coef": 0.01,
                "learning_rate": 1e-3,
                "final_fraction": 0.1,
                "max_grad_norm": 0.5,
            },
            kind="pixels",
        ),
        Layer(
            "tuned on Catch and CartPole-v1: PAAC's rollout",
            {
                "rollout_length": 5,
                "gamma": 0.98,
                "gae_lambda": 0.9,
                "value_coef": 0.05,
                "entropy_coef": 0.01,
                "learning_rate": 1e-3,
                "final_fraction": 0.1,
                "max_grad_norm": 0.5,
            },
            (long_rollouts_with_memory,),
            kind="vector",
        ),
        Layer(
            "observations and returns normalised, a network for each head",
            {
                "rollout_length": 5,
                "normalize_observations": True,
                "normalize_returns": True,
                "gamma": 0.99,
                "gae_lambda": 0.9,
                "value_coef": 0.5,
                "entropy_coef": 0.0,
                "learning_rate": 7e-4,
                "final_fraction": 0.0,
                "max_grad_norm": 0.5,
            },
            (critic_without_memory,),
            kind="continuous",
        ),
        Layer("as with vectors: no entropy bonus (not tuned)", {"entropy_coef": 0.0}, kind="continuous pixels"),
        accelerated.A2C,
    )
