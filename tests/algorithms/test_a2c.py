"""A2C on a rollout whose loss is worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from gossamer.algorithms import A2C
from gossamer.data import Trajectory
from gossamer.spaces.distributions import Categorical

LN2 = math.log(2)


class Learns(nn.Module):
    """Two actions, one value for everything, as parameters."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.logits, self.value = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.tensor(value))

    def forward(self, obs: Tensor) -> tuple[Categorical, Tensor]:
        return Categorical(self.logits.expand(len(obs), -1)), self.value.expand(len(obs))


def rollout() -> Trajectory:
    """T = 2, B = 1. Rewards 1 and 2, discount 1/2, V(x_2) = 4: R_1 = 2 + 4 / 2 = 4, R_0 = 1 + 4 / 2 = 3."""
    slot = Trajectory.empty(2, 1, (3,), torch.float32)
    slot.reward.copy_(torch.tensor([[1.0], [2.0]]))
    slot.discount.fill_(0.5)
    slot.value.copy_(torch.tensor([[1.0], [1.0], [4.0]]))
    slot.action.copy_(torch.tensor([[0], [1]]))
    return slot


def test_the_loss_by_hand() -> None:
    # Advantages 3 - 1 = 2 and 4 - 1 = 3 by the values of acting, ln pi = -ln 2: policy loss 2.5 ln 2.
    # The learning network's value is 0: errors 3 and 4, mean square 12.5. Entropy ln 2.
    (loss,) = A2C(gae_lambda=1.0, value_coef=0.5, entropy_coef=0.1, loss_scale=2.0).losses(
        Learns(), rollout(), torch.Generator()
    )
    assert loss.parts["policy_loss"].item() == pytest.approx(2.5 * LN2)
    assert loss.parts["value_loss"].item() == pytest.approx(12.5)
    assert loss.parts["entropy"].item() == pytest.approx(LN2)
    assert loss.total.item() == pytest.approx(2 * (2.5 * LN2 + 0.5 * 12.5 - 0.1 * LN2))


def test_a_floor_of_probabilities_takes_the_gradient_of_rarer_actions() -> None:
    # Both actions have probability 1/2: below the floor 0.6, each counts as ln 0.6, a constant. Advantages 2 and 3.
    model = Learns()
    algorithm = A2C(gae_lambda=1.0, value_coef=0.0, entropy_coef=0.0, log_epsilon=0.6)
    (loss,) = algorithm.losses(model, rollout(), torch.Generator())
    assert loss.parts["policy_loss"].item() == pytest.approx(-2.5 * math.log(0.6))
    (floored,) = torch.autograd.grad(loss.total, model.logits)
    assert floored.tolist() == [0.0, 0.0]
    (loss,) = replace(algorithm, log_epsilon=0.4).losses(model, rollout(), torch.Generator())
    assert loss.parts["policy_loss"].item() == pytest.approx(2.5 * LN2)
    (free,) = torch.autograd.grad(loss.total, model.logits)
    assert free.tolist() == [pytest.approx(0.25), pytest.approx(-0.25)]  # mean of -2 (1/2, -1/2) and -3 (-1/2, 1/2)


def test_lambda_mixes_the_returns() -> None:
    # lambda 0: R_1 = 2 + 4 / 2 = 4, R_0 = 1 + 1 / 2 = 1.5; mean square (2.25 + 16) / 2 = 9.125
    (loss,) = A2C(gae_lambda=0.0).losses(Learns(), rollout(), torch.Generator())
    assert loss.parts["value_loss"].item() == pytest.approx(9.125)


def test_an_end_keeps_episodes_apart() -> None:
    # After a discount of 0 at t = 0, R_0 = 1: mean square of 1 and 4 is 8.5
    ended = rollout()
    ended.discount[0] = 0
    (loss,) = A2C().losses(Learns(), ended, torch.Generator())
    assert loss.parts["value_loss"].item() == pytest.approx(8.5)


def test_gradients_of_the_value_come_from_the_learning_pass_alone() -> None:
    # d/dV of 0.5 * mean((R - V)^2) at V = 0: -mean(R) = -3.5
    batch = replace(rollout(), value=rollout().value.requires_grad_())
    model = Learns()
    (loss,) = A2C(value_coef=0.5, entropy_coef=0.0).losses(model, batch, torch.Generator())
    loss.total.backward()
    assert batch.value.grad is None
    assert model.value.grad is not None
    assert model.value.grad.item() == pytest.approx(-3.5)


def test_what_turned_out_better_becomes_likelier() -> None:
    # The gradient of -mean(A ln pi(a)) in logit 0, pi = 1/2: (-2 * (1 - 1/2) + 3 * 1/2) / 2 = 0.25; in logit 1: -0.25
    model = Learns()
    (loss,) = A2C(value_coef=0.0, entropy_coef=0.0).losses(model, rollout(), torch.Generator())
    loss.total.backward()
    assert model.logits.grad is not None
    assert model.logits.grad.tolist() == pytest.approx([0.25, -0.25])
