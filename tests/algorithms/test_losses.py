"""Losses and their gradients against numbers worked out by hand and against per-sample formulas."""

from __future__ import annotations

import itertools
import math
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gossamer.algorithms import losses
from gossamer.algorithms.losses import Loss
from gossamer.spaces.distributions import Categorical, Gaussian

Samples: TypeAlias = dict[str, Any]  # arguments of a loss by name, tensors all

# Two samples, two actions. pi = (1/4, 3/4) with action 1 taken, and (1/2, 1/2) with action 0 taken:
#   log pi(a) = ln 0.75 = -0.287682, ln 0.5 = -0.693147
#   H         = 0.25 ln 4 + 0.75 ln(4/3) = 0.562335, ln 2 = 0.693147; mean 0.627741
SAMPLES: Samples = {
    "logits": torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]]),
    "action": torch.tensor([1, 0]),
    "advantage": torch.tensor([2.0, -1.0]),
    "value": torch.tensor([1.0, 3.0]),
    "target": torch.tensor([2.0, 1.0]),  # errors 1 and -2, mean square 2.5
}


def log_prob(logits: Tensor, action: Tensor) -> Tensor:
    return Categorical(logits).log_prob(action)


def entropy(logits: Tensor) -> Tensor:
    return Categorical(logits).entropy()


def a2c(logits: Tensor, *given: Tensor, **others: Any) -> Loss:
    """With a categorical policy."""
    return losses.a2c(Categorical(logits), *given, **others)


def ppo(logits: Tensor, *, action: Tensor, behaviour: Tensor, **others: Any) -> Loss:
    """With categorical policies: `behaviour` [N, A] are logits too."""
    log_mu = Categorical(behaviour.expand_as(logits)).log_prob(action)
    return losses.ppo(Categorical(logits), action=action, behaviour=log_mu, **others)


def numbers(parts: dict[str, Tensor]) -> dict[str, float]:
    return {name: part.item() for name, part in parts.items()}


def batch(samples: int, actions: int) -> Samples:
    """Random samples in float64; what a network would have put out wants gradients."""
    rng = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    return {
        "logits": normal(samples, actions).requires_grad_(),
        "value": normal(samples).requires_grad_(),
        "action": torch.randint(actions, (samples,), generator=rng),
        "target": normal(samples),
        "advantage": normal(samples),
    }


def policy_alone(logits: Tensor, action: Tensor, advantage: Tensor) -> Samples:
    """Samples whose value is right."""
    zeros = torch.zeros_like(advantage)
    return {"logits": logits, "value": zeros, "action": action, "target": zeros, "advantage": advantage}


def test_log_prob_and_entropy_by_hand() -> None:
    log_pi = log_prob(SAMPLES["logits"], SAMPLES["action"])
    assert log_pi.tolist() == pytest.approx([-0.287682, -0.693147], abs=1e-6)
    assert entropy(SAMPLES["logits"]).tolist() == pytest.approx([0.562335, 0.693147], abs=1e-6)


def test_log_prob_and_entropy_take_any_leading_shape() -> None:
    logits, action = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([[0, 4]] * 3)
    assert_close(log_prob(logits, action)[1], log_prob(logits[1], action[1]))
    assert_close(entropy(logits)[1], entropy(logits[1]))


def test_a_policy_sure_of_itself_has_finite_log_prob_and_no_entropy() -> None:
    # pi(1) = exp(-1000) is 0 in float32, its logarithm is not.
    logits = torch.tensor([[1000.0, 0.0]])
    assert log_prob(logits, torch.tensor([1])).item() == -1000.0
    assert entropy(logits).item() == 0.0


def test_entropy_is_stationary_at_the_uniform_policy_and_not_beside_it() -> None:
    logits = torch.tensor([[3.0, 3.0, 3.0], [3.0, 3.0, 3.5]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(entropy(logits).sum(), logits)
    assert gradient[0].abs().max().item() < 1e-12
    assert gradient[1].abs().min().item() > 0.01


def test_a2c_by_hand() -> None:
    # policy: -(2 * -0.287682 + -1 * -0.693147) / 2 = -0.058891
    # total:  5 * (-0.058891 - 0.1 * 0.627741 + 0.25 * 2.5) = 5 * 0.503335 = 2.516674
    loss = a2c(**SAMPLES, value_coef=0.25, entropy_coef=0.1, scale=5.0)
    assert loss.total.item() == pytest.approx(2.516674, abs=1e-5)
    expected = {"policy_loss": -0.058891, "value_loss": 2.5, "entropy": 0.627741}
    assert numbers(loss.parts) == pytest.approx(expected, abs=1e-5)


def test_ppo_by_hand() -> None:
    # mu = (1/2, 1/2) twice: ratios 0.75 / 0.5 = 1.5 and 1; clip 0.2
    # policy:  -(min(1.5 * 2, 1.2 * 2) + min(-1, -1)) / 2 = -(2.4 - 1) / 2 = -0.7
    # total:   -0.7 + 0.5 * 0.5 * 2.5 - 0.1 * 0.627741 = -0.137774
    # kl:      ((1.5 - 1 - ln 1.5) + 0) / 2 = 0.094535 / 2 = 0.047267; one ratio of two left the clip
    loss = ppo(**SAMPLES, behaviour=torch.zeros(2, 2), clip_range=0.2, value_coef=0.5, entropy_coef=0.1)
    assert loss.total.item() == pytest.approx(-0.137774, abs=1e-5)
    expected = {"policy_loss": -0.7, "value_loss": 2.5, "entropy": 0.627741, "kl": 0.047267, "clip_fraction": 0.5}
    assert numbers(loss.parts) == pytest.approx(expected, abs=1e-5)


def test_ppo_reports_the_kl_of_the_policies() -> None:
    # With each action seen as often as mu (uniform over 4) takes it, the estimate is the KL itself.
    logits = torch.tensor([[0.3, -1.2, 0.8, 0.0]], dtype=torch.float64)
    exact = sum(0.25 * (math.log(0.25) - log_pi) for log_pi in torch.log_softmax(logits, -1)[0].tolist())
    data = policy_alone(logits.expand(4, 4), torch.arange(4), torch.zeros(4, dtype=torch.float64))
    loss = ppo(**data, behaviour=torch.zeros_like(data["logits"]), clip_range=0.2, value_coef=0.5, entropy_coef=0.0)
    assert loss.parts["kl"].item() == pytest.approx(exact, abs=1e-12)


def test_parts_are_scalars_without_a_graph_and_the_total_has_one() -> None:
    data = batch(6, 3)
    for loss in (
        a2c(**data, value_coef=0.25, entropy_coef=0.01),
        ppo(**data, behaviour=data["logits"], clip_range=0.2, value_coef=0.5, entropy_coef=0.01),
    ):
        assert loss.total.requires_grad
        assert loss.total.ndim == 0
        assert all(part.ndim == 0 and not part.requires_grad for part in loss.parts.values())


def test_on_policy_ppo_has_the_policy_gradient_of_a2c() -> None:
    # At ratio 1 the gradient of the ratio is that of log pi. The graph of the behaviour logits must not cancel it.
    data = batch(8, 4)
    one = a2c(**data, value_coef=0.0, entropy_coef=0.01).total
    other = ppo(**data, behaviour=data["logits"], clip_range=0.2, value_coef=0.0, entropy_coef=0.01).total
    (expected,) = torch.autograd.grad(one, data["logits"])
    (gradient,) = torch.autograd.grad(other, data["logits"])
    assert expected.abs().max().item() > 0.01
    assert_close(gradient, expected)


@pytest.mark.parametrize(
    ("mu", "advantage", "moves"),
    [
        (0.3, 1.0, False),  # ratio 0.5 / 0.3 = 1.67: raised past 1.2 already, and asked for more
        (0.3, -1.0, True),  # as far, but to be lowered again
        (0.8, -1.0, False),  # ratio 0.625: lowered past 0.8 already, and asked for less
        (0.8, 1.0, True),  # as far, but to be raised again
        (0.45, 1.0, True),  # ratio 1.11: inside the clip
        (0.45, -1.0, True),
    ],
)
def test_ppo_has_no_policy_gradient_past_the_clip(mu: float, advantage: float, moves: bool) -> None:
    # pi = (1/2, 1/2), action 0. Where it moves, d(-ratio A)/dlogit_0 = -ratio A (1 - pi_0), for logit_1 the opposite.
    logits, behaviour = torch.zeros(1, 2, requires_grad=True), torch.tensor([[math.log(mu), math.log(1.0 - mu)]])
    data = policy_alone(logits, torch.tensor([0]), torch.tensor([advantage]))
    loss = ppo(**data, behaviour=behaviour, clip_range=0.2, value_coef=0.5, entropy_coef=0.0)
    (gradient,) = torch.autograd.grad(loss.total, logits)
    expected = -0.5 / mu * advantage * 0.5 if moves else 0.0
    assert gradient[0].tolist() == pytest.approx([expected, -expected])


def test_target_and_advantage_are_constants() -> None:
    # Callers may hand over tensors with a graph: the value learns from its squared error alone, 2 cost (V - R) / N.
    data = batch(5, 3)
    value, target = data["value"], data["target"].requires_grad_()
    data["advantage"] = target - value
    error = (value - target).detach() / 5
    for total, expected in (
        (a2c(**data, value_coef=0.5, entropy_coef=0.0).total, error),
        (ppo(**data, behaviour=data["logits"], clip_range=0.2, value_coef=0.5, entropy_coef=0.0).total, 0.5 * error),
    ):
        by_value, by_target = torch.autograd.grad(total, [value, target], allow_unused=True)
        assert_close(by_value, expected)
        assert by_target is None


def test_the_entropy_bonus_drives_towards_the_uniform_policy() -> None:
    logits = torch.tensor([[0.0, 1.0, -1.0]], requires_grad=True)
    data = policy_alone(logits, torch.tensor([0]), torch.zeros(1))
    for loss in (
        a2c(**data, value_coef=0.5, entropy_coef=0.1),
        ppo(**data, behaviour=logits, clip_range=0.2, value_coef=0.5, entropy_coef=0.1),
    ):
        (gradient,) = torch.autograd.grad(loss.total, logits)
        assert entropy(logits - gradient).item() > entropy(logits).item()


def a3c_gradient(
    policy: Tensor, critic: Tensor, x: Tensor, action: int, target: Tensor, advantage: Tensor, beta: float
) -> tuple[Tensor, Tensor]:
    """One step's share of A3C's gradient, to be descended, for logits x @ policy [A] and value x @ critic []:

    d(-A log pi(a) - beta H)/dlogit_k = A (pi_k - [k = a]) + beta pi_k (log pi_k + H)
    d(0.25 (R - V)^2)/dV              = -(R - V) / 2
    """
    weights = (x @ policy).exp()
    pi = weights / weights.sum()
    h = -(pi * pi.log()).sum()
    by_logit = advantage * pi + beta * pi * (pi.log() + h)
    by_logit[action] -= advantage
    return torch.outer(x, by_logit), -0.5 * (target - x @ critic) * x


def test_paac_takes_the_sum_of_the_a3c_gradients_of_its_environments() -> None:
    # Learning rate 0.0007 n_e, loss scale 5, value cost 0.25 and means over 5 n_e samples, against 0.0007 times the sum
    # over n_e environments of what an A3C worker sums over its 5 steps.
    envs, t_max, features, actions, beta = 3, 5, 2, 4, 0.02
    rng = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    policy, critic = normal(features, actions).requires_grad_(), normal(features).requires_grad_()
    x, target, advantage = normal(t_max, envs, features), normal(t_max, envs), normal(t_max, envs)
    action = torch.randint(actions, (t_max, envs), generator=rng)

    flat = x.flatten(0, 1)
    samples = (flat @ policy, flat @ critic, action.flatten(), target.flatten(), advantage.flatten())
    total = a2c(*samples, value_coef=0.25, entropy_coef=beta, scale=5.0).total
    by_policy, by_critic = torch.autograd.grad(total, [policy, critic])

    sum_policy, sum_critic = torch.zeros_like(policy), torch.zeros_like(critic)
    with torch.no_grad():
        for t, e in itertools.product(range(t_max), range(envs)):
            sample = (x[t, e], int(action[t, e]), target[t, e], advantage[t, e])
            share = a3c_gradient(policy, critic, *sample, beta)
            sum_policy, sum_critic = sum_policy + share[0], sum_critic + share[1]
    assert_close(0.0007 * envs * by_policy, 0.0007 * sum_policy)
    assert_close(0.0007 * envs * by_critic, 0.0007 * sum_critic)


@pytest.mark.parametrize("name", ["value", "action", "target", "advantage"])
def test_losses_refuse_what_would_broadcast(name: str) -> None:
    data = batch(6, 3)
    data[name] = data[name].unsqueeze(1)  # [N, 1]
    with pytest.raises(AssertionError, match=name):
        a2c(**data, value_coef=0.25, entropy_coef=0.01)
    with pytest.raises(AssertionError, match=name):
        ppo(**data, behaviour=data["logits"], clip_range=0.2, value_coef=0.5, entropy_coef=0.01)


def test_losses_refuse_other_shapes_of_policies() -> None:
    data = batch(6, 3)
    policy, rest = Categorical(data["logits"]), {name: data[name] for name in data if name != "logits"}
    with pytest.raises(AssertionError, match="behaviour"):
        losses.ppo(policy, **rest, behaviour=torch.zeros(6, 3), clip_range=0.2, value_coef=0.5, entropy_coef=0.01)
    with pytest.raises(AssertionError, match="parameters"):
        losses.a2c(Categorical(torch.zeros(2, 3, 3)), **rest, value_coef=0.25, entropy_coef=0.01)


def test_the_losses_take_every_kind_of_action() -> None:
    # One continuous action of a standard normal policy, drawn at its mean 0: ln p = -ln(2 pi) / 2 = -0.918939, and
    # H = (1 + ln(2 pi)) / 2 = 1.418939. Advantage 2: a policy loss of 1.837877; at ratio 1 PPO's is -2.
    policy, action = Gaussian(torch.zeros(1, 2)), torch.zeros(1, 1)
    value, target, advantage = torch.tensor([1.0]), torch.tensor([1.0]), torch.tensor([2.0])
    loss = losses.a2c(policy, value, action, target, advantage, value_coef=0.5, entropy_coef=0.0)
    assert loss.parts["policy_loss"].item() == pytest.approx(1.837877, abs=1e-6)
    assert loss.parts["entropy"].item() == pytest.approx(1.418939, abs=1e-6)
    behaviour = torch.tensor([-0.918939])
    other = losses.ppo(
        policy, value, action, target, advantage, behaviour, clip_range=0.2, value_coef=0.5, entropy_coef=0.0
    )
    assert other.parts["policy_loss"].item() == pytest.approx(-2.0, abs=1e-5)
