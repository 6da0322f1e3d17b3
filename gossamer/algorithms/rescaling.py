"""Rescaled action values, for rewards of any size (Pohlen et al. 2018; Kapturowski et al. 2019, section 2.3).

    h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x

A network learns h(return). Both functions are written without differences of nearly equal numbers, so that float32 is
enough for returns of any size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from gossamer.algorithms.base import Acting, Valued
from gossamer.algorithms.exploration import EpsilonGreedy
from gossamer.data import Action, Tree
from gossamer.system.options import option

EPSILON = 1e-3  # as published

# It gives its default, as in `rescale_values: bool = RESCALE_VALUES(False)`
RESCALE_VALUES = partial(
    option, "The network learns h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x of returns x, for rewards of any size."
)


def rescale(x: Tensor, epsilon: float) -> Tensor:
    """h(x) [...], in the form x (1 / (sqrt(|x| + 1) + 1) + epsilon)."""
    return x * (1 / ((x.abs() + 1).sqrt() + 1) + epsilon)


def unscale(x: Tensor, epsilon: float) -> Tensor:
    """The inverse of `rescale` [...].

    h^-1(x) = sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)

    With u = (sqrt(..) - 1) / (2 epsilon) - 1 = 2 |x| / (sqrt(..) + 1 + 2 epsilon), it is sign(x) u (u + 2)."""
    root = (1 + 4 * epsilon * (x.abs() + 1 + epsilon)).sqrt()
    u = 2 * x / (root + 1 + 2 * epsilon)
    return u * (u.abs() + 2)


@dataclass(frozen=True)
class InReturns:
    """A policy by action values h(return), which reports them as returns."""

    policy: EpsilonGreedy
    epsilon: float  # of the rescaling

    def act(
        self, model: nn.Module, obs: Tensor, state: Tree, rng: torch.Generator, *, greedy: bool = False
    ) -> tuple[Action, Tree]:
        """See `Algorithm`."""
        found, state = self.policy.act(model, obs, state, rng, greedy=greedy)
        assert found.chosen is not None
        value, chosen = (unscale(each, self.epsilon) for each in (found.value, found.chosen))
        return replace(found, value=value, chosen=chosen), state


@dataclass(frozen=True)
class Unscaled:
    """The returns of an estimate that is rescaled."""

    estimate: Valued
    epsilon: float  # of the rescaling

    @property
    def gamma(self) -> float:
        return self.estimate.gamma

    def value(self, model: nn.Module, obs: Tensor, state: Tree) -> Tensor:
        """See `Algorithm`."""
        return unscale(self.estimate.value(model, obs, state), self.epsilon)


@dataclass(frozen=True)
class Scale:
    """The scale on which a network learns action values: that of returns, or h(return) with this `epsilon`."""

    epsilon: float | None = None

    def of(self, returns: Tensor) -> Tensor:
        """Returns [...] on this scale."""
        return returns if self.epsilon is None else rescale(returns, self.epsilon)

    def returns(self, values: Tensor) -> Tensor:
        """The returns of values [...] on this scale."""
        return values if self.epsilon is None else unscale(values, self.epsilon)

    def acting(self, policy: EpsilonGreedy) -> Acting:
        """The policy by values on this scale, which reports returns."""
        return policy if self.epsilon is None else InReturns(policy, self.epsilon)

    def estimate(self, estimate: Valued) -> Valued:
        """The returns of an estimate on this scale."""
        return estimate if self.epsilon is None else Unscaled(estimate, self.epsilon)


OF_RETURNS = Scale()
