"""Asynchronous PPO: the clipped surrogate on V-trace advantages ("Accelerating Distributed Deep Reinforcement
Learning", RLDM 2019), with a target network as in IMPACT (Luo et al. 2019) and the proximal policy of decoupled PPO
(Hilton, Cobbe and Schulman 2021)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from gossamer.algorithms.base import (
    ENTROPY_FINAL,
    PolicyGradient,
    annealed,
    corrected,
    evaluate_to_end,
    evaluating,
    observe,
    own_rewards,
    return_scaling,
)
from gossamer.algorithms.losses import Loss, ppo
from gossamer.algorithms.minibatches import advantages, minibatches
from gossamer.algorithms.ppo import PPO
from gossamer.algorithms.returns import VTrace
from gossamer.algorithms.target import add_target, target_of
from gossamer.data import Trajectory
from gossamer.nn.networks import Network
from gossamer.presets.layers import Layer
from gossamer.spaces import Spec
from gossamer.system.options import option, options

IMPACT_BETA = 0.5  # the ratio's denominator is at least this fraction of mu(a)


@options
class AsyncPPO(PolicyGradient):
    """Minibatches over batches that may be older than the current policy.

    mu is the policy that acted, pi the one that learns, and pi_old the target network or, without one, pi before the
    batch's first update. V-trace, with pi_old, gives value targets and advantages; without lag the losses are PPO's.
    `surrogate` selects the ratio that is clipped: `behaviour` pi / mu (RLDM 2019), `impact` pi / max(pi_old, mu / 2)
    (IMPACT), and `decoupled` pi / pi_old with the weight min(rho_bar, pi_old / mu) (decoupled PPO), which clips the
    size of an update however old the batch is."""

    on_policy = False

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
    gae_lambda: float = option("Lambda of the V-trace returns.", 0.95, least=0, most=1)
    rho_bar: float = option("Importance weights are at most this.", 1.0, above=0)
    c_bar: float = option("Importance weights that multiply along the rollout are at most this.", 1.0, least=0)
    value_coef: float = option("Weight of the value loss.", 1.0, least=0)
    entropy_coef: float = option("Weight of the entropy bonus.", 0.01, least=0)
    entropy_final_fraction: float = option(ENTROPY_FINAL, 1.0, least=0, most=1)
    clip_range: float = option("The probability ratio is clipped to 1 +- this.", 0.3, above=0)
    epochs: int = option("Passes over each batch at a time.", 1, least=1, most=1000)
    num_minibatches: int = option("Minibatches per pass.", 4, least=1, most=65_536)
    normalize_advantage: bool = option("To mean 0, deviation 1 in each minibatch (with memory: batch).", False)
    surrogate: Literal["behaviour", "impact", "decoupled"] = option("Denominator of the clipped ratio.", "decoupled")
    target_period: int = option(
        "Batches between two copies to the target network, each pass counts; 0: none.",
        0,
        least=0,
        most=1_000_000,
        measure="passes",
    )

    def model(self, spec: Spec, network: Network) -> nn.Module:
        model = super().model(spec, network)
        if self.target_period:
            add_target(model)
        return model

    def at(self, progress: float) -> AsyncPPO:
        return annealed(self, progress)

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        trace, advantage, log_old = self._trace(target_of(model, self.target_period), batch)
        scaled = return_scaling(model, batch, trace.target)
        anchor, weight = self._anchor(batch.behaviour, log_old, trace.weight)
        action, returns = batch.action.flatten(0, 1), scaled(trace.target.flatten())
        advantage, anchor, weight = scaled(advantage.flatten()), anchor.flatten(), weight.flatten()
        advantage_of = advantages(advantage, batch, normalize=self.normalize_advantage)
        passes = minibatches(model, batch, rng, count=self.num_minibatches, epochs=self.epochs)
        for index, policy, value in passes:
            yield ppo(
                policy,
                scaled(value, index),
                action[index],
                returns[index],
                advantage_of(index),
                anchor[index],
                weight=weight[index],
                clip_range=self.clip_range,
                value_coef=self.value_coef,
                entropy_coef=self.entropy_coef,
            )
        observe(model, batch, trace.target)

    @torch.no_grad()
    def _trace(self, old: nn.Module, batch: Trajectory) -> tuple[VTrace, Tensor, Tensor]:
        """V-trace with pi_old, advantages [T, B], and ln pi_old(a) [T, B].

        A_t = r_t + discount_t * (V(x_{t+1}) + lambda * (v_{t+1} - V(x_{t+1}))) - V(x_t): without lag it is GAE's
        advantage, with lambda 1 V-trace's."""
        reward = own_rewards(self, old, batch)
        with evaluating(old):
            policy, value = evaluate_to_end(old, batch)
        log_old = policy.log_prob(batch.action.flatten(0, 1)).view_as(batch.behaviour)
        trace = corrected(self, batch, reward, value, log_old)
        beyond = torch.cat([trace.target[1:], value[-1:]]) - value[1:]
        return trace, trace.advantage - (1 - self.gae_lambda) * batch.discount * beyond, log_old

    def _anchor(self, behaviour: Tensor, log_old: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The logarithm [T, B] of the ratio's denominator, and the surrogate's weight [T, B]."""
        if self.surrogate == "behaviour":
            return behaviour, torch.ones_like(weight)
        if self.surrogate == "impact":
            return torch.maximum(log_old, behaviour + math.log(IMPACT_BETA)), torch.ones_like(weight)
        return log_old, weight

    presets: ClassVar[tuple[Layer, ...]] = (
        *(replace(each, why=f"as PPO: {each.why}") for each in PPO.presets if each.preset == "tuned"),
        Layer(
            "a schedule and a clip range tuned on Pong",
            {"entropy_final_fraction": 0.1, "clip_range": 0.15, "anneal_from": 0.35, "final_fraction": 0.15},
            kind="pixels",
        ),
    )
