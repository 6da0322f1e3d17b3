"""An architecture and an algorithm of a user's own. All that they need stands here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import nn

from gossamer.algorithms.base import PolicyGradient, evaluate
from gossamer.algorithms.losses import Loss
from gossamer.algorithms.returns import n_step
from gossamer.architectures.paac import PAAC
from gossamer.data import Trajectory
from gossamer.presets.layers import Layer
from gossamer.program import Program
from gossamer.system.options import option, options
from gossamer.task import Task


@options
class Toy:
    """One learner that does everything."""

    num_envs: int = option("How many.", 4, least=1, most=100)
    envelope: int = option("An option that no other part has.", 1, least=1)

    algorithms: ClassVar[tuple[str, ...]] = ("toys:Rule", "a2c")
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("for all", {"num_envs": 5}),
        Layer("beside the rule", {"envelope": 2}, kind="vector", beside=("toys:Rule",)),
        Layer(
            "the toy's paper",
            {"num_envs": 2, "tilt": 0.25, "optimizer": "rmsprop-tf", "epsilon": 0.1, "steps": 77},
            preset="paper",
            beside=("toys:Rule",),
        ),
    )

    def program(self, task: Task) -> Program:
        return PAAC(num_envs=self.num_envs, env_workers=1).program(task)


@options
class Rule(PolicyGradient):
    """REINFORCE, with a factor."""

    gamma: float = option("Discount.", 0.99, least=0, most=1)
    tilt: float = option("A factor of the loss.", 1.0, above=0)

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("tried on pictures", {"rollout_length": 3, "tilt": 0.5}, kind="pixels"),
        Layer("tried on vectors", {"rollout_length": 7, "tilt": 2.0, "learning_rate": 2e-3}, kind="vector"),
    )

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        target = n_step(batch.reward, batch.discount, batch.value[-1])
        policy, value = evaluate(model, batch)
        advantage = target.flatten() - value
        loss = -(advantage.detach() * policy.log_prob(batch.action.flatten(0, 1))).mean() + advantage.square().mean()
        yield Loss(self.tilt * loss, {"policy_loss": loss.detach()})


@options
class Misspelt(Rule):
    """Its presets have an option that no part has."""

    presets: ClassVar[tuple[Layer, ...]] = (Layer("tried", {"rollout_lenght": 3}),)
