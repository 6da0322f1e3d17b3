"""Mixing weights, as scalars. The communication graph is in `graphs`, the averaging of parameters in `gossip`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

LEAST = 1 / 64  # smallest push-sum weight that a member still divides


def freshness(age: float, decay: float) -> float:
    """Factor of the share of a message of this age, in exchanges: (1 + age)^-decay; 1 if its sender is not behind
    (FedAsync's polynomial, Xie et al. 2019, arXiv 1903.03934, section 5)."""
    return math.pow(1 + max(0.0, age), -decay)


class Mixing(Protocol):
    """Computes one row of the mixing matrix."""

    @property
    def adds(self) -> bool:
        """Whether unread messages of a sender must be merged; otherwise the newest replaces the others."""

    def outgoing(self, weight: float, receivers: int) -> tuple[float, float]:
        """Return (weight of each message, weight kept by the member); (0, weight) transfers no weight."""

    def incoming(self, kept: float, degree: int, weights: Sequence[float]) -> tuple[float, list[float]]:
        """Return (the member's new weight, the share of each message). The member's own share is 1 minus their sum.

        `degree`: in-degree at this exchange; `weights`: weights of the messages received."""


@dataclass(frozen=True)
class Uniform:
    """Share 1 / (1 + in-degree) for each message; the member keeps the share of missing ones (GALA: ring, 1/2).

    Rows sum to 1. Columns sum to 1 only if every message is averaged exactly once, as in lock-step on a regular graph.
    Otherwise the mean over members is not conserved, and slow members have less influence on it."""

    adds: bool = False

    def outgoing(self, weight: float, receivers: int) -> tuple[float, float]:
        return 1.0, 1.0

    def incoming(self, kept: float, degree: int, weights: Sequence[float]) -> tuple[float, list[float]]:
        share = 1 / (1 + max(degree, len(weights)))
        return 1.0, [share] * len(weights)


@dataclass(frozen=True)
class PushSum:
    """Push-sum: each message carries part of its sender's weight (Kempe et al. 2003; SGP, Assran et al. 2019, alg. 1).

    The sum of weight * parameters over members and messages is conserved on any graph and with any delays. Every
    member's steps therefore have equal influence on the consensus."""

    adds: bool = True

    def outgoing(self, weight: float, receivers: int) -> tuple[float, float]:
        if not receivers or weight < LEAST:
            return 0.0, weight
        part = weight / (1 + receivers)
        return part, part

    def incoming(self, kept: float, degree: int, weights: Sequence[float]) -> tuple[float, list[float]]:
        total = kept + sum(weights)
        return total, [weight / total for weight in weights]


UNIFORM = Uniform()
