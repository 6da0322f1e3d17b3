"""Running statistics of observations and returns, with which the network normalises them.

The statistics, and the number of rollouts that they are of, are parameters without gradients: they are saved, sent and
averaged like the other parameters, so that members that exchange parameters also share their statistics. They change
only after the updates of a rollout, never when acting or evaluating.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

CLIP = 10.0  # normalised observations are clipped to +-CLIP (OpenAI baselines' VecNormalize)
EPSILON = 1e-8  # added to variances
LONG, SHORT = 1_000_000, 100  # rollouts over which the statistics of observations, and of returns, are taken


@dataclass(frozen=True)
class Sample:
    """Number, mean and variance of a rollout's values."""

    count: int | Tensor  # [G] of each of several games
    mean: Tensor  # [*shape]; [G]
    variance: Tensor  # [*shape]; [G]

    @classmethod
    @torch.no_grad()
    def of(cls, values: Tensor) -> Sample:
        """Of values [N, *shape]."""
        variance, mean = torch.var_mean(values.float(), dim=0, correction=0)
        return cls(len(values), mean, variance)

    @classmethod
    @torch.no_grad()
    def of_games(cls, values: Tensor, game: Tensor, games: int) -> Sample:
        """Of values [N] of so many games, each with its game [N]. A game without values has mean and variance 0."""
        member = torch.nn.functional.one_hot(game, games).float()  # [N, G]
        count = member.sum(0)
        some = count.clamp(min=1.0)
        mean = values.float() @ member / some
        variance = ((values.float() - mean[game]).square()) @ member / some  # around the mean: exact for large values
        return cls(count, mean, variance)

    def to(self, device: torch.device | str) -> Sample:
        """On this device."""
        count = self.count.to(device) if isinstance(self.count, Tensor) else self.count
        return Sample(count, self.mean.to(device), self.variance.to(device))


def pooled(samples: Sequence[Sample]) -> Sample:
    """The moments of the values of all samples together, computed in their order."""
    count, device = sum(each.count for each in samples), samples[0].mean.device
    whole = count.clamp(min=1.0) if isinstance(count, Tensor) else count  # a game may have no values
    mean, square = (torch.zeros_like(samples[0].mean) for _ in range(2))
    for each in samples:
        mean += each.count / whole * each.mean.to(device)
    for each in samples:
        square += each.count / whole * (each.variance.to(device) + (each.mean.to(device) - mean).square())
    return Sample(count, mean, square)


@dataclass(frozen=True)
class Observed:
    """What a network's running statistics learn from a rollout."""

    samples: tuple[Sample, ...]  # of the returns and of each observation, where they are normalised
    first: bool = False  # only of the first rollout's returns, before its updates


class Moments(nn.Module):
    """Mean and variance of each component over the last rollouts. Before the first rollout they are 0 and 1."""

    def __init__(self, shape: tuple[int, ...], most: int, *, games: bool = False) -> None:
        """`most`: from this number of rollouts on, older ones count exponentially less. `games`: each component is of a
        game of its own, and counts the rollouts that have values of it."""
        super().__init__()
        self.most = most
        self.mean = nn.Parameter(torch.zeros(shape), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(shape), requires_grad=False)
        self.rollouts = nn.Parameter(torch.zeros(shape if games else ()), requires_grad=False)

    @property
    def deviation(self) -> Tensor:
        """Standard deviation, [*shape]."""
        return (self.variance.clamp(min=0.0) + EPSILON).sqrt()

    @torch.no_grad()
    def update(self, sample: Sample) -> None:
        """Include a rollout's values (Chan et al. 1979, parallel mean and variance)."""
        new = (sample.count > 0).float() if isinstance(sample.count, Tensor) else 1.0  # [G]: 0 of a game without values
        exact = new / (1.0 + self.rollouts.double())  # not as a number: the host would have to wait for a GPU
        weight, rest, both = exact.float(), (1.0 - exact).float(), (exact * (1.0 - exact)).float()
        difference = sample.mean - self.mean
        self.mean.add_(weight * difference)
        self.variance.mul_(rest).add_(weight * sample.variance + both * difference.square())
        self.rollouts.add_(new).clamp_(max=self.most)


class Normalized(nn.Module):
    """Maps vectors to network inputs: (x - mean) / standard deviation of each component, clipped to +-10."""

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.moments = Moments(obs_shape, LONG)

    def forward(self, obs: Tensor, dtype: torch.dtype) -> Tensor:
        """Map [N, *O] to [N, *O] of `dtype`."""
        return ((obs - self.moments.mean) / self.moments.deviation).clamp(-CLIP, CLIP).to(dtype)


class ValueHead(nn.Module):
    """A linear value head whose output is in units of the returns' deviation, around their mean. When the statistics
    change, the layer is changed such that the values stay what they were (PopArt: van Hasselt et al. 2016).

    With several games there is an output for each, with statistics of its own (Hessel et al. 2018, section 3)."""

    inseparable: ClassVar[bool] = True  # see `Flat`

    def __init__(self, features: int, games: int = 1) -> None:
        super().__init__()
        self.linear = nn.Linear(features, games)
        self.moments = Moments((games,), SHORT, games=True) if games > 1 else Moments((), SHORT)
        self._begun = False  # as last read

    def sample(self, returns: Tensor, game: Tensor | None) -> Sample:
        """What the statistics learn from a rollout's returns [N], of several games with the game [N] of each."""
        return Sample.of(returns) if game is None else Sample.of_games(returns, game, self.linear.out_features)

    def forward(self, features: Tensor) -> Tensor:
        """[N, F] -> values [N, 1] in returns; of several games [N, G]."""
        values: Tensor = self.linear(features) * self.moments.deviation + self.moments.mean
        return values

    @property
    def begun(self) -> bool:
        """Whether a rollout's returns are included. Once they are, they stay so, and a GPU is not asked again."""
        self._begun = self._begun or bool(self.moments.rollouts.any())
        return self._begun

    def begin(self, returns: Sample) -> None:
        """Take the units from the first rollout's returns, before the layer is trained on them. They are not counted:
        `update` includes them after the rollout's updates, like those of every other rollout."""
        self.moments.update(returns)
        with torch.no_grad():
            self.moments.rollouts.zero_()

    @torch.no_grad()
    def update(self, returns: Sample) -> None:
        """Include a rollout's returns."""
        mean, deviation = self.moments.mean.clone(), self.moments.deviation
        self.moments.update(returns)
        ratio = deviation / self.moments.deviation
        self.linear.weight.mul_(ratio if ratio.dim() == 0 else ratio.unsqueeze(1))
        self.linear.bias.mul_(ratio).add_((mean - self.moments.mean) / self.moments.deviation)
