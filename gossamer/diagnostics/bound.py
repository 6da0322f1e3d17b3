"""Distance of gossiping members from their mean, and a bound on it from the mixing weights and steps between two cuts.

Vectors are random projections (`gossamer.exchange.gossip.projection`), so distances are estimates. Their standard
error, relative to the true distance, is at most `standard_error(P)`: 1.1 % for a million parameters, 0 for at most
4,096. Step lengths are exact. The bound is raised by `MARGIN` standard errors. If the errors are normal, it holds for
the estimated and the true distance with probability above 1 - 1e-4 for each vector. The actual error is measured in
each window: every member reports the exact length of its own change, to compare with that of the projected change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Array
from gossamer.exchange.gossip.projection import standard_error
from gossamer.exchange.gossip.records import Cut, InTransit, Tracked

Event: TypeAlias = tuple[int, int]  # (member, iteration): p(member, iteration)
MARGIN = 4.0  # standard errors of the projection that are added to the bound


class Incomplete(ValueError):
    """A window cannot be evaluated: its records are missing, duplicated or inconsistent."""


@dataclass
class Window:
    """Records of one observation window, which opens at cut `epoch` and closes at cut `epoch + 1`."""

    epoch: int
    opening: dict[int, Cut] = field(default_factory=dict)  # by member
    closing: dict[int, Cut] = field(default_factory=dict)
    transit: dict[Event, Tensor] = field(default_factory=dict)
    steps: dict[Event, Tracked] = field(default_factory=dict)
    members: frozenset[int] = frozenset()

    def take(self, record: Cut | InTransit | Tracked) -> None:
        """Add a record of this window. Raises `Incomplete` if it contradicts an earlier record."""
        event = (record.member, record.iteration)
        if isinstance(record, Cut):
            cuts = self.closing if record.epoch % 2 else self.opening
            if record.member in cuts:
                raise Incomplete(f"member {record.member}: duplicate cut at epoch {record.epoch}")
            self.members = self.members or frozenset(record.members)
            if self.members != frozenset(record.members) or record.member not in self.members:
                raise Incomplete(f"inconsistent membership in epoch {self.epoch}")
            cuts[record.member] = record
        elif isinstance(record, Tracked):
            if event in self.steps:
                raise Incomplete(f"member {record.member}: duplicate step {record.iteration}")
            self.steps[event] = record
        elif record.epoch == self.epoch:  # messages in transit at the closing cut have no effect within the window
            self.transit[event] = record.parameters

    @property
    def complete(self) -> bool:
        """Whether all members have reported: a member's closing cut follows its other records."""
        return bool(self.members) and self.opening.keys() == self.closing.keys() == self.members

    @property
    def standard_error(self) -> float:
        """Standard error of a projected vector's length in this window, relative to its true length."""
        return max(standard_error(cut.size) for cut in self.closing.values())


@dataclass(frozen=True)
class ConsensusDistance:
    """Distances of members from their mean, ||x_i - xbar||_2, at both cuts of a window, and a bound at the second."""

    opened: float  # maximum at the opening cut
    opened_rms: float  # root mean square over members
    distance: float  # maximum at the closing cut
    distance_rms: float
    bound: float | None  # upper bound of `distance`; None if members exchange shares of their parameters
    bound_rms: float | None  # upper bound of `distance_rms`


def consensus_distance(window: Window) -> ConsensusDistance:
    """Compute distances and their bounds. Raises `Incomplete` if the record of a step is missing."""
    members = sorted(window.members)
    opening = {(m, window.opening[m].iteration): window.opening[m].parameters for m in members}
    transit = {event: vector for event, vector in window.transit.items() if event not in opening}
    start, centre = deviations([*opening.values(), *transit.values()], len(members))
    end, _ = deviations([window.closing[m].parameters for m in members], len(members))
    if not all(window.closing[m].bounded for m in members):
        return ConsensusDistance(*_size(start[: len(members)]), *_size(end), None, None)
    radii = _radii(window, members, [*opening, *transit], start, centre) * (1 + MARGIN * window.standard_error)
    opened = start[: len(members)]
    return ConsensusDistance(*_size(opened), *_size(end), *_size(radii))


def projection_error(window: Window) -> float | None:
    """Measured error of the projection: root mean square over members of projected length / exact length - 1, for their
    changes between the two cuts. None if no member has moved."""
    errors = []
    for member, closing in window.closing.items():
        if closing.moved:
            change = closing.parameters.double() - window.opening[member].parameters.double()
            errors.append(float(change.norm()) / closing.moved - 1)
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else None


def _size(norms: Array) -> tuple[float, float]:
    """Maximum and root mean square."""
    return float(norms.max()), float(np.sqrt(np.mean(norms**2)))


def _radii(window: Window, members: list[int], starts: list[Event], deviation: Array, centre: float) -> Array:
    """Upper bounds [N] of the members' distances from their mean at the closing cut.

    Every p(i, k) is sum_v a_i(v) v + sum_e c_i(e) u_e over start vectors v and displacements u_e. Rows of weights sum
    to 1, so any constant may be subtracted from every v. With the members' mean xbar at the opening cut,
    ||p_i - pbar|| <= sum_v |a_i(v) - abar(v)| ||v - xbar|| + sum_e |c_i(e) - cbar(e)| ||u_e||. The remainder
    1 - sum_v a_i(v), from rounding, is multiplied by ||xbar|| and added, so the bound holds for any weights."""
    ends = [(m, window.closing[m].iteration) for m in members]
    events = _ancestors(window, ends, set(starts))
    place = {event: row for row, event in enumerate([*starts, *events])}
    share = np.zeros((len(place), len(members)))  # rows: a_i(v) or c_i(e), columns: members i
    for column, end in enumerate(ends):
        share[place[end], column] = 1.0
    for event in reversed(events):  # children first: a row is final when it is passed on
        for member, iteration, weight in window.steps[event].parents:
            share[place[member, iteration]] += weight * share[place[event]]
    off = np.abs(share - share.mean(1, keepdims=True))
    size = np.concatenate([deviation, [window.steps[event].moved for event in events]])
    total = share[: len(starts)].sum(0)
    radii: Array = size @ off + centre * np.abs(total - total.mean())
    return radii


def _ancestors(window: Window, ends: list[Event], starts: set[Event]) -> list[Event]:
    """Return the steps of the window that contributed to `ends`, parents first."""
    graph: dict[Event, list[Event]] = {}
    left = [end for end in ends if end not in starts]
    while left:
        event = left.pop()
        if event in graph:
            continue
        if event not in window.steps:
            raise Incomplete(f"member {event[0]}: no record of step {event[1]}")
        parents = [(member, iteration) for member, iteration, _ in window.steps[event].parents]
        graph[event] = [parent for parent in parents if parent not in starts]
        left += graph[event]
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise Incomplete(f"steps form a cycle: {error.args[1]}") from error


def deviations(vectors: Sequence[Tensor], members: int) -> tuple[Array, float]:
    """Return ||v - xbar||_2 for every vector [D], and ||xbar||_2. xbar is the mean of the first `members` vectors."""
    rows = torch.stack(list(vectors)).double()
    mean = rows[:members].mean(0)
    return (rows - mean).norm(dim=1).numpy(), float(mean.norm())


@dataclass(frozen=True)
class Cosines:
    """Mean cosine similarities of pairs of members' projected gradients; None if there is no such pair."""

    all: float | None = None
    neighbours: float | None = None  # members with adjacent ranks, the neighbours in a ring
    others: float | None = None


def cosines(window: Window) -> Cosines:
    """Compare the members' last gradients before the closing cut. All values are None if a gradient is missing."""
    cuts = [window.closing[member] for member in sorted(window.members)]
    gradients = [cut.gradient for cut in cuts if cut.gradient is not None]
    if len(gradients) < len(cuts):
        return Cosines()
    rows = torch.stack(gradients).double()
    products = rows @ rows.T
    norms = products.diagonal().sqrt().clamp_min(1e-300)
    cosine = products / norms.outer(norms)
    near = {tuple(sorted((i, (i + 1) % len(cuts)))) for i in range(len(cuts))}
    pairs = list(combinations(range(len(cuts)), 2))
    return Cosines(
        _mean([float(cosine[pair]) for pair in pairs]),
        _mean([float(cosine[pair]) for pair in pairs if pair in near]),
        _mean([float(cosine[pair]) for pair in pairs if pair not in near]),
    )


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
