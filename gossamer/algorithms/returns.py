"""Targets of a rollout: pure functions of [T, B] tensors. Time runs 0..T; `discount` alone carries termination.

A `discount` of 0 ends an episode: nothing after it reaches anything before it, so episodes may follow each other in one
rollout. All tensors of a call share one floating dtype and device. Gradients flow through: callers that want constants
(all policy-gradient losses here take theirs as constants) need not detach.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def n_step(reward: Tensor, discount: Tensor, bootstrap: Tensor) -> Tensor:
    """Returns over all that is left of the rollout, then the bootstrap value: [T, B].

        R_t = r_t + discount_t * R_{t+1},   R_T = bootstrap

    Mnih et al. 2016, algorithm S3; the same recursion, over n_e environments at once, is Clemente et al. 2017,
    algorithm 1.

    Args:
        reward: [T, B]  r_t, what action a_t earned.
        discount: [T, B]  gamma * (1 - terminated_t).
        bootstrap: [B]  V(x_T).

    Raises:
        AssertionError: if the shapes are not these, or T is 0.
    """
    assert reward.ndim == 2, f"reward is {tuple(reward.shape)}, not [T, B]"
    assert reward.shape[0] > 0, f"reward is {tuple(reward.shape)}, not [T, B] with T > 0"
    assert discount.shape == reward.shape, f"discount is {tuple(discount.shape)}, reward {tuple(reward.shape)}"
    assert bootstrap.shape == reward.shape[1:], f"bootstrap is {tuple(bootstrap.shape)}, not {tuple(reward.shape[1:])}"

    following, returns = bootstrap, []
    for r, d in zip(reversed(reward.unbind()), reversed(discount.unbind()), strict=True):
        following = torch.addcmul(r, d, following)
        returns.append(following)
    return torch.stack(returns[::-1])


def n_step_of_each(reward: Tensor, discount: Tensor, value: Tensor, n: int) -> Tensor:
    """Returns of n steps from each time of the rollout: [T, B]. Those of its last n - 1 steps have fewer rewards.

        R_t = r_t + discount_t * (r_{t+1} + .. discount_{t+m-1} * V(x_{t+m})),   m = min(n, T - t)

    Args:
        reward: [T, B]  r_t, what action a_t earned.
        discount: [T, B]  gamma * (1 - terminated_t).
        value: [T+1, B]  V(x_0) .. V(x_T).
        n: steps, at least 1.

    Raises:
        AssertionError: if the shapes are not these, T is 0, or n is less than 1.
    """
    assert reward.ndim == 2, f"reward is {tuple(reward.shape)}, not [T, B]"
    assert reward.shape[0] > 0, f"reward is {tuple(reward.shape)}, not [T, B] with T > 0"
    assert discount.shape == reward.shape, f"discount is {tuple(discount.shape)}, reward {tuple(reward.shape)}"
    assert value.shape == (reward.shape[0] + 1, *reward.shape[1:]), (
        f"value is {tuple(value.shape)}, not [T+1, B] for a reward of {tuple(reward.shape)}"
    )
    assert n >= 1, f"n is {n}, not at least 1"

    # The return of m steps from t is one step and the return of m - 1 from t + 1. V(x_T) is the return of any m from T.
    returns = value
    for _ in range(min(n, len(reward))):
        returns = torch.cat([torch.addcmul(reward, discount, returns[1:]), value[-1:]])
    return returns[:-1]


def lambda_returns(reward: Tensor, discount: Tensor, value: Tensor, lam: float) -> Tensor:
    """Exponentially weighted mix of the 1-step, 2-step, .. returns: [T, B].

        G_t = r_t + discount_t * ((1 - lam) * V(x_{t+1}) + lam * G_{t+1}),   G_T = V(x_T)

    `lambda_returns(..) - value[:-1]` is the advantage GAE(gamma, lam) of Schulman et al. 2016, eq. 16, cut off at the
    end of the rollout as in Schulman et al. 2017, eq. 11; their limits (2016, eqs. 17 and 18) are lam = 0, the one-step
    target, and lam = 1, `n_step`.

    Args:
        reward: [T, B]  r_t, what action a_t earned.
        discount: [T, B]  gamma * (1 - terminated_t).
        value: [T+1, B]  V(x_0) .. V(x_T).
        lam: weight of the longer returns, 0 to 1.

    Raises:
        AssertionError: if the shapes are not these, T is 0, or lam is outside 0 to 1.
    """
    assert value.shape == (reward.shape[0] + 1, *reward.shape[1:]), (
        f"value is {tuple(value.shape)}, not [T+1, B] for a reward of {tuple(reward.shape)}"
    )
    assert discount.shape == reward.shape, f"discount is {tuple(discount.shape)}, reward {tuple(reward.shape)}"
    assert 0.0 <= lam <= 1.0, f"lam is {lam}, not in 0 to 1"

    # G_t = (r_t + discount_t (1 - lam) V_{t+1}) + (lam discount_t) G_{t+1} is n_step's recursion with other inputs.
    return n_step(torch.addcmul(reward, discount, value[1:], value=1.0 - lam), lam * discount, value[-1])


@dataclass(frozen=True)
class VTrace:
    """Result of `vtrace`."""

    target: Tensor  # [T, B]  v_t, what the value should have been
    advantage: Tensor  # [T, B]  r_t + discount_t * v_{t+1} - V(x_t), not weighted
    weight: Tensor  # [T, B]  min(rho_pg_bar, pi(a_t) / mu(a_t)), the policy gradient's weight


def vtrace(
    reward: Tensor,
    discount: Tensor,
    value: Tensor,
    log_ratio: Tensor,
    *,
    lam: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    rho_pg_bar: float = 1.0,
) -> VTrace:
    """V-trace targets for a policy pi from trajectories of a behaviour policy mu.

        rho_t = min(rho_bar, pi(a_t) / mu(a_t)),   c_t = lam * min(c_bar, pi(a_t) / mu(a_t))
        delta_t = rho_t * (r_t + discount_t * V(x_{t+1}) - V(x_t))
        v_t = V(x_t) + delta_t + discount_t * c_t * (v_{t+1} - V(x_{t+1})),   v_T = V(x_T)

    Espeholt et al. 2018, eq. 1 in the recursive form of remark 1; `lam` is that of remark 2. rho_bar determines the
    policy whose value is the fixed point, c_bar only the speed of convergence. With mu = pi and lam 1, v_t is
    `n_step`; with mu = pi it is `lambda_returns`; with c_bar 0 it is the one-step target. The advantage bootstraps from
    v_{t+1}, not from V(x_{t+1}) (appendix E.3).

    Args:
        reward: [T, B]  r_t, what action a_t earned.
        discount: [T, B]  gamma * (1 - terminated_t).
        value: [T+1, B]  V(x_0) .. V(x_T), of the learner.
        log_ratio: [T, B]  ln pi(a_t) - ln mu(a_t).
        lam: weight of the longer returns, 0 to 1.
        rho_bar, c_bar, rho_pg_bar: where the importance weights are truncated, at least 0; rho_bar >= c_bar.

    Raises:
        AssertionError: if the shapes are not these, T is 0, or a number is out of range.
    """
    assert value.shape == (reward.shape[0] + 1, *reward.shape[1:]), (
        f"value is {tuple(value.shape)}, not [T+1, B] for a reward of {tuple(reward.shape)}"
    )
    assert log_ratio.shape == reward.shape, f"log_ratio is {tuple(log_ratio.shape)}, reward {tuple(reward.shape)}"
    assert 0.0 <= lam <= 1.0, f"lam is {lam}, not in 0 to 1"
    assert rho_bar >= c_bar >= 0.0, f"rho_bar is {rho_bar}, c_bar {c_bar}: not rho_bar >= c_bar >= 0"
    assert rho_pg_bar >= 0.0, f"rho_pg_bar is {rho_pg_bar}, not at least 0"

    ratio = log_ratio.exp()
    delta = ratio.clamp(max=rho_bar) * (torch.addcmul(reward, discount, value[1:]) - value[:-1])
    # v_t - V(x_t) = delta_t + (discount_t c_t) (v_{t+1} - V(x_{t+1})) is n_step's recursion with other inputs.
    excess = n_step(delta, lam * discount * ratio.clamp(max=c_bar), torch.zeros_like(value[-1]))
    target = value[:-1] + excess
    following = torch.cat([target[1:], value[-1:]])
    advantage = torch.addcmul(reward, discount, following) - value[:-1]
    return VTrace(target, advantage, ratio.clamp(max=rho_pg_bar))
