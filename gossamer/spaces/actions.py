"""Action spaces: how many network outputs parametrise a distribution over actions (P), and which one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.data import Array
from gossamer.spaces.distributions import Bernoullis, Categorical, Categoricals, Distribution, Gaussian

Bounds: TypeAlias = Literal["clip", "squash", "none"]
IMPOSSIBLE = -1e9  # logit of an invalid action: its probability is 0, and its entropy term 0 and not NaN
LEAST_LOG_STD, MOST_LOG_STD = -5.0, 2.0  # of deviations that depend on the observation


class Space(Protocol):
    """An action space."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one action."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of actions."""

    @property
    def outputs(self) -> int:
        """P, the parameters of one distribution."""

    def distribution(self, parameters: Tensor) -> Distribution:
        """The distributions with these parameters [..., P]."""

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        """The parameters [..., P] with which invalid choices have probability 0. `mask` [..., M]: 0 for these, an entry
        for each choice. Raises `NotImplementedError` if the actions are continuous."""

    def head(self, features: int, *, state_std: bool = False) -> nn.Module:
        """A policy head: [N, F] -> [N, P]. `state_std`: standard deviations depend on the observation."""

    def random(self, rng: np.random.Generator, count: int, mask: Array | None = None) -> Array:
        """Uniformly drawn actions [count, *shape]. `mask` [count, M]: as in `masked`; no use if continuous."""

    def to_env(self, actions: Array) -> Array:
        """What the environments get for these actions [B, *shape]."""


@dataclass(frozen=True)
class Discrete:
    """One choice among n, 0 .. n - 1."""

    n: int

    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    @property
    def outputs(self) -> int:
        return self.n

    def distribution(self, parameters: Tensor) -> Distribution:
        return Categorical(parameters)

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        return parameters.masked_fill(mask == 0, IMPOSSIBLE)

    def head(self, features: int, *, state_std: bool = False) -> nn.Module:
        return nn.Linear(features, self.outputs)

    def random(self, rng: np.random.Generator, count: int, mask: Array | None = None) -> Array:
        return rng.integers(0, self.n, count) if mask is None else _valid(rng, mask)

    def to_env(self, actions: Array) -> Array:
        return actions

    def __str__(self) -> str:
        return f"{self.n} actions"


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, the i-th one among sizes[i]."""

    sizes: tuple[int, ...]

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sizes),)

    @property
    def outputs(self) -> int:
        return sum(self.sizes)

    def distribution(self, parameters: Tensor) -> Distribution:
        return Categoricals(parameters, self.sizes)

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        return parameters.masked_fill(mask == 0, IMPOSSIBLE)

    def head(self, features: int, *, state_std: bool = False) -> nn.Module:
        return nn.Linear(features, self.outputs)

    def random(self, rng: np.random.Generator, count: int, mask: Array | None = None) -> Array:
        if mask is None:
            return rng.integers(0, self.sizes, (count, len(self.sizes)))
        each = np.split(mask, np.cumsum(self.sizes)[:-1], axis=1)
        return np.stack([_valid(rng, choices) for choices in each], axis=1)

    def to_env(self, actions: Array) -> Array:
        return actions

    def __str__(self) -> str:
        return f"{len(self.sizes)} choices of {', '.join(map(str, self.sizes))} actions"


@dataclass(frozen=True)
class MultiBinary:
    """n switches. The 2 n entries of a mask are off and on of the first switch, off and on of the second, and so on."""

    n: int

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n,)

    @property
    def outputs(self) -> int:
        return self.n

    def distribution(self, parameters: Tensor) -> Distribution:
        return Bernoullis(parameters)

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        off, on = mask[..., ::2], mask[..., 1::2]
        return parameters.masked_fill(off == 0, -IMPOSSIBLE).masked_fill(on == 0, IMPOSSIBLE)

    def head(self, features: int, *, state_std: bool = False) -> nn.Module:
        return nn.Linear(features, self.outputs)

    def random(self, rng: np.random.Generator, count: int, mask: Array | None = None) -> Array:
        if mask is None:
            return rng.integers(0, 2, (count, self.n))
        return _valid(rng, mask.reshape(count * self.n, 2)).reshape(count, self.n)

    def to_env(self, actions: Array) -> Array:
        return actions.astype(np.int8)

    def __str__(self) -> str:
        return f"{self.n} switches"


@dataclass(frozen=True)
class Box:
    """n continuous numbers between bounds. The distribution is Gaussian, without bounds: the environment gets actions
    clipped to the bounds (SB3, CleanRL), squashed by tanh, or as they are.

    Log-probabilities and entropy are those of the action as drawn. For squashed actions, the logarithm of the Jacobian
    is missing. It does not depend on the parameters, so that probability ratios and gradients are the same."""

    low: tuple[float, ...]  # [n]; -inf: none
    high: tuple[float, ...]  # [n]; inf: none
    bounds: Bounds = "clip"  # squash: the bounds must be finite

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.low),)

    @property
    def outputs(self) -> int:
        return 2 * len(self.low)

    def distribution(self, parameters: Tensor) -> Distribution:
        return Gaussian(parameters)

    def masked(self, parameters: Tensor, mask: Tensor) -> Tensor:
        raise NotImplementedError("continuous actions have no mask")

    def head(self, features: int, *, state_std: bool = False) -> nn.Module:
        return (StateGaussianHead if state_std else GaussianHead)(features, len(self.low))

    def random(self, rng: np.random.Generator, count: int, mask: Array | None = None) -> Array:
        low, high = np.array(self.low), np.array(self.high)
        below, above = np.isfinite(low), np.isfinite(high)
        bounded = below & above
        first, last = np.where(bounded, low, 0.0), np.where(bounded, high, 1.0)
        share = rng.random((count, len(low)))
        uniform = first * (1 - share) + last * share  # a difference of the bounds could be infinite
        normal = rng.standard_normal((count, len(low)))
        normal = np.where(below, low + np.abs(normal), np.where(above, high - np.abs(normal), normal))
        if self.bounds == "squash":  # drawn such that the environment gets uniform ones
            uniform = np.arctanh(rng.uniform(-1.0, 1.0, uniform.shape))
        return np.where(bounded, uniform, normal).astype(np.float32)

    def to_env(self, actions: Array) -> Array:
        low, high = np.array(self.low), np.array(self.high)  # float64: the bounds are exact
        if self.bounds == "squash":
            actions = low + (high - low) * (np.tanh(actions.astype(np.float64)) + 1) / 2
        return actions if self.bounds == "none" else np.clip(actions, low, high)

    def __str__(self) -> str:
        return f"{len(self.low)} continuous actions"


def _valid(rng: np.random.Generator, mask: Array) -> Array:
    """Draw one of the valid choices of each row, mask [N, A] -> [N]."""
    drawn: Array = (rng.random(mask.shape) * (mask != 0)).argmax(1)
    return drawn


class GaussianHead(nn.Module):
    """Means from a linear layer; logarithms of standard deviations that do not depend on the observation."""

    def __init__(self, features: int, n: int, log_std: float = 0.0) -> None:
        super().__init__()
        self.mean = nn.Linear(features, n)
        self.log_std = nn.Parameter(torch.full((n,), log_std))

    def forward(self, features: Tensor) -> Tensor:
        """[N, F] -> [N, 2 n]."""
        mean = self.mean(features)
        return torch.cat([mean, self.log_std.expand_as(mean)], dim=-1)


class StateGaussianHead(nn.Module):
    """Means and logarithms of standard deviations from a linear layer, the latter within -5 and 2 (Haarnoja et al.)."""

    def __init__(self, features: int, n: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 2 * n)

    def forward(self, features: Tensor) -> Tensor:
        """[N, F] -> [N, 2 n]."""
        mean, log_std = self.linear(features).chunk(2, dim=-1)
        return torch.cat([mean, log_std.clamp(LEAST_LOG_STD, MOST_LOG_STD)], dim=-1)
