"""Distributions over actions against torch.distributions, by numerical integration, and by what they draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor
from torch import distributions as theirs
from torch.func import functional_call

from gossamer.spaces import Box, Discrete, GaussianHead, MultiBinary, MultiDiscrete, Space, StateGaussianHead
from gossamer.spaces.distributions import Distribution

BATCH = (3, 5)


@dataclass(frozen=True)
class Case:
    space: Space
    theirs: Callable[[Tensor], list[theirs.Distribution]]  # independent components of the same distribution


def normal(parameters: Tensor) -> list[theirs.Distribution]:
    mean, log_std = parameters.chunk(2, -1)
    return [theirs.Independent(theirs.Normal(mean, log_std.exp()), 1)]


CASES = {
    "discrete": Case(Discrete(4), lambda p: [theirs.Categorical(logits=p)]),
    "multi-discrete": Case(
        MultiDiscrete((2, 3, 4)), lambda p: [theirs.Categorical(logits=part) for part in p.split((2, 3, 4), -1)]
    ),
    "multi-binary": Case(MultiBinary(3), lambda p: [theirs.Independent(theirs.Bernoulli(logits=p), 1)]),
    "box": Case(Box((-1.0, -2.0), (1.0, math.inf)), normal),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def parameters(space: Space, seed: int = 0, scale: float = 2.0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return scale * torch.randn((*BATCH, space.outputs), generator=rng, dtype=torch.float64)


def components(action: Tensor, each: list[theirs.Distribution]) -> list[Tensor]:
    return [action] if len(each) == 1 else list(action.unbind(-1))


def total(values: list[Tensor]) -> Tensor:
    return torch.stack(values).sum(0)


@cases
def test_they_equal_torch_s(case: Case) -> None:
    ours, other = (case.space.distribution(parameters(case.space, seed)) for seed in (0, 1))
    each, others = case.theirs(ours.parameters), case.theirs(other.parameters)
    action = ours.sample(torch.Generator().manual_seed(2))
    assert action.shape == (*BATCH, *case.space.shape)
    of_theirs = zip(components(action.double(), each), each, strict=True)
    torch.testing.assert_close(ours.log_prob(action), total([d.log_prob(a) for a, d in of_theirs]))
    torch.testing.assert_close(ours.entropy(), total([d.entropy() for d in each]))
    pairs = zip(each, others, strict=True)
    torch.testing.assert_close(ours.kl(other), total([theirs.kl_divergence(p, q) for p, q in pairs]))
    torch.testing.assert_close(ours.kl(ours), torch.zeros(BATCH, dtype=torch.float64))


@cases
def test_what_is_drawn_has_the_probability_that_is_said(case: Case) -> None:
    # Over many draws the mean of -ln p(a) is the entropy, and of ln p(a) - ln q(a) the KL divergence
    draws = 200_000
    p, q = (parameters(case.space, seed, scale=0.7)[0, 0].expand(draws, -1) for seed in (0, 1))
    ours, other = case.space.distribution(p), case.space.distribution(q)
    action = ours.sample(torch.Generator().manual_seed(0))
    assert -ours.log_prob(action).mean().item() == pytest.approx(ours.entropy()[0].item(), abs=0.02)
    drawn = (ours.log_prob(action) - other.log_prob(action)).mean().item()
    assert drawn == pytest.approx(ours.kl(other)[0].item(), abs=0.02)


@cases
def test_nothing_is_more_probable_than_the_mode(case: Case) -> None:
    ours = case.space.distribution(parameters(case.space))
    best = ours.log_prob(ours.mode())
    for seed in range(50):
        assert (ours.log_prob(ours.sample(torch.Generator().manual_seed(seed))) <= best + 1e-12).all()


def check_sums(space: Space, actions: Tensor, parameters: Tensor, others: Tensor, weight: float = 1.0) -> None:
    """Sums over `actions` [N, *A], times `weight`: p gives 1, -p ln p the entropy, and p ln(p / q) the KL divergence.
    `parameters` [P] of p, and `others` of q."""
    p, q = space.distribution(parameters), space.distribution(others)
    log_p, log_q = (space.distribution(each.parameters.expand(len(actions), -1)).log_prob(actions) for each in (p, q))
    assert weight * log_p.exp().sum().item() == pytest.approx(1.0)
    assert weight * -(log_p.exp() * log_p).sum().item() == pytest.approx(p.entropy().item())
    assert weight * (log_p.exp() * (log_p - log_q)).sum().item() == pytest.approx(p.kl(q).item())


@pytest.mark.parametrize(
    ("space", "sizes"),
    [(Discrete(4), [4]), (MultiDiscrete((2, 3, 4)), [2, 3, 4]), (MultiBinary(3), [2, 2, 2])],
    ids=["discrete", "multi-discrete", "multi-binary"],
)
def test_discrete_kinds_by_sums_over_all_actions(space: Space, sizes: list[int]) -> None:
    actions = torch.cartesian_prod(*map(torch.arange, sizes))  # every action once; [N] of one choice
    for p, q in zip(parameters(space).flatten(0, 1), parameters(space, 1).flatten(0, 1), strict=True):
        check_sums(space, actions, p, q)


@pytest.mark.parametrize(
    ("p", "q", "points"),
    [
        ([0.3, -0.5], [-0.4, 0.2], 3_001),
        ([0.3, -1.2, -0.5, 0.4], [-0.4, 0.1, 0.2, -0.3], 601),  # two means, then two logarithms of deviations
    ],
    ids=["one dimension", "two dimensions"],
)
def test_gaussians_by_numerical_integration(p: list[float], q: list[float], points: int) -> None:
    # On a grid wide and fine enough, sums are integrals; deviations are between exp(-0.5) = 0.6 and exp(0.4) = 1.5
    line, size = torch.linspace(-15, 15, points, dtype=torch.float64), len(p) // 2
    grid = torch.cartesian_prod(*[line] * size).view(-1, size)
    space, width = Box((-1.0,) * size, (1.0,) * size), (line[1] - line[0]).item()
    check_sums(space, grid, *(torch.tensor(each, dtype=torch.float64) for each in (p, q)), weight=width**size)


def quantities(action: Tensor, other: Distribution) -> list[Callable[[Distribution], Tensor]]:
    return [lambda d: d.log_prob(action), lambda d: d.entropy(), lambda d: d.kl(other)]


@cases
def test_gradients_are_those_of_finite_differences(case: Case) -> None:
    start = parameters(case.space, scale=0.5)
    action = case.space.distribution(start).sample(torch.Generator().manual_seed(0))
    start.requires_grad_()
    other = case.space.distribution(parameters(case.space, 1))
    for quantity in quantities(action, other):
        assert torch.autograd.gradcheck(lambda x, f=quantity: f(case.space.distribution(x)), start)


@cases
def test_a_generator_decides_what_is_drawn(case: Case) -> None:
    ours = case.space.distribution(parameters(case.space))
    one, same, other = (ours.sample(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert one.dtype in (torch.int64, torch.float64)  # continuous actions have the parameters' precision


@cases
def test_actions_of_another_shape_are_refused(case: Case) -> None:
    ours = case.space.distribution(parameters(case.space))
    with pytest.raises(AssertionError, match="actions are"):
        ours.log_prob(torch.zeros((*BATCH, *case.space.shape, 1), dtype=torch.int64))


def test_random_actions_are_uniform_and_within_bounds() -> None:
    rng = np.random.default_rng(0)
    assert np.bincount(Discrete(4).random(rng, 40_000)) == pytest.approx(10_000, rel=0.05)
    several = MultiDiscrete((2, 5)).random(rng, 50_000)
    assert several.shape == (50_000, 2)
    assert np.bincount(several[:, 1]) == pytest.approx(10_000, rel=0.05)
    assert MultiBinary(3).random(rng, 10_000).mean(0) == pytest.approx(0.5, abs=0.02)
    found = Box((-1.0, 5.0, -math.inf, -math.inf), (3.0, math.inf, math.inf, -2.0)).random(rng, 100_000)
    assert found.dtype == np.float32
    assert (found[:, 0].min(), found[:, 0].max()) == pytest.approx((-1, 3), abs=0.01)
    assert found[:, 0].mean() == pytest.approx(1.0, abs=0.02)
    assert found[:, 2].std() == pytest.approx(1.0, abs=0.02)
    # With one bound: half of a normal distribution, whose mean is sqrt(2 / pi) = 0.798
    assert found[:, 1].min() >= 5.0
    assert found[:, 1].mean() == pytest.approx(5.798, abs=0.02)
    assert found[:, 3].max() <= -2.0
    assert found[:, 3].mean() == pytest.approx(-2.798, abs=0.02)


def test_what_is_out_of_bounds_is_clipped_for_the_environment() -> None:
    box = Box((-1.0, 0.0), (1.0, math.inf))
    assert box.to_env(np.array([[-3.0, -3.0], [0.5, 7.0]], np.float32)).tolist() == [[-1.0, 0.0], [0.5, 7.0]]
    assert MultiBinary(2).to_env(np.array([[0, 1]])).dtype == np.int8
    actions = np.array([3, 1])
    assert Discrete(4).to_env(actions) is actions


def test_the_gaussian_s_deviation_does_not_depend_on_the_observation() -> None:
    head = GaussianHead(7, 2, log_std=-0.5)
    out = head(torch.randn(5, 7))
    assert out.shape == (5, 4)
    assert (out[:, 2:] == -0.5).all()
    assert len(out[:, :2].unique(dim=0)) == 5
    out.sum().backward()
    assert head.log_std.grad is not None
    assert head.log_std.grad.tolist() == [5.0, 5.0]


def a_state_head(log_std: list[float]) -> StateGaussianHead:
    """A head whose means are 0 and whose logarithms of deviations are these, before they are limited."""
    head = StateGaussianHead(3, len(log_std))
    torch.nn.init.zeros_(head.linear.weight)
    with torch.no_grad():
        head.linear.bias.copy_(torch.tensor([0.0] * len(log_std) + log_std))
    return head


def test_deviations_that_depend_on_the_observation_are_limited() -> None:
    out = a_state_head([-1_000.0, -5.1, -4.9, 0.7, 1.9, 2.1, 1_000.0])(torch.randn(1, 3))
    assert out[0, 7:].tolist() == pytest.approx([-5.0, -5.0, -4.9, 0.7, 1.9, 2.0, 2.0])
    assert out[0, :7].tolist() == [0.0] * 7


def test_gradients_of_a_state_head_are_those_of_finite_differences() -> None:
    # Also of deviations at their limits, whose gradients are 0
    space, head = Box((-1.0,) * 4, (1.0,) * 4), a_state_head([-6.0, -0.5, 0.5, 3.0]).double()
    rng = torch.Generator().manual_seed(0)
    weight, bias = (each.detach().clone() for each in (head.linear.weight, head.linear.bias))
    weight += 0.1 * torch.randn(weight.shape, generator=rng, dtype=torch.float64)
    features = torch.randn(5, 3, generator=rng, dtype=torch.float64)
    action = 0.1 * torch.randn(5, 4, generator=rng, dtype=torch.float64)
    other = space.distribution(0.1 * torch.randn(5, 8, generator=rng, dtype=torch.float64))
    inputs = [each.requires_grad_() for each in (features, weight, bias)]

    def outputs(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        given: Tensor = functional_call(head, {"linear.weight": weight, "linear.bias": bias}, (features,))
        return given

    for quantity in quantities(action, other):
        assert torch.autograd.gradcheck(lambda *x, f=quantity: f(space.distribution(outputs(*x))), inputs)
