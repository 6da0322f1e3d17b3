"""Losses: pure functions from a network's outputs on N samples to one scalar, with the figures worth reporting.

N is a batch of single decisions, T * B of a whole rollout or a part of it. Everything is a **mean** over N. A3C, GA3C
and IMPALA sum instead, and a learning rate, a gradient clip or RMSProp's eps tuned for a sum means something else under
a mean: port the reduction together with the numbers (`scale` of `a2c` is there for that).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.spaces.distributions import Distribution


@dataclass(frozen=True)
class Loss:
    """What a loss function answers."""

    total: Tensor  # []  what is minimised
    parts: dict[str, Tensor]  # each [], detached, unweighted: cost factors and `scale` are in `total` only
    priority: Tensor | None = None  # [B]  of the batch's trajectories, for a replay memory


def a2c(
    policy: Distribution,
    value: Tensor,
    action: Tensor,
    target: Tensor,
    advantage: Tensor,
    *,
    value_coef: float,
    entropy_coef: float,
    scale: float = 1.0,
    log_epsilon: float = 0.0,
) -> Loss:
    """Advantage actor-critic.

        total = scale * (mean(-(A * log pi(a)) - entropy_coef * H(pi)) + value_coef * mean((R - V)^2))

    The gradients of Mnih et al. 2016, algorithm S3, averaged over the samples as in Clemente et al. 2017. PAAC's code
    has value_coef 0.25 and scale 5: its learning rate was tuned for sums over t_max = 5 steps, so that five times the
    mean over 5 * n_e samples is the mean over environments of A3C's sums, and a learning rate of 0.0007 * n_e makes
    that the sum of n_e A3C gradients. The gradient clip and RMSProp's eps meet the scaled gradient.

    Args:
        policy: pi, the policy being trained; N distributions.
        value: [N]  V(x), its estimate of the return.
        action: [N, *A]  a, what was done.
        target: [N]  R, what the value should have been; a constant.
        advantage: [N]  A, how much better the action was than expected; a constant.
        value_coef: weight of the squared error, without the usual half.
        entropy_coef: weight of the entropy, in returns per nat.
        scale: factor of the whole.
        log_epsilon: least pi(a) in the logarithm; an action below it has no gradient (GA3C, for the policy's lag).

    Returns:
        parts: policy_loss, value_loss (mean squared error), entropy (nats).

    Raises:
        AssertionError: if the shapes are not these.
    """
    _check(policy, value=value, target=target, advantage=advantage)

    log_prob = policy.log_prob(action)
    if log_epsilon > 0:
        log_prob = log_prob.clamp(min=math.log(log_epsilon))
    policy_loss = -(advantage.detach() * log_prob).mean()
    value_loss = (target.detach() - value).square().mean()
    mean_entropy = policy.entropy().mean()
    total = scale * (policy_loss - entropy_coef * mean_entropy + value_coef * value_loss)
    return _report(total, policy_loss=policy_loss, value_loss=value_loss, entropy=mean_entropy)


def ppo(
    policy: Distribution,
    value: Tensor,
    action: Tensor,
    target: Tensor,
    advantage: Tensor,
    behaviour: Tensor,
    *,
    clip_range: float,
    value_coef: float,
    entropy_coef: float,
    weight: Tensor | float = 1.0,
) -> Loss:
    """Proximal policy optimization, clipped form.

        ratio = pi(a) / mu(a)
        total = -mean(w * min(ratio * A, clamp(ratio, 1 - clip_range, 1 + clip_range) * A))
                + value_coef * 0.5 * mean((R - V)^2) - entropy_coef * mean(H(pi))

    Schulman et al. 2017, eq. 7 within eq. 9 (value and entropy terms). Where pi has already moved past the clip in the
    direction the advantage asks for, a sample has no policy gradient.

    Args:
        policy: pi, the policy being trained; N distributions.
        value: [N]  V(x), its estimate of the return.
        action: [N, *A]  a, drawn from mu.
        target: [N]  R, what the value should have been; a constant.
        advantage: [N]  A, how much better the action was than expected; a constant.
        behaviour: [N]  ln mu(a) of the policy that acted, or of another one that pi should stay close to; a constant.
        clip_range: how far the ratio may move from 1 and still be rewarded.
        value_coef: weight of half the squared error.
        entropy_coef: weight of the entropy, in returns per nat.
        weight: [N]  w, an importance weight where mu is not the policy that acted; a constant.

    Returns:
        parts: policy_loss, value_loss (mean squared error, as `a2c` reports it), entropy (nats), kl (KL(mu || pi) in
        nats, estimated from the actions drawn, never negative: Schulman 2020, "Approximating KL divergence", k3),
        clip_fraction (of the samples whose ratio left the clip, either way).

    Raises:
        AssertionError: if the shapes are not these.
    """
    _check(policy, value=value, target=target, advantage=advantage, behaviour=behaviour)

    log_ratio = policy.log_prob(action) - behaviour.detach()
    ratio, advantage = log_ratio.exp(), advantage.detach()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    policy_loss = -(weight * torch.minimum(ratio * advantage, clipped * advantage)).mean()
    value_loss = (target.detach() - value).square().mean()
    mean_entropy = policy.entropy().mean()
    total = policy_loss + value_coef * 0.5 * value_loss - entropy_coef * mean_entropy
    with torch.no_grad():
        kl = (ratio - 1.0 - log_ratio).mean()
        clip_fraction = ((ratio - 1.0).abs() > clip_range).to(ratio.dtype).mean()
    return _report(
        total, policy_loss=policy_loss, value_loss=value_loss, entropy=mean_entropy, kl=kl, clip_fraction=clip_fraction
    )


def q_learning(
    q: Tensor, action: Tensor, target: Tensor, *, huber: bool, weight: Tensor | None = None, scale: float = 1.0
) -> Loss:
    """Temporal-difference loss of action values.

        delta = R - Q(x, a),   total = scale * mean(w * l(delta))

    with l(delta) = delta^2 / 2, or with `huber` |delta| - 1/2 where |delta| > 1, whose gradient is delta clipped to
    [-1, 1] (Mnih et al. 2015, methods, "the error term").

    Args:
        q: [N, A]  Q(x, .), being trained.
        action: [N] int64  a, what was done.
        target: [N]  R, what Q(x, a) should have been; a constant.
        huber: whether large errors count linearly.
        weight: [N]  w, importance weights of prioritised samples; a constant. None: 1.
        scale: factor of the whole.

    Returns:
        parts: q (mean of Q(x, a)), td_error (mean of |delta|); priority: |delta|.

    Raises:
        AssertionError: if the shapes are not these.
    """
    assert q.ndim == 2, f"q is {tuple(q.shape)}, not [N, A]"
    for name, tensor in {"action": action, "target": target, "weight": target if weight is None else weight}.items():
        assert tensor.shape == q.shape[:1], f"{name} is {tuple(tensor.shape)}, not [N] for q {tuple(q.shape)}"

    chosen = q.gather(1, action.unsqueeze(1)).squeeze(1)
    delta = target.detach() - chosen
    size = delta.abs()
    each = torch.where(size > 1, size - 0.5, delta.square() / 2) if huber else delta.square() / 2
    total = scale * (each if weight is None else weight * each).mean()
    parts = {"q": chosen.mean(), "td_error": size.mean()}
    return Loss(total, {name: part.detach() for name, part in parts.items()}, priority=size.detach())


def sequence_q_learning(
    q: Tensor, action: Tensor, target: Tensor, trained: Tensor, *, eta: float, weight: Tensor | None = None
) -> Loss:
    """Temporal-difference loss of action values in sequences, of which some steps are trained.

        delta_t = R_t - Q(x_t, a_t),   total = mean(w * delta_t^2 / 2) over all trained steps

    Kapturowski et al. 2019, section 2.3. Without any trained step, it is 0.

    Args:
        q: [T, W, A]  Q(x_t, .), being trained.
        action: [T, W] int64  a_t, what was done.
        target: [T, W]  R_t, what Q(x_t, a_t) should have been; a constant.
        trained: [T, W] bool  the steps that count.
        eta: weight of the largest error in the priority, see `sequence_priority`.
        weight: [W]  w, importance weights of prioritised sequences; a constant. None: 1.

    Returns:
        parts: q (mean of Q(x, a)), td_error (mean of |delta|), of trained steps; trained (their share of all steps);
        priority: [W].

    Raises:
        AssertionError: if the shapes are not these.
    """
    assert q.ndim == 3, f"q is {tuple(q.shape)}, not [T, W, A]"
    for name, tensor in {"action": action, "target": target, "trained": trained}.items():
        assert tensor.shape == q.shape[:2], f"{name} is {tuple(tensor.shape)}, not [T, W] for q {tuple(q.shape)}"
    assert weight is None or weight.shape == q.shape[1:2], f"weight is {tuple(weight.shape)}, not [W]"

    chosen = q.gather(2, action.unsqueeze(2)).squeeze(2)
    delta = target.detach() - chosen
    each = delta.square() / 2
    each = each if weight is None else weight * each

    def mean(values: Tensor) -> Tensor:
        return (values * trained).sum() / trained.sum().clamp(min=1)

    size = delta.detach().abs()
    parts = {"q": mean(chosen.detach()), "td_error": mean(size), "trained": trained.to(q.dtype).mean()}
    return Loss(mean(each), parts, priority=sequence_priority(size, trained, eta))


def sequence_priority(size: Tensor, trained: Tensor, eta: float) -> Tensor:
    """Priorities [W] of sequences by the sizes |delta| [T, W] of the errors of their trained steps [T, W] bool.

        p = eta * max |delta| + (1 - eta) * mean |delta|

    Kapturowski et al. 2019, section 2.3. A sequence without a trained step has priority 0."""
    size = size * trained
    return eta * size.amax(0) + (1 - eta) * size.sum(0) / trained.sum(0).clamp(min=1)


def _check(policy: Distribution, **tensors: Tensor) -> None:
    """Refuse what would broadcast: a value of [N, 1] against a target of [N] is a wrong loss without an error."""
    shape = tuple(policy.parameters.shape)
    assert len(shape) == 2, f"the policy's parameters are {shape}, not [N, P]"
    for name, tensor in tensors.items():
        assert tensor.shape == shape[:1], f"{name} is {tuple(tensor.shape)}, not [N] for parameters {shape}"


def _report(total: Tensor, **parts: Tensor) -> Loss:
    return Loss(total, {name: part.detach() for name, part in parts.items()})
