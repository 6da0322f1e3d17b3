"""The four RMSProps against steps worked out by hand, torch's own, and their own continuation from saved state."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gossamer.nn.optim import (
    Form,
    RAdam,
    RMSProp,
    RMSPropA3C,
    RMSPropDQN,
    RMSPropOptions,
    RMSPropTF,
    RMSPropTorch,
    rmsprop_a3c,
    rmsprop_dqn,
    rmsprop_tf,
    rmsprop_torch,
)

FORMS = [rmsprop_a3c, rmsprop_tf, rmsprop_torch, rmsprop_dqn]


def path(optimizer: torch.optim.Optimizer, p: Tensor, gradients: Sequence[float]) -> list[float]:
    """Where the one parameter stands after each step."""
    seen = []
    for g in gradients:
        p.grad = torch.full_like(p, g)
        optimizer.step()
        seen.append(p.item())
    return seen


def one() -> Tensor:
    return torch.ones((), dtype=torch.float64, requires_grad=True)


def tensors(seed: int) -> list[Tensor]:
    """Parameters of a small network, float32."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=rng).requires_grad_() for shape in ((4, 3), (4,), (2, 2, 3))]


def train(optimizer: torch.optim.Optimizer, params: list[Tensor], seed: int, steps: int) -> None:
    """Steps with random gradients over five orders of magnitude."""
    rng = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=rng) * 10.0 ** torch.randint(-4, 2, p.shape, generator=rng)
        optimizer.step()


def test_a3c_by_hand() -> None:
    # lr 0.4, decay 0.75, eps 3; p = 1, m = 0
    # g  2: m = 0.25 * 4 = 1                 root of  4 = 2, p = 1   - 0.4 * 2 / 2  = 0.6
    # g -1: m = 0.75 * 1  + 0.25 * 1  = 1    root of  4 = 2, p = 0.6 + 0.4 * 1 / 2  = 0.8
    # g  7: m = 0.75 * 1  + 0.25 * 49 = 13   root of 16 = 4, p = 0.8 - 0.4 * 7 / 4  = 0.1
    p = one()
    assert path(rmsprop_a3c([p], lr=0.4, decay=0.75, eps=3.0), p, [2.0, -1.0, 7.0]) == pytest.approx([0.6, 0.8, 0.1])


def test_tf_by_hand() -> None:
    # lr 0.4, decay 0.75, eps 3; p = 1, m = 1
    # g  1: m = 0.75 * 1  + 0.25 * 1  = 1    root of  4 = 2, p = 1   - 0.4 * 1 / 2  = 0.8
    # g -7: m = 0.75 * 1  + 0.25 * 49 = 13   root of 16 = 4, p = 0.8 + 0.4 * 7 / 4  = 1.5
    # g  7: m = 0.75 * 13 + 0.25 * 49 = 22   root of 25 = 5, p = 1.5 - 0.4 * 7 / 5  = 0.94
    p = one()
    assert path(rmsprop_tf([p], lr=0.4, decay=0.75, eps=3.0), p, [1.0, -7.0, 7.0]) == pytest.approx([0.8, 1.5, 0.94])


def test_torch_by_hand() -> None:
    # lr 0.4, decay 0.75, eps 3; p = 1, m = 0
    # g  4: m = 0.25 * 16 = 4                root 2 + 3 = 5,            p = 1    - 0.4 * 4 / 5      = 0.68
    # g -2: m = 0.75 * 4  + 0.25 * 4  = 4    root 2 + 3 = 5,            p = 0.68 + 0.4 * 2 / 5      = 0.84
    # g  6: m = 0.75 * 4  + 0.25 * 36 = 12   root 3.464102 + 3,         p = 0.84 - 2.4 / 6.464102   = 0.468719
    p = one()
    seen = path(rmsprop_torch([p], lr=0.4, decay=0.75, eps=3.0), p, [4.0, -2.0, 6.0])
    assert seen == pytest.approx([0.68, 0.84, 0.468719], abs=1e-6)


def test_dqn_by_hand() -> None:
    # lr 0.3, decay 0.5, eps 1.25; p = 1, m = n = 0
    # g  2: n = 1,                  m = 2,              variance 2 - 1    = 1,      root of 2.25   = 1.5
    # g -2: n = 0.5   - 1   = -0.5, m = 1   + 2   = 3,  variance 3 - 1/4  = 2.75,   root of 4      = 2
    # g  1: n = -0.25 + 0.5 = 0.25, m = 1.5 + 0.5 = 2,  variance 2 - 1/16 = 1.9375, root of 3.1875 = 1.785357
    # p = 1 - 0.3 * 2 / 1.5 = 0.6, then 0.6 + 0.3 * 2 / 2 = 0.9, then 0.9 - 0.3 / 1.785357 = 0.731967
    p = one()
    seen = path(rmsprop_dqn([p], lr=0.3, decay=0.5, eps=1.25), p, [2.0, -2.0, 1.0])
    assert seen == pytest.approx([0.6, 0.9, 0.731967], abs=1e-6)


@pytest.mark.parametrize(
    ("form", "denominator"),
    [
        (rmsprop_a3c, math.sqrt(0.01 + 0.1)),  # m = 0.01 * 1
        (rmsprop_tf, math.sqrt(1.0 + 0.1)),  # m = 0.99 * 1 + 0.01 * 1
        (rmsprop_torch, math.sqrt(0.01) + 0.01),
        (rmsprop_dqn, math.sqrt(0.05 - 0.0025 + 0.01)),  # m = 0.05, n = 0.05
    ],
)
def test_the_same_gradient_is_four_different_steps_at_the_published_settings(form: Form, denominator: float) -> None:
    p = one()
    assert path(form([p], lr=0.01), p, [1.0]) == pytest.approx([1.0 - 0.01 / denominator])


@pytest.mark.parametrize("centred", [False, True])
def test_eps_outside_and_a_start_at_zero_are_torch_rmsprop(centred: bool) -> None:
    ours, theirs = tensors(0), tensors(0)
    one_way = RMSProp(ours, 0.01, decay=0.9, eps=0.02, inside=False, start=0.0, centred=centred)
    other = torch.optim.RMSprop(theirs, 0.01, alpha=0.9, eps=0.02, centered=centred)
    train(one_way, ours, seed=1, steps=20)
    train(other, theirs, seed=1, steps=20)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b)


def test_rmsprop_torch_is_torch_rmsprop() -> None:
    ours, theirs = tensors(0), tensors(0)
    train(rmsprop_torch(ours, 0.01), ours, seed=1, steps=20)
    train(torch.optim.RMSprop(theirs, 0.01, alpha=0.99, eps=0.01), theirs, seed=1, steps=20)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b)


def a3c_step(p: Tensor, g: Tensor, state: dict[str, Tensor], lr: float, decay: float, eps: float) -> None:
    m = state.setdefault("m", torch.zeros_like(p)).mul_(decay).addcmul_(g, g, value=1.0 - decay)
    p.addcdiv_(g, (m + eps).sqrt(), value=-lr)


def tf_step(p: Tensor, g: Tensor, state: dict[str, Tensor], lr: float, decay: float, eps: float) -> None:
    m = state.setdefault("m", torch.ones_like(p)).mul_(decay).addcmul_(g, g, value=1.0 - decay)
    p.addcdiv_(g, (m + eps).sqrt(), value=-lr)


def torch_step(p: Tensor, g: Tensor, state: dict[str, Tensor], lr: float, decay: float, eps: float) -> None:
    m = state.setdefault("m", torch.zeros_like(p)).mul_(decay).addcmul_(g, g, value=1.0 - decay)
    p.addcdiv_(g, m.sqrt() + eps, value=-lr)


def dqn_step(p: Tensor, g: Tensor, state: dict[str, Tensor], lr: float, decay: float, eps: float) -> None:
    m = state.setdefault("m", torch.zeros_like(p)).mul_(decay).addcmul_(g, g, value=1.0 - decay)
    n = state.setdefault("n", torch.zeros_like(p)).lerp_(g, 1.0 - decay)
    p.addcdiv_(g, (m.addcmul(n, n, value=-1.0).clamp_min(0.0) + eps).sqrt(), value=-lr)


@pytest.mark.parametrize(
    ("options", "slow"),
    [
        (RMSPropA3C(decay=0.9, epsilon=0.02), a3c_step),
        (RMSPropTF(decay=0.9, epsilon=0.02), tf_step),
        (RMSPropTorch(decay=0.9, epsilon=0.02), torch_step),
        (RMSPropDQN(decay=0.9, epsilon=0.02), dqn_step),
    ],
    ids=lambda each: type(each).__name__,
)
def test_every_form_is_its_formula_to_the_bit(options: RMSPropOptions, slow: Callable[..., None]) -> None:
    ours, theirs = tensors(0), tensors(0)
    optimizer, states = options.make(ours, 0.01), [dict[str, Tensor]() for _ in theirs]
    for step in range(20):
        train(optimizer, ours, seed=step, steps=1)
        with torch.no_grad():
            for p, mine, state in zip(theirs, ours, states, strict=True):
                assert mine.grad is not None
                slow(p, mine.grad, state, lr=0.01, decay=0.9, eps=0.02)
    assert all(map(torch.equal, ours, theirs))


def test_the_first_five_steps_of_radam_are_those_of_the_mean_gradient() -> None:
    # With torch's beta_2 of 0.999 the length of the mean of squares is above 5 from the sixth step on (Liu et al. 2020,
    # algorithm 2). Before, p -= lr * m / (1 - 0.9^t); with equal gradients that mean is the gradient. After, the step
    # is that of Adam, lr * 1, times sqrt((rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho))
    p = one()
    seen = path(RAdam(epsilon=1e-12).make([p], 0.01), p, [2.0] * 6)
    assert seen[:5] == pytest.approx([1 - 0.02 * step for step in range(1, 6)])
    infinite = 2 / (1 - 0.999) - 1
    rho = infinite - 2 * 6 * 0.999**6 / (1 - 0.999**6)
    assert rho > 5
    factor = ((rho - 4) * (rho - 2) * infinite / ((infinite - 4) * (infinite - 2) * rho)) ** 0.5
    assert seen[5] == pytest.approx(seen[4] - 0.01 * factor)


@pytest.mark.parametrize(
    ("form", "published"),
    [(rmsprop_a3c, (0.99, 0.1)), (rmsprop_tf, (0.99, 0.1)), (rmsprop_torch, (0.99, 0.01)), (rmsprop_dqn, (0.95, 0.01))],
)
def test_a_form_has_its_published_settings(form: Form, published: tuple[float, float]) -> None:
    (group,) = form([one()], lr=0.1).param_groups
    assert (group["decay"], group["eps"]) == published


def test_the_start_at_one_makes_the_first_steps_of_tf_shorter_and_is_forgotten() -> None:
    # g = 0.1, eps = 0.01. First step: m = 0.99 + 0.0001 = 0.9901 from 1 and 0.0001 from 0, so the first is
    # sqrt(0.0101 / 1.0001), a tenth, of the second. The start's share of m is 0.99^t: after 1000 steps 4e-5, beside
    # m + eps = 0.02, which is 0.1 % of the step.
    tf, a3c = one(), one()
    slow = pairwise([1.0, *path(rmsprop_tf([tf], lr=1e-3, eps=0.01), tf, [0.1] * 1000)])
    fast = pairwise([1.0, *path(rmsprop_a3c([a3c], lr=1e-3, eps=0.01), a3c, [0.1] * 1000)])
    ratios = [(s0 - s1) / (f0 - f1) for (s0, s1), (f0, f1) in zip(slow, fast, strict=True)]
    assert ratios[0] == pytest.approx(math.sqrt(0.0101 / 1.0001), rel=1e-6)
    assert all(early < late < 1.0 for early, late in pairwise(ratios))
    assert ratios[-1] > 0.998


def test_dqn_takes_the_same_steps_from_a_mean_when_eps_is_scaled_with_it() -> None:
    # A mean's gradients over 32 samples are 1/32 of a sum's. For the root to be 1/32 too, eps has to follow squared.
    by_sum, by_mean = one(), one()
    gradients = [3.0, -1.0, 0.5, 2.0]
    expected = path(rmsprop_dqn([by_sum], lr=0.01, eps=0.01), by_sum, gradients)
    scaled = path(rmsprop_dqn([by_mean], lr=0.01, eps=0.01 / 32**2), by_mean, [g / 32 for g in gradients])
    assert scaled == pytest.approx(expected, rel=1e-12)


def test_a_constant_gradient_has_no_variance_and_no_nan() -> None:
    # In float32 m - n^2 of a constant gradient comes out as much as 4e-7 g^2 below zero: for g = 1000 more than eps.
    p = torch.zeros(1000, requires_grad=True)
    optimizer = rmsprop_dqn([p], lr=1e-6)
    p.grad = torch.linspace(1.0, 1000.0, 1000)
    for _ in range(500):
        optimizer.step()
    assert p.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
def test_training_goes_on_bit_for_bit_from_saved_state(form: Form) -> None:
    params = tensors(0)
    optimizer = form(params, 0.01)
    train(optimizer, params, seed=1, steps=5)
    optimizer.param_groups[0]["lr"] = 0.003
    saved, there = copy.deepcopy(optimizer.state_dict()), [p.detach().clone().requires_grad_() for p in params]

    resumed = form(there, 0.5, decay=0.5, eps=7.0)  # the saved options win
    resumed.load_state_dict(saved)
    train(optimizer, params, seed=2, steps=5)
    train(resumed, there, seed=2, steps=5)
    assert all(map(torch.equal, params, there))


@pytest.mark.parametrize(
    ("form", "expected"), [(rmsprop_tf, {"square": 1.0}), (rmsprop_dqn, {"square": 0.0, "mean": 0.0})]
)
def test_state_is_whole_before_the_first_step(form: Form, expected: dict[str, float]) -> None:
    params = tensors(0)
    state = form(params, 0.01).state_dict()["state"]
    assert list(state) == [0, 1, 2]
    for i, p in enumerate(params):
        assert {name: tensor.unique().tolist() for name, tensor in state[i].items()} == {
            k: [v] for k, v in expected.items()
        }
        assert all(tensor.shape == p.shape and not tensor.requires_grad for tensor in state[i].values())


def test_the_learning_rate_can_be_changed_between_steps() -> None:
    # As in test_a3c_by_hand, with the second step at half and the third at no rate: 0.6, 0.6 + 0.1, and no move.
    p = one()
    optimizer = rmsprop_a3c([p], lr=0.4, decay=0.75, eps=3.0)
    seen = path(optimizer, p, [2.0])
    for lr, g in ((0.2, -1.0), (0.0, 7.0)):
        optimizer.param_groups[0]["lr"] = lr
        seen += path(optimizer, p, [g])
    assert seen == pytest.approx([0.6, 0.7, 0.7])


def test_groups_keep_their_own_options() -> None:
    # As in test_a3c_by_hand: the first step of each is lr * g / 2.
    a, b, c = one(), one(), one()
    groups: list[dict[str, Any]] = [{"params": [a]}, {"params": [b], "lr": 0.2}]
    optimizer = rmsprop_a3c(groups, lr=0.4, decay=0.75, eps=3.0)
    optimizer.add_param_group({"params": [c], "lr": 0.1})
    for p in (a, b, c):
        p.grad = torch.full_like(p, 2.0)
    optimizer.step()
    assert [a.item(), b.item(), c.item()] == pytest.approx([0.6, 0.8, 0.9])


def test_parameters_without_a_gradient_are_left_alone() -> None:
    moved, still = one(), one()
    optimizer = rmsprop_tf([moved, still], lr=0.1)
    moved.grad = torch.full_like(moved, 2.0)
    optimizer.step()
    assert moved.item() < 1.0
    assert still.item() == 1.0
    assert optimizer.state[still]["square"].item() == 1.0


@pytest.mark.parametrize(
    ("option", "value"),
    [("lr", -0.1), ("lr", math.nan), ("decay", 1.0), ("decay", -0.1), ("eps", 0.0), ("eps", math.nan), ("start", -1.0)],
)
def test_numbers_out_of_range_are_refused_by_name(option: str, value: float) -> None:
    options: dict[str, Any] = {"lr": 0.01, "decay": 0.99, "eps": 0.1, "start": 0.0, option: value}
    with pytest.raises(ValueError, match=f"{option}={value}"):
        RMSProp([one()], inside=True, **options)
