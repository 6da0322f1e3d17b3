"""Probability distributions over actions.

Everything that has to do with the kind of action (sampling, the most probable action, log-probabilities, entropy, KL
divergence) is behind `Distribution`. Acting, losses, evaluation and diagnostics use nothing else. Leading dimensions,
written [...], are batch dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

LOG_2_PI = math.log(2 * math.pi)


class Distribution(Protocol):
    """A batch of distributions over actions."""

    @property
    def parameters(self) -> Tensor:
        """[..., P]"""

    def sample(self, rng: torch.Generator) -> Tensor:
        """Draw one action from each: [..., *action shape]."""

    def mode(self) -> Tensor:
        """The most probable action of each: [..., *action shape]."""

    def log_prob(self, action: Tensor) -> Tensor:
        """ln p(a) in nats: actions [..., *action shape] -> [...]; the log-density if actions are continuous."""

    def entropy(self) -> Tensor:
        """H(p) in nats [...]; of continuous actions the differential entropy."""

    def kl(self, other: Any) -> Tensor:
        """KL(self || other) in nats [...], for a distribution of the same kind."""


def rows(policy: Distribution, index: Tensor | slice) -> Distribution:
    """Some of a batch of distributions, by their index in the first dimension."""
    made: Distribution = replace(policy, parameters=policy.parameters[index])  # type: ignore[type-var]  # a dataclass
    return made


@dataclass(frozen=True)
class Categorical:
    """softmax(logits) over A actions."""

    parameters: Tensor  # [..., A] logits

    def sample(self, rng: torch.Generator) -> Tensor:
        # Equivalent to torch.multinomial without its check: the learner reports NaN logits, with their cause.
        pi = self.parameters.softmax(-1)
        return (pi / torch.empty_like(pi).exponential_(generator=rng)).argmax(-1)

    def mode(self) -> Tensor:
        return self.parameters.argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        batch = self.parameters.shape[:-1]
        assert action.shape == batch, f"actions are {tuple(action.shape)}, not {tuple(batch)}"
        return self._log_pi.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        log_pi = self._log_pi
        return -(log_pi.exp() * log_pi).sum(dim=-1)

    def kl(self, other: Categorical) -> Tensor:
        log_pi = self._log_pi
        return (log_pi.exp() * (log_pi - other._log_pi)).sum(dim=-1)

    @property
    def _log_pi(self) -> Tensor:
        return torch.log_softmax(self.parameters, dim=-1)


@dataclass(frozen=True)
class Categoricals:
    """Independent choices, the i-th one among `sizes[i]`: the joint probability is the product."""

    parameters: Tensor  # [..., sum of sizes] logits
    sizes: tuple[int, ...]

    @property
    def _each(self) -> list[Categorical]:
        return [Categorical(logits) for logits in torch.split(self.parameters, list(self.sizes), dim=-1)]

    def sample(self, rng: torch.Generator) -> Tensor:
        return torch.stack([each.sample(rng) for each in self._each], dim=-1)

    def mode(self) -> Tensor:
        return torch.stack([each.mode() for each in self._each], dim=-1)

    def log_prob(self, action: Tensor) -> Tensor:
        expected = (*self.parameters.shape[:-1], len(self.sizes))
        assert action.shape == expected, f"actions are {tuple(action.shape)}, not {expected}"
        return _total([each.log_prob(a) for each, a in zip(self._each, action.unbind(-1), strict=True)])

    def entropy(self) -> Tensor:
        return _total([each.entropy() for each in self._each])

    def kl(self, other: Categoricals) -> Tensor:
        return _total([each.kl(its) for each, its in zip(self._each, other._each, strict=True)])


@dataclass(frozen=True)
class Bernoullis:
    """Independent switches; a switch is on with probability sigmoid(logit)."""

    parameters: Tensor  # [..., N] logits

    def sample(self, rng: torch.Generator) -> Tensor:
        pi = self.parameters.sigmoid()
        return (torch.rand(pi.shape, generator=rng, device=pi.device, dtype=pi.dtype) < pi).to(torch.int64)

    def mode(self) -> Tensor:
        return (self.parameters > 0).to(torch.int64)

    def log_prob(self, action: Tensor) -> Tensor:
        logits = self.parameters
        assert action.shape == logits.shape, f"actions are {tuple(action.shape)}, not {tuple(logits.shape)}"
        return -binary_cross_entropy_with_logits(logits, action.to(logits.dtype), reduction="none").sum(-1)

    def entropy(self) -> Tensor:
        x = self.parameters
        return (softplus(x) - x * x.sigmoid()).sum(-1)  # -p ln p - (1 - p) ln(1 - p)

    def kl(self, other: Bernoullis) -> Tensor:
        x, y = self.parameters, other.parameters
        return (x.sigmoid() * (x - y) + softplus(y) - softplus(x)).sum(-1)


@dataclass(frozen=True)
class Gaussian:
    """Independent normal distributions."""

    parameters: Tensor  # [..., 2 N] means, then logarithms of standard deviations

    @property
    def _mean_log_std(self) -> tuple[Tensor, Tensor]:
        mean, log_std = self.parameters.chunk(2, dim=-1)
        return mean, log_std

    def sample(self, rng: torch.Generator) -> Tensor:
        mean, log_std = self._mean_log_std
        noise = torch.randn(mean.shape, generator=rng, device=mean.device, dtype=mean.dtype)
        return mean + log_std.exp() * noise

    def mode(self) -> Tensor:
        return self._mean_log_std[0]

    def log_prob(self, action: Tensor) -> Tensor:
        mean, log_std = self._mean_log_std
        assert action.shape == mean.shape, f"actions are {tuple(action.shape)}, not {tuple(mean.shape)}"
        return (-0.5 * ((action - mean) * (-log_std).exp()).square() - log_std - 0.5 * LOG_2_PI).sum(-1)

    def entropy(self) -> Tensor:
        return (self._mean_log_std[1] + 0.5 * (1 + LOG_2_PI)).sum(-1)

    def kl(self, other: Gaussian) -> Tensor:
        (mean, log_std), (mean_q, log_std_q) = self._mean_log_std, other._mean_log_std
        ratio, distance = (2 * (log_std - log_std_q)).exp(), ((mean - mean_q) * (-log_std_q).exp()).square()
        return (log_std_q - log_std + 0.5 * (ratio + distance - 1)).sum(-1)


def _total(terms: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(terms), dim=-1).sum(-1)
