"""Outer momentum: the local steps between two exchanges are one step of an outer optimizer.

Let phi [P] be a member's parameters after an exchange, and delta the sum of its local steps until the next one. The
outer optimizer takes -delta for a gradient, and makes a step of SGD with Nesterov momentum (Outer-PPO, Tan et al. 2024,
arXiv 2411.00666; DiLoCo, Douillard et al. 2023, arXiv 2311.08105):

    m <- mu m + delta,    x <- phi + eta (delta + mu m)

Where every delta is the same, x - phi becomes eta / (1 - mu) of it. With mu = 0 and eta = 1, x = phi + delta.

A member takes the step before it sends x, so the step is averaged as local steps are: what the average conserves, and
the bound on its distances, hold with outer momentum, too. NoLoCo (arXiv 2506.10911) has momentum of delta and average
together, with pairs as its graph. On a directed ring this diverges (test_outer), and with push-sum it loses mass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.data import Tree


@dataclass(frozen=True)
class Outer:
    """The outer optimizer. Raises `ValueError` unless 0 <= momentum < 1 and learning_rate > 0."""

    momentum: float = 0.0  # mu
    learning_rate: float = 1.0  # eta

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"outer momentum {self.momentum}: must be at least 0 and below 1")
        if not self.learning_rate > 0:
            raise ValueError(f"outer learning rate {self.learning_rate}: must be above 0")


class OuterStep:
    """One member's outer optimizer. Running statistics and the layers in their units, from element `separable` on, are
    left alone: a new unit changes such a layer, too, and is no step."""

    def __init__(self, outer: Outer, vector: Tensor, separable: int, state: Tree | None) -> None:
        """`vector` [P]: the member's parameters; `state`: see `state_dict`, or None to begin without momentum."""
        self._mu, self._eta, self._separable = outer.momentum, outer.learning_rate, separable
        self._start = vector[:separable].clone()  # phi
        self._momentum = torch.zeros_like(self._start)  # m
        if state is not None:
            self._start.copy_(state["start"])
            self._momentum.copy_(state["momentum"])

    def begin(self, vector: Tensor) -> None:
        """Parameters [P] after an exchange: local steps are added up from here."""
        self._start.copy_(vector[: self._separable])

    @torch.no_grad()
    def take(self, vector: Tensor, weight: float) -> None:
        """Take the outer step, which changes the parameters [P] before an exchange in place.

        `weight`: the member's push-sum weight. Local steps count by what they add to weight * parameters."""
        x = vector[: self._separable]
        delta = (x - self._start).mul_(weight)
        more = delta * (self._eta * (1 + self._mu) - 1)  # x - phi - delta = more
        more.add_(self._momentum, alpha=self._eta * self._mu**2)
        self._momentum.mul_(self._mu).add_(delta)
        x.add_(more, alpha=1 / weight)

    def state_dict(self) -> Tree:
        """A copy of the state, for a checkpoint."""
        return {"start": self._start.clone(), "momentum": self._momentum.clone()}
