"""Proximal policy optimization (Schulman et al. 2017)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from gossamer.algorithms.base import ENTROPY_FINAL, PolicyGradient, annealed, observe, return_scaling
from gossamer.algorithms.losses import Loss, ppo
from gossamer.algorithms.minibatches import advantages, minibatches
from gossamer.algorithms.returns import lambda_returns
from gossamer.data import Trajectory
from gossamer.presets import accelerated
from gossamer.presets.layers import Layer
from gossamer.presets.rules import critic_without_memory, returns_with_memory, small_minibatches
from gossamer.system.options import option, options


def small_steps_with_memory(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Tuned on Pong with an LSTM and single frames. At the rate of networks without memory, 1e-3, each update moves the
    policy too far (a KL of 0.09), and returns stop growing at -5. The schedule is the one that it was tuned with."""
    if values["memory"] == "none":
        return {}
    schedule = {"anneal_from": 0.0, "final_fraction": 0.1, "entropy_final_fraction": 1.0}
    bonus = 0.02 if values["entropy_coef"] else 0.0
    return {"learning_rate": 4e-4, "entropy_coef": bonus, "epochs": 4, "num_minibatches": 4, **schedule}


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
        scaled = return_scaling(model, batch, target)
        advantage = scaled((target - batch.value[:-1]).flatten())
        advantage_of = advantages(advantage, batch, normalize=self.normalize_advantage)
        returns, action, behaviour = scaled(target.flatten()), batch.action.flatten(0, 1), batch.behaviour.flatten()
        passes = minibatches(model, batch, rng, count=self.num_minibatches, epochs=self.epochs)
        for index, policy, value in passes:
            yield ppo(
                policy,
                scaled(value, index),
                action[index],
                returns[index],
                advantage_of(index),
                behaviour[index],
                clip_range=self.clip_range,
                value_coef=self.value_coef,
                entropy_coef=self.entropy_coef,
            )
        observe(model, batch, target)

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer(
            "tuned on Pong: 42x42 pictures centred on their background, a small network, small minibatches",
            {
                "screen_size": 42,
                "rollout_length": 50,
                "gae_lambda": 0.95,
                "value_coef": 1.0,
                "entropy_coef": 0.03,
                "clip_range": 0.3,
                "epochs": 3,
                "num_minibatches": 8,
                "normalize_advantage": True,
                "learning_rate": 1e-3,
                "final_fraction": 0.1,
                "max_grad_norm": 10.0,
            },
            (small_steps_with_memory,),
            kind="pixels",
        ),
        Layer(
            "tuned on Catch and CartPole-v1: short rollouts, four passes",
            {
                "rollout_length": 32,
                "gamma": 0.98,
                "gae_lambda": 0.9,
                "value_coef": 0.1,
                "entropy_coef": 0.01,
                "clip_range": 0.2,
                "epochs": 4,
                "num_minibatches": 4,
                "normalize_advantage": True,
                "learning_rate": 1e-3,
                "final_fraction": 0.1,
                "max_grad_norm": 0.5,
            },
            (returns_with_memory,),
            kind="vector",
        ),
        Layer(
            "tried on MuJoCo's Hopper and HalfCheetah: observations and returns normalised, a network for each head",
            {
                "rollout_length": 128,
                "normalize_observations": True,
                "normalize_returns": True,
                "gamma": 0.99,
                "gae_lambda": 0.95,
                "value_coef": 0.5,
                "entropy_coef": 0.0,
                "clip_range": 0.2,
                "epochs": 10,
                "normalize_advantage": True,
                "learning_rate": 1e-3,
                "final_fraction": 0.0,
                "max_grad_norm": 0.5,
            },
            (critic_without_memory, small_minibatches),
            kind="continuous",
        ),
        Layer("as with vectors: no entropy bonus (not tuned)", {"entropy_coef": 0.0}, kind="continuous pixels"),
        accelerated.PPO,
    )
