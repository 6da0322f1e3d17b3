"""Actor-critic with V-trace, the algorithm of IMPALA (Espeholt et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import nn

from gossamer.algorithms.base import (
    ENTROPY_FINAL,
    PolicyGradient,
    annealed,
    corrected,
    evaluate_to_end,
    observe,
    own_rewards,
    return_scaling,
)
from gossamer.algorithms.losses import Loss, a2c
from gossamer.data import Trajectory
from gossamer.presets.layers import Layer
from gossamer.presets.rules import critic_without_memory
from gossamer.system.options import option, options


@options
class VTrace(PolicyGradient):
    """One gradient step per batch, corrected for the lag between the policy that acted and the one that learns."""

    on_policy = False

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
    gae_lambda: float = option("Lambda of the returns; 1: n-step returns.", 1.0, least=0, most=1)
    rho_bar: float = option("Importance weights of values and of the policy gradient are at most this.", 1.0, above=0)
    c_bar: float = option("Importance weights that multiply along the rollout are at most this.", 1.0, least=0)
    value_coef: float = option("Weight of the value loss.", 0.5, least=0)
    entropy_coef: float = option("Weight of the entropy bonus.", 0.01, least=0)
    entropy_final_fraction: float = option(ENTROPY_FINAL, 1.0, least=0, most=1)
    loss_scale: float = option("Factor of the whole loss (IMPALA: 640, which sums over 32 x 20 steps).", 1.0, above=0)

    def at(self, progress: float) -> VTrace:
        return annealed(self, progress)

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        reward = own_rewards(self, model, batch)
        policy, value = evaluate_to_end(model, batch)
        action = batch.action.flatten(0, 1)
        log_prob = policy.log_prob(action).detach().view_as(batch.behaviour)
        trace = corrected(self, batch, reward, value.detach(), log_prob)
        scaled = return_scaling(model, batch, trace.target)
        if scaled.first:  # the first rollout has set the units of the network's values
            policy, value = evaluate_to_end(model, batch)
        yield a2c(
            policy,
            scaled(value[:-1].flatten()),
            action,
            scaled(trace.target.flatten()),
            scaled((trace.weight * trace.advantage).flatten()),
            value_coef=self.value_coef,
            entropy_coef=self.entropy_coef,
            scale=self.loss_scale,
        )
        observe(model, batch, trace.target)

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer(
            "tuned on Pong: 42x42 pictures centred on their background, a small network, batches of 160 steps",
            {
                "screen_size": 42,
                "rollout_length": 10,
                "gae_lambda": 0.95,
                "value_coef": 0.5,
                "entropy_coef": 0.003,
                "learning_rate": 1e-3,
                "final_fraction": 0.1,
                "max_grad_norm": 0.5,
            },
            kind="pixels",
        ),
        Layer(
            "the settings of A2C on vectors",
            {
                "rollout_length": 5,
                "gamma": 0.98,
                "gae_lambda": 0.9,
                "value_coef": 0.05,
                "entropy_coef": 0.01,
                "learning_rate": 2e-3,
                "final_fraction": 0.1,
                "max_grad_norm": 0.5,
            },
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
    )
