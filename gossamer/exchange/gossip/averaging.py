"""The weighted average of a member's parameters and those that it has received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.exchange.gossip.formats import Format, rounded


@dataclass(frozen=True)
class Received:
    """The parameters of one message, on the receiver's device.

    `format` is "fp32" too for parameters whose sender keeps the rounding error (`feedback`)."""

    vector: Tensor  # [P]
    share: float  # of the average
    format: Format = "fp32"  # number format in transit
    error: float = 0.0  # || received - published ||_2
    exact: int = 0  # of its last elements: see `formats`


def average(mine: Tensor, received: Sequence[Received]) -> tuple[Tensor, float]:
    """Average parameters [P] with those received, into a new vector; one pass over memory for a single message.

    Returns the average and an L2 bound of its rounding error due to lossy formats."""
    whole = [each for each in received if each.format == "fp32"]
    if whole and len(received) == 1:
        return torch.lerp(mine, whole[0].vector, whole[0].share), whole[0].share * whole[0].error
    mixed, noise = mine * (1 - sum(each.share for each in whole)), 0.0
    for each in received:
        if each.format == "fp32":
            mixed.add_(each.vector, alpha=each.share)
            noise += each.share * each.error
            continue
        alike = rounded(mine, each.format, each.exact)  # cancels the rounding error when sender and receiver are equal
        mixed.add_(each.vector - alike, alpha=each.share)
        noise += each.share * (each.error + float((alike - mine).norm()))
    return mixed, noise
