"""What learners give to each other in the rounds of an all-reduce, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.parallel.comm import reduce_add

from gossamer.data import Tree, Version
from gossamer.exchange.all_reduce.views import Place
from gossamer.nn.normalization import Observed, pooled


@dataclass(frozen=True)
class Contribution:
    """What a learner gives for a step."""

    vector: Tensor  # [P]  its gradient, not clipped; it may be overwritten by the sum with others
    rate: float  # learning rate


@dataclass(frozen=True)
class Start:
    """What a learner would continue from. All of them continue from the newest; of several with that version, from the
    first whose optimizer has taken steps."""

    parameters: Tensor  # [P]
    version: Version
    optimizer: Tree = field(default_factory=dict)  # see `Learning.optimizer_state`
    local: Tree = field(default_factory=dict)  # of target networks, which are in no vector: see `flat.local_state`


Given: TypeAlias = Start | Contribution | Observed  # `Start` in the first round; `Observed` between steps


@dataclass(frozen=True)
class Mean:
    """Take a step along this gradient."""

    vector: Tensor  # [P]  weighted by learners
    rate: float  # mean learning rate
    learners: int  # that it is the mean of


@dataclass(frozen=True)
class Finished:
    """No learner has more batches."""


# What all learners do after a round: take a step, include what all have observed, continue from a state, or end
Result: TypeAlias = Mean | Observed | Start | Finished


@dataclass(frozen=True)
class RoundOutcome:
    """What the learner that leads a round tells the others of its host."""

    result: Result
    place: Place | None = None  # of the next round between hosts


@dataclass(frozen=True)
class Lead:
    """All learners of the host have given something, and the one that gets this makes it a result."""

    given: tuple[Given, ...]  # in the order of their ranks; of those that have batches


@dataclass(frozen=True)
class Total:
    """The sum of what the learners of a host give."""

    vector: Tensor | None  # [P]  None: no learner has given a gradient
    learners: int  # that have given one
    rate: float  # sum of their learning rates
    observed: tuple[Observed, ...]


def total(given: Sequence[Given], device: torch.device) -> Total:
    """Add up in the order of the ranks. The sum is on this device."""
    contributions = [each for each in given if isinstance(each, Contribution)]
    vector = added([each.vector for each in contributions], device) if contributions else None
    observed = tuple(each for each in given if isinstance(each, Observed))
    return Total(vector, len(contributions), sum(each.rate for each in contributions), observed)


def added(vectors: Sequence[Tensor], device: torch.device) -> Tensor:
    """The sum [P] of gradients, on this device. It overwrites the first one of each GPU. The sums of several GPUs are
    added by NCCL, or by copies between GPUs where torch has no NCCL."""
    sums = dict[torch.device, Tensor]()
    for each in vectors:
        sums[each.device] = sums[each.device].add_(each) if each.device in sums else each
    first, *others = sums.values()
    if others:
        first = reduce_add([first, *others], first.get_device())  # type: ignore[no-untyped-call]
    return first.to(device)


def result_of(vector: Tensor | None, learners: int, rate: float, observed: Sequence[Observed]) -> Result:
    """What follows from a mean gradient [P] of so many learners, their mean rate, and what others have observed: those
    that have gradients come first."""
    if learners:
        assert vector is not None, "there are gradients"
        return Mean(vector, rate, learners)
    if not observed:
        return Finished()
    samples = tuple(map(pooled, zip(*(each.samples for each in observed), strict=True)))
    return Observed(samples, observed[0].first)


def newest(starts: Sequence[Start]) -> Start:
    """The one to continue from."""
    return max(starts, key=lambda each: (each.version, bool(each.optimizer)))


def moved(observed: Observed, device: torch.device | str) -> Observed:
    """What was observed, on this device."""
    return Observed(tuple(each.to(device) for each in observed.samples), observed.first)
