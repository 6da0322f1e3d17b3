"""What a gossiping member reports of itself, so that somebody can say how far apart the members are, and why.

A *cut* is the state of all members at one moment that nothing contradicts: no member has received what another sent
only afterwards. Each member takes its part of a cut by itself (Lai and Yang 1987): every message carries its sender's
epoch, and whoever is about to take in a message of a later epoch than its own first keeps its state. Epochs come in
pairs: an even one opens a window, the next one closes it. Within a window every displacement and weight is kept.

With p(i, k) the parameters of member i after its local step k, y = sum_j w_j p(j, s_j) what it mixed them to (p(i, k)
itself where it exchanged nothing) and u(i, k + 1) = p(i, k + 1) - y what its optimiser then did, every p is a sum of
earlier ones and of displacements, whatever the delays. The weights are the realised mixing matrices, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Cut:
    """One member's part of a consistent cut."""

    epoch: int  # even: a window opens here; odd: it closes
    member: int
    iteration: int  # k, its optimiser steps so far
    members: tuple[int, ...]  # who takes part, as this member sees it
    parameters: Tensor  # [P]  p(member, iteration); [P] is every parameter in one vector
    gradient: Tensor | None  # [P]  that led to it; None before the first step


@dataclass(frozen=True)
class InTransit:
    """A message from before the cut that arrived after it: part of the state of that cut too."""

    epoch: int
    member: int  # who sent it
    iteration: int
    parameters: Tensor  # [P]


@dataclass(frozen=True)
class Tracked:
    """One step of one member within a window: p(member, iteration) = sum of weight * p(parent) + u."""

    epoch: int  # of the window's opening
    member: int
    iteration: int
    parents: tuple[tuple[int, int, float], ...]  # (member, iteration, weight), its own last one among them
    moved: float  # ||u||_2, plus what lossy messages may have added


@dataclass(frozen=True)
class Traffic:
    """What a member sent, got and waited for since it last said so."""

    iterations: int = 0
    sent: int = 0  # messages handed over, one for each receiver
    mixed: int = 0  # messages averaged in
    refused: int = 0  # packets that came to its host and could not be used; each is told to one member
    waited: float = 0.0  # seconds held back by the bound on staleness
    staleness: dict[int, int] = field(default_factory=dict)  # iterations that a mixed message was behind -> how many
    ages: dict[int, int] = field(default_factory=dict)  # floor(log2 milliseconds since it was published) -> how many
    weight: float = 1.0  # push-sum weight


Record = Cut | InTransit | Tracked | Traffic
