"""PPO's passes and minibatches: every sample once a pass, and parameters that move between losses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gossamer.algorithms import PPO
from gossamer.algorithms.minibatches import advantages
from gossamer.data import Trajectory
from gossamer.spaces.distributions import Categorical


class Spy(nn.Module):
    """Two actions, one value for everything, as parameters; it keeps what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.logits, self.value = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.tensor(0.0))
        self.seen: list[list[float]] = []

    def forward(self, obs: Tensor) -> tuple[Categorical, Tensor]:
        self.seen.append(obs[:, 0].tolist())
        return Categorical(self.logits.expand(len(obs), -1)), self.value.expand(len(obs))


def rollout(steps: int, envs: int) -> Trajectory:
    """Every observation is its own number; rewards are these numbers, no future. Acted by a uniform policy."""
    slot = Trajectory.empty(steps, envs, (1,), torch.float32)
    slot.behaviour.fill_(math.log(0.5))
    slot.obs.copy_(torch.arange((steps + 1) * envs).view(steps + 1, envs, 1))
    slot.reward.copy_(slot.obs[:-1, :, 0])
    return slot


def test_every_sample_is_learned_from_once_a_pass() -> None:
    spy = Spy()
    losses = PPO(epochs=3, num_minibatches=4).losses(spy, rollout(5, 2), torch.Generator().manual_seed(0))
    assert len(list(losses)) == 12
    assert [len(seen) for seen in spy.seen] == [3, 3, 2, 2] * 3  # 10 samples in four parts
    passes = [[n for part in spy.seen[i : i + 4] for n in part] for i in (0, 4, 8)]
    assert all(sorted(each) == [float(n) for n in range(10)] for each in passes)
    assert passes[0] != passes[1] != passes[2]  # each in an order of its own


def test_a_batch_smaller_than_the_number_of_minibatches_has_none_that_is_empty() -> None:
    spy = Spy()
    losses = list(PPO(epochs=1, num_minibatches=8).losses(spy, rollout(3, 1), torch.Generator().manual_seed(0)))
    assert [len(seen) for seen in spy.seen] == [1, 1, 1]
    assert all(bool(loss.total.isfinite()) for loss in losses)


def test_the_order_comes_from_the_stream_it_is_given() -> None:
    def order(seed: int) -> list[list[float]]:
        spy = Spy()
        list(PPO(epochs=2, num_minibatches=2).losses(spy, rollout(4, 3), torch.Generator().manual_seed(seed)))
        return spy.seen

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_on_policy_the_first_loss_is_that_of_the_plain_gradient() -> None:
    # Rewards, so returns and (values are 0) advantages 0..5: mean 2.5, mean square 55 / 6. The ratio is 1.
    (loss,) = PPO(epochs=1, num_minibatches=1, value_coef=1.0, entropy_coef=0.0).losses(
        Spy(), rollout(3, 2), torch.Generator()
    )
    assert loss.parts["policy_loss"].item() == pytest.approx(-2.5)
    assert loss.parts["value_loss"].item() == pytest.approx(55 / 6)
    assert loss.parts["kl"].item() == pytest.approx(0, abs=1e-6)
    assert loss.parts["clip_fraction"].item() == 0
    assert loss.total.item() == pytest.approx(-2.5 + 55 / 12)


def test_the_next_loss_is_of_the_parameters_as_they_are_then() -> None:
    spy = Spy()
    losses = PPO(epochs=2, num_minibatches=1, clip_range=0.2).losses(spy, rollout(3, 2), torch.Generator())
    first = next(losses)
    with torch.no_grad():
        spy.logits[0] = 1.0  # the actions were all 0: ratio 0.7311 / 0.5 = 1.46
    second = next(losses)
    assert first.parts["clip_fraction"].item() == 0.0
    assert second.parts["clip_fraction"].item() == 1.0
    assert second.parts["policy_loss"].item() == pytest.approx(-1.2 * 2.5)  # clipped to 1 + 0.2
    assert list(losses) == []


def test_the_policy_that_acted_is_the_one_that_is_compared_with() -> None:
    acted = rollout(3, 2)
    acted.behaviour.fill_(math.log(0.731059))  # mu(0) = 0.7311, pi(0) = 0.5: ratio 0.684
    (loss,) = PPO(epochs=1, num_minibatches=1, clip_range=0.5).losses(Spy(), acted, torch.Generator())
    assert loss.parts["policy_loss"].item() == pytest.approx(-0.5 / 0.731059 * 2.5, rel=1e-5)


def test_advantages_are_normalised_in_each_minibatch() -> None:
    # At ratio 1 the policy loss is minus the mean advantage: 0 once normalised. Scaling rewards by 10 changes nothing
    # in the gradient.
    def gradient(factor: float) -> Tensor:
        spy, batch = Spy(), rollout(3, 2)
        batch.action[1:] = 1
        batch = replace(batch, reward=batch.reward * factor)
        (loss,) = PPO(epochs=1, num_minibatches=1, value_coef=0.0, normalize_advantage=True).losses(
            spy, batch, torch.Generator()
        )
        assert loss.parts["policy_loss"].item() == pytest.approx(0, abs=1e-6)
        loss.total.backward()
        assert spy.logits.grad is not None
        return spy.logits.grad

    assert gradient(1.0).tolist() == pytest.approx(gradient(10.0).tolist(), rel=1e-5)


def test_with_memory_advantages_are_normalised_in_each_batch() -> None:
    values, batch = torch.tensor([1.0, 3.0, 5.0, 7.0]), rollout(2, 2)  # mean 4, deviation sqrt(5)
    few = torch.tensor([0, 1])
    forgetful = advantages(values, batch, normalize=True)
    recurrent = advantages(values, replace(batch, state={"hidden": torch.zeros(2, 1)}), normalize=True)
    assert_close(forgetful(few), torch.tensor([-1.0, 1.0]))
    assert_close(recurrent(few), torch.tensor([-3.0, -1.0]) / 5**0.5)
    assert_close(advantages(values, batch, normalize=False)(few), values[few])


def test_a_minibatch_of_equal_advantages_is_no_division_by_zero() -> None:
    batch = rollout(1, 1)
    (loss,) = PPO(epochs=1, num_minibatches=1, normalize_advantage=True).losses(Spy(), batch, torch.Generator())
    assert loss.total.isfinite()
