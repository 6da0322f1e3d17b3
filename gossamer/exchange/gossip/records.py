"""What a gossiping member reports: the data from which the driver computes how far apart the members are, and why.

A *cut* is a consistent snapshot of all members: no member has received a message that another one sent after its own
part of the snapshot. Each member takes its part by itself (Lai and Yang 1987): every message carries its sender's
epoch, and a member that is about to average in a message of a later epoch than its own first takes its part of the cut.
Epochs come in pairs: an even one opens an observation window, the next one closes it. Within a window the weights and
the length of every step are recorded.

With p(i, k) the parameters of member i after its local step k, y = sum_j w_j p(j, s_j) what it mixed them to (p(i, k)
itself where it exchanged nothing) and u(i, k + 1) = p(i, k + 1) - y what its optimiser then did, every p is a sum of
earlier ones and of displacements, whatever the delays. The weights are the realised mixing matrices, row by row.

No parameter vector [P] is reported: vectors travel as their random projections [D] (`projection`), 16 KB each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from gossamer.data import Array


@dataclass(frozen=True)
class PolicyOutputs:
    """A member's policy on the reference observations, which all members have (`gossamer.reference`)."""

    observations: Array  # [M] uint32, a checksum of each one
    logits: Tensor  # [M, A] float32


@dataclass(frozen=True)
class Cut:
    """One member's part of a consistent cut."""

    epoch: int  # even: a window opens here; odd: it closes
    member: int
    iteration: int  # k, its optimiser steps so far
    members: tuple[int, ...]  # the active members, as this member sees them
    size: int  # P, elements of a vector of all parameters
    parameters: Tensor  # [D]  projection of p(member, iteration)
    # At a closing cut only, and not before the first step:
    gradient: Tensor | None = None  # [D]  projection of the gradient that led to it
    moved: float | None = None  # ||p - p at this member's opening cut||_2, exact
    policy: PolicyOutputs | None = None


@dataclass(frozen=True)
class InTransit:
    """A message that was sent before the cut and arrived after it: it belongs to the state of that cut too."""

    epoch: int
    member: int  # the sender
    iteration: int
    parameters: Tensor  # [D]  their projection


@dataclass(frozen=True)
class Tracked:
    """One step of one member within a window: p(member, iteration) = sum of weight * p(parent) + u."""

    epoch: int  # of the window's opening
    member: int
    iteration: int
    parents: tuple[tuple[int, int, float], ...]  # (member, iteration, weight), its own last one among them
    moved: float  # ||u||_2, exact, plus what lossy messages may have added


@dataclass(frozen=True)
class Traffic:
    """Counts of one member since its last report."""

    iterations: int = 0
    sent: int = 0  # messages handed over, one for each receiver
    mixed: int = 0  # messages averaged in
    refused: int = 0  # packets that came to its host and could not be used; each is reported by one member
    waited: float = 0.0  # seconds held back by the bound on staleness
    staleness: dict[int, int] = field(default_factory=dict)  # iterations that a mixed message was behind -> how many
    ages: dict[int, int] = field(default_factory=dict)  # floor(log2 milliseconds since it was published) -> how many
    weight: float = 1.0  # push-sum weight
    cpu: float = field(default=0.0, compare=False)  # seconds of processor time of the member's thread
    cpu_diagnostics: float = field(default=0.0, compare=False)  # of them, spent on these records


Record = Cut | InTransit | Tracked | Traffic
