"""How much: the weights of an average. Scalars only; who sends is `graphs`, what is averaged is `gossip`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

LEAST = 1 / 64  # a member's push-sum weight below which it keeps what it has


class Mixing(Protocol):
    """One row of the mixing matrix at a time."""

    @property
    def adds(self) -> bool:
        """Whether an unread message is added to its sender's next one, instead of being replaced by it."""

    def outgoing(self, weight: float, receivers: int) -> tuple[float, float]:
        """(weight that each message carries, weight that is kept); (0, weight) sends nothing."""

    def incoming(self, kept: float, degree: int, weights: Sequence[float]) -> tuple[float, list[float]]:
        """(the member's new weight, the share of each message in its new parameters); its own share is the rest.

        `degree`: how many messages the graph means to come at an exchange; `weights`: those that came."""


@dataclass(frozen=True)
class Uniform:
    """1 / (1 + degree) to each message; the share of one that did not come stays with the member (GALA: ring, 1/2).

    Every row sums to 1. Columns do where everybody's message is used once, as in lock-step on a regular graph; else
    the members' mean is not conserved: what slow members learned counts less."""

    adds: bool = False

    def outgoing(self, weight: float, receivers: int) -> tuple[float, float]:
        return 1.0, 1.0

    def incoming(self, kept: float, degree: int, weights: Sequence[float]) -> tuple[float, list[float]]:
        share = 1 / (1 + max(degree, len(weights)))
        return 1.0, [share] * len(weights)


@dataclass(frozen=True)
class PushSum:
    """Each message takes part of its sender's weight with it (Kempe et al. 2003; SGP, Assran et al. 2019, alg. 1).

    A member stands for weight * parameters; what leaves one arrives at another, so the sum over members and messages is
    conserved on any graph and with any delays, and every member's steps count the same in the consensus."""

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
