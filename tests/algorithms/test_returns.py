"""Returns against numbers worked out by hand, against the definitions they shorten, and by their properties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from gossamer.algorithms.returns import lambda_returns, n_step, n_step_of_each, vtrace


@dataclass(frozen=True)
class Rollout:
    reward: Tensor  # [T, B]
    discount: Tensor  # [T, B]
    value: Tensor  # [T+1, B]


@st.composite
def rollouts(draw: st.DrawFn, envs: int | None = None) -> Rollout:
    """Rollouts of 1 to 6 steps of 1 to 3 environments in float64, some steps of which end an episode."""
    steps, width = draw(st.integers(1, 6)), envs or draw(st.integers(1, 3))
    numbers, discounts = st.floats(-10.0, 10.0, allow_subnormal=False), st.sampled_from([0.0, 0.5, 0.99, 1.0])

    def table(rows: int, elements: st.SearchStrategy[float]) -> Tensor:
        return torch.from_numpy(draw(hnp.arrays(np.float64, (rows, width), elements=elements)))

    return Rollout(table(steps, numbers), table(steps, discounts), table(steps + 1, numbers))


pairs = st.integers(1, 3).flatmap(lambda envs: st.tuples(rollouts(envs), rollouts(envs)))
weights = st.floats(0.0, 1.0, allow_subnormal=False)


def column(*rows: float) -> Tensor:
    """One environment: [len(rows), 1]."""
    return torch.tensor(rows, dtype=torch.float64).unsqueeze(1)


def unrolled(reward: Sequence[float], discount: Sequence[float], bootstrap: float) -> float:
    """r_0 + d_0 r_1 + d_0 d_1 r_2 + .. + (d_0 d_1 ..) bootstrap, term by term."""
    total, weight = 0.0, 1.0
    for r, d in zip(reward, discount, strict=True):
        total += weight * r
        weight *= d
    return total + weight * bootstrap


def test_n_step_by_hand() -> None:
    # First environment, discount 0.5 throughout, bootstrap 8: 3 + 8/2 = 7, 2 + 7/2 = 5.5, 1 + 5.5/2 = 3.75.
    # Second, its episode over after t = 1, bootstrap 6: 1 + 6/2 = 4, then -2 + 0, then 4 - 2/2 = 3.
    reward = torch.tensor([[1.0, 4.0], [2.0, -2.0], [3.0, 1.0]])
    discount = torch.tensor([[0.5, 0.5], [0.5, 0.0], [0.5, 0.5]])
    expected = torch.tensor([[3.75, 3.0], [5.5, -2.0], [7.0, 4.0]])
    assert torch.equal(n_step(reward, discount, torch.tensor([8.0, 6.0])), expected)


def test_lambda_returns_by_hand() -> None:
    # lam 0.5, discount 0.5, V = 9, 4, 6. Last step: 2 + 0.5 * 6 = 5 (both halves of the mix are V_2).
    # First: 1 + 0.5 * (0.5 * V_1 + 0.5 * G_1) = 1 + 0.5 * (2 + 2.5) = 3.25. V_0 plays no part.
    returns = lambda_returns(column(1.0, 2.0), column(0.5, 0.5), column(9.0, 4.0, 6.0), 0.5)
    assert torch.equal(returns, column(3.25, 5.0))


@given(rollouts())
def test_n_step_is_the_sum_it_stands_for(rollout: Rollout) -> None:
    reward, discount, bootstrap = rollout.reward.tolist(), rollout.discount.tolist(), rollout.value[-1].tolist()
    returns = n_step(rollout.reward, rollout.discount, rollout.value[-1])
    for b, last in enumerate(bootstrap):
        rewards, discounts = [row[b] for row in reward], [row[b] for row in discount]
        for t in range(len(rewards)):
            assert returns[t, b].item() == pytest.approx(unrolled(rewards[t:], discounts[t:], last), abs=1e-9)


@given(rollouts(), weights)
def test_lambda_returns_are_the_mix_of_all_n_step_returns(rollout: Rollout, lam: float) -> None:
    # With N steps left and G^n bootstrapped at x_{t+n}:
    # (1 - lam) (G^1 + lam G^2 + .. + lam^(N-2) G^(N-1)) + lam^(N-1) G^N.
    steps, envs = rollout.reward.shape
    returns = lambda_returns(rollout.reward, rollout.discount, rollout.value, lam)
    for b in range(envs):
        rewards, discounts = rollout.reward[:, b].tolist(), rollout.discount[:, b].tolist()
        values = rollout.value[:, b].tolist()
        for t in range(steps):
            left = steps - t
            mixed = [unrolled(rewards[t : t + n], discounts[t : t + n], values[t + n]) for n in range(1, left + 1)]
            expected = sum((1.0 - lam) * lam**n * g for n, g in enumerate(mixed[:-1])) + lam ** (left - 1) * mixed[-1]
            assert returns[t, b].item() == pytest.approx(expected, abs=1e-9)


@given(rollouts(), weights)
def test_lambda_returns_less_the_value_are_gae(rollout: Rollout, lam: float) -> None:
    # Schulman et al. 2016, eq. 16: A_t = delta_t + gamma lam delta_{t+1} + .., delta_t = r_t + gamma V_{t+1} - V_t.
    delta = rollout.reward + rollout.discount * rollout.value[1:] - rollout.value[:-1]
    advantage = lambda_returns(rollout.reward, rollout.discount, rollout.value, lam) - rollout.value[:-1]
    for b in range(delta.shape[1]):
        deltas, decays = delta[:, b].tolist(), (lam * rollout.discount[:, b]).tolist()
        for t in range(len(deltas)):
            assert advantage[t, b].item() == pytest.approx(unrolled(deltas[t:], decays[t:], 0.0), abs=1e-9)


@given(rollouts())
def test_lambda_one_is_n_step(rollout: Rollout) -> None:
    returns = lambda_returns(rollout.reward, rollout.discount, rollout.value, 1.0)
    assert torch.equal(returns, n_step(rollout.reward, rollout.discount, rollout.value[-1]))


@given(rollouts())
def test_lambda_zero_is_the_one_step_target(rollout: Rollout) -> None:
    returns = lambda_returns(rollout.reward, rollout.discount, rollout.value, 0.0)
    assert_close(returns, rollout.reward + rollout.discount * rollout.value[1:])


@given(pairs, weights)
def test_two_episodes_in_one_rollout_equal_the_two_apart(pair: tuple[Rollout, Rollout], lam: float) -> None:
    first, second = pair
    first.discount[-1] = 0.0  # its last step ends the episode: what it was bootstrapped with is worth nothing
    reward, discount = torch.cat([first.reward, second.reward]), torch.cat([first.discount, second.discount])
    value = torch.cat([first.value[:-1], second.value])

    apart = [lambda_returns(r.reward, r.discount, r.value, lam) for r in (first, second)]
    assert torch.equal(lambda_returns(reward, discount, value, lam), torch.cat(apart))
    apart = [n_step(r.reward, r.discount, r.value[-1]) for r in (first, second)]
    assert torch.equal(n_step(reward, discount, value[-1]), torch.cat(apart))


@given(rollouts(), weights)
def test_arguments_are_left_as_they_were(rollout: Rollout, lam: float) -> None:
    before = [rollout.reward.clone(), rollout.discount.clone(), rollout.value.clone()]
    lambda_returns(rollout.reward, rollout.discount, rollout.value, lam)
    n_step(rollout.reward, rollout.discount, rollout.value[-1])
    assert all(map(torch.equal, before, [rollout.reward, rollout.discount, rollout.value]))


@pytest.mark.parametrize("bootstrap", [(3, 1), (1,), (3,), ()])
def test_n_step_refuses_a_bootstrap_that_would_broadcast(bootstrap: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError, match="bootstrap"):
        n_step(torch.zeros(4, 2), torch.zeros(4, 2), torch.zeros(bootstrap))


def test_n_step_refuses_other_shapes() -> None:
    with pytest.raises(AssertionError, match="discount"):
        n_step(torch.zeros(4, 2), torch.zeros(4, 1), torch.zeros(2))
    with pytest.raises(AssertionError, match="reward"):
        n_step(torch.zeros(4), torch.zeros(4), torch.zeros(()))
    with pytest.raises(AssertionError, match="T > 0"):
        n_step(torch.zeros(0, 2), torch.zeros(0, 2), torch.zeros(2))


def test_lambda_returns_refuses_values_without_the_last_and_a_strange_lambda() -> None:
    with pytest.raises(AssertionError, match=r"\[T\+1, B\]"):
        lambda_returns(torch.zeros(4, 2), torch.zeros(4, 2), torch.zeros(4, 2), 0.9)
    with pytest.raises(AssertionError, match="lam"):
        lambda_returns(torch.zeros(4, 2), torch.zeros(4, 2), torch.zeros(5, 2), 1.1)


# V-trace


def ratios(rollout: Rollout, seed: int = 0) -> Tensor:
    """ln pi - ln mu [T, B] for a rollout: some actions likelier under pi, some under mu."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(rollout.reward.shape, generator=rng, dtype=torch.float64)


def summed(rollout: Rollout, log_ratio: Tensor, lam: float, rho_bar: float, c_bar: float) -> Tensor:
    """v_s [T, B] by the sum of Espeholt et al. 2018, eq. 1, term by term."""
    r, d, v = rollout.reward, rollout.discount, rollout.value
    rho, c = log_ratio.exp().clamp(max=rho_bar), lam * log_ratio.exp().clamp(max=c_bar)
    target = v[:-1].clone()
    for s in range(len(r)):
        weight = torch.ones_like(v[0])  # discount_s c_s .. discount_{t-1} c_{t-1}
        for t in range(s, len(r)):
            target[s] += weight * rho[t] * (r[t] + d[t] * v[t + 1] - v[t])
            weight = weight * d[t] * c[t]
    return target


def test_vtrace_by_hand() -> None:
    # One environment, discount 1/2, pi twice as likely as mu at t = 0 and half as likely at t = 1; V = 1, 2, 4.
    # rho = c = 1, 1/2. delta_1 = 1/2 (6 + 4/2 - 2) = 3, v_1 = 2 + 3 = 5.
    # delta_0 = 1 (3 + 2/2 - 1) = 3, v_0 = 1 + 3 + 1/2 * 1 * (5 - 2) = 5.5.
    # Advantages: 3 + 5/2 - 1 = 4.5; 6 + 4/2 - 2 = 6.
    found = vtrace(column(3, 6), column(0.5, 0.5), column(1, 2, 4), column(2, 0.5).log())
    assert_close(found.target, column(5.5, 5))
    assert_close(found.advantage, column(4.5, 6))
    assert_close(found.weight, column(1, 0.5))


@given(rollouts(), weights, st.sampled_from([(1.0, 1.0), (2.0, 1.0), (0.5, 0.25), (1.0, 0.0)]))
def test_vtrace_is_its_definition(rollout: Rollout, lam: float, bars: tuple[float, float]) -> None:
    rho_bar, c_bar = bars
    log_ratio = ratios(rollout)
    found = vtrace(
        rollout.reward,
        rollout.discount,
        rollout.value,
        log_ratio,
        lam=lam,
        rho_bar=rho_bar,
        c_bar=c_bar,
        rho_pg_bar=3.0,
    )
    wanted = summed(rollout, log_ratio, lam, rho_bar, c_bar)
    assert_close(found.target, wanted)
    following = torch.cat([wanted[1:], rollout.value[-1:]])
    assert_close(found.advantage, rollout.reward + rollout.discount * following - rollout.value[:-1])
    assert_close(found.weight, log_ratio.exp().clamp(max=3.0))


@given(rollouts(), weights)
def test_on_policy_vtrace_is_the_return(rollout: Rollout, lam: float) -> None:
    same = torch.zeros_like(rollout.reward)
    found = vtrace(rollout.reward, rollout.discount, rollout.value, same)
    assert_close(found.target, n_step(rollout.reward, rollout.discount, rollout.value[-1]))
    found = vtrace(rollout.reward, rollout.discount, rollout.value, same, lam=lam)
    assert_close(found.target, lambda_returns(rollout.reward, rollout.discount, rollout.value, lam))


@given(rollouts())
def test_vtrace_without_traces_is_the_one_step_target(rollout: Rollout) -> None:
    found = vtrace(rollout.reward, rollout.discount, rollout.value, ratios(rollout), c_bar=0.0)
    rho = ratios(rollout).exp().clamp(max=1.0)
    one_step = rollout.reward + rollout.discount * rollout.value[1:]
    assert_close(found.target, rho * one_step + (1 - rho) * rollout.value[:-1])


@given(pairs)
def test_two_episodes_in_one_unroll_have_the_targets_of_the_two_apart(two: tuple[Rollout, Rollout]) -> None:
    first, second = two
    first.discount[-1] = 0.0  # the first episode ends
    reward, discount = torch.cat([first.reward, second.reward]), torch.cat([first.discount, second.discount])
    value = torch.cat([first.value[:-1], second.value])
    log_ratio = torch.cat([ratios(first, 1), ratios(second, 2)])
    together = vtrace(reward, discount, value, log_ratio)
    apart = [vtrace(each.reward, each.discount, each.value, ratios(each, i)) for i, each in enumerate(two, 1)]
    assert_close(together.target, torch.cat([each.target for each in apart]))
    assert_close(together.advantage, torch.cat([each.advantage for each in apart]))


@pytest.mark.parametrize(
    ("given_", "what"),
    [
        ({"lam": 1.5}, "lam is 1.5"),
        ({"c_bar": 2.0}, "not rho_bar >= c_bar"),
        ({"rho_pg_bar": -1.0}, "rho_pg_bar is -1"),
    ],
)
def test_vtrace_refuses_numbers_out_of_range(given_: dict[str, float], what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        vtrace(column(1), column(1), column(1, 1), column(0), **given_)


def test_vtrace_refuses_other_shapes() -> None:
    with pytest.raises(AssertionError, match=r"value is \(1, 1\), not \[T\+1, B\]"):
        vtrace(column(1), column(1), column(1), column(0))
    with pytest.raises(AssertionError, match=r"log_ratio is \(2, 1\)"):
        vtrace(column(1), column(1), column(1, 1), column(0, 0))


def test_returns_of_two_steps_have_one_reward_at_the_end_of_the_rollout() -> None:
    """Discount 0.5, rewards 1, 2, 4, values 8, 16, 32, 64: 1 + 2 / 2 + 32 / 4, 2 + 4 / 2 + 64 / 4, and 4 + 64 / 2."""
    reward = torch.tensor([[1.0], [2.0], [4.0]])
    value = torch.tensor([[8.0], [16.0], [32.0], [64.0]])
    found = n_step_of_each(reward, torch.full_like(reward, 0.5), value, 2)
    assert found.flatten().tolist() == [10.0, 20.0, 36.0]
    ended = n_step_of_each(reward, torch.tensor([[0.5], [0.0], [0.5]]), value, 2)
    assert ended.flatten().tolist() == [1 + 0.5 * 2, 2.0, 36.0]


@given(rollouts(), st.integers(1, 8))
def test_returns_of_each_step_are_those_of_its_own_window(rollout: Rollout, n: int) -> None:
    found = n_step_of_each(rollout.reward, rollout.discount, rollout.value, n)
    steps = len(rollout.reward)
    for t in range(steps):
        end = min(t + n, steps)
        own = n_step(rollout.reward[t:end], rollout.discount[t:end], rollout.value[end])[0]
        assert_close(found[t], own)
