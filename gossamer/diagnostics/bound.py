"""The distance between gossiping members, and a bound on it from the weights and steps between two cuts.

Vectors come as random projections (`gossamer.exchange.gossip.projection`), so a distance is an estimate: its standard
error, relative to the true distance, is at most `standard_error(P)`, 1.1 % for a million parameters and 0 for networks
of at most 4,096. The lengths of steps are exact. The bound is raised by `MARGIN` standard errors. Then it holds for the
estimated distance and for the true one, except with a probability of less than 1e-4 for each vector if the errors are
normal. How large the error really is, is measured in each window: every member reports the exact length of its own
change, which the driver compares with the length of the projected change.
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
MARGIN = 4.0  # standard errors of the projection by which the bound is raised


class Incomplete(ValueError):
    """Records of a window are missing, doubled, or contradict each other: nothing can be said of it."""


@dataclass
class Window:
    """The records of one observation window: it opens at cut `epoch` and closes at cut `epoch + 1`."""

    epoch: int
    opening: dict[int, Cut] = field(default_factory=dict)  # by member
    closing: dict[int, Cut] = field(default_factory=dict)
    transit: dict[Event, Tensor] = field(default_factory=dict)
    steps: dict[Event, Tracked] = field(default_factory=dict)
    members: frozenset[int] = frozenset()

    def take(self, record: Cut | InTransit | Tracked) -> None:
        """Add a record of this window. Raises `Incomplete` if it contradicts what has come before."""
        event = (record.member, record.iteration)
        if isinstance(record, Cut):
            cuts = self.closing if record.epoch % 2 else self.opening
            if record.member in cuts:
                raise Incomplete(f"member {record.member} cut twice at epoch {record.epoch}")
            self.members = self.members or frozenset(record.members)
            if self.members != frozenset(record.members) or record.member not in self.members:
                raise Incomplete(f"who takes part changed within epoch {self.epoch}")
            cuts[record.member] = record
        elif isinstance(record, Tracked):
            if event in self.steps:
                raise Incomplete(f"member {record.member} took step {record.iteration} twice")
            self.steps[event] = record
        elif record.epoch == self.epoch:  # what is on its way at the closing cut has moved nobody within the window
            self.transit[event] = record.parameters

    @property
    def complete(self) -> bool:
        """Whether all members have delivered: their other records come before their closing cuts."""
        return bool(self.members) and self.opening.keys() == self.closing.keys() == self.members

    @property
    def standard_error(self) -> float:
        """Of the length of a projected vector of this window, relative to its true length."""
        return max(standard_error(cut.size) for cut in self.closing.values())


@dataclass(frozen=True)
class ConsensusDistance:
    """Distances of members from their mean, ||x_i - xbar||_2, at both ends of a window, and their bound at its end."""

    opened: float  # the greatest, at the opening cut
    opened_rms: float  # root of the mean square over members
    distance: float  # the greatest, at the closing cut
    distance_rms: float
    bound: float  # of `distance`
    bound_rms: float  # of `distance_rms`


def consensus_distance(window: Window) -> ConsensusDistance:
    """Distances and their bounds. Raises `Incomplete` where a vector's origin is not known."""
    members = sorted(window.members)
    opening = {(m, window.opening[m].iteration): window.opening[m].parameters for m in members}
    transit = {event: vector for event, vector in window.transit.items() if event not in opening}
    start, centre = deviations([*opening.values(), *transit.values()], len(members))
    end, _ = deviations([window.closing[m].parameters for m in members], len(members))
    radii = _radii(window, members, [*opening, *transit], start, centre) * (1 + MARGIN * window.standard_error)
    opened = start[: len(members)]
    return ConsensusDistance(*_size(opened), *_size(end), *_size(radii))


def projection_error(window: Window) -> float | None:
    """Measured error of the projection: |projected length / exact length - 1| of the members' own changes between the
    two cuts, root of the mean square; None where no member has moved."""
    errors = []
    for member, closing in window.closing.items():
        if closing.moved:
            change = closing.parameters.double() - window.opening[member].parameters.double()
            errors.append(float(change.norm()) / closing.moved - 1)
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else None


def _size(norms: Array) -> tuple[float, float]:
    """The greatest, and the root of the mean square."""
    return float(norms.max()), float(np.sqrt(np.mean(norms**2)))


def _radii(window: Window, members: list[int], starts: list[Event], deviation: Array, centre: float) -> Array:
    """[N]: how far from their mean the members can be at the closing cut.

    Every p(i, k) is sum_v a_i(v) v + sum_e c_i(e) u_e over start vectors v and displacements u_e. With rows of weights
    that sum to 1 any constant may be taken off every v, so, xbar being the members' mean at the opening cut,
    ||p_i - pbar|| <= sum_v |a_i(v) - abar(v)| ||v - xbar|| + sum_e |c_i(e) - cbar(e)| ||u_e||. What rounding leaves of
    1 - sum_v a_i(v) is charged at ||xbar||, so that it holds for whatever weights there are."""
    ends = [(m, window.closing[m].iteration) for m in members]
    events = _ancestors(window, ends, set(starts))
    place = {event: row for row, event in enumerate([*starts, *events])}
    share = np.zeros((len(place), len(members)))  # row: a_i(v) or c_i(e) of every member i
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
    """The steps of the window that had a part in `ends`, parents first."""
    graph: dict[Event, list[Event]] = {}
    left = [end for end in ends if end not in starts]
    while left:
        event = left.pop()
        if event in graph:
            continue
        if event not in window.steps:
            raise Incomplete(f"where member {event[0]} had step {event[1]} from is not known")
        parents = [(member, iteration) for member, iteration, _ in window.steps[event].parents]
        graph[event] = [parent for parent in parents if parent not in starts]
        left += graph[event]
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise Incomplete(f"steps that are their own ancestors: {error.args[1]}") from error


def deviations(vectors: Sequence[Tensor], members: int) -> tuple[Array, float]:
    """||v - xbar||_2 of every vector [D], xbar being the mean of the first `members` of them; and ||xbar||_2."""
    rows = torch.stack(list(vectors)).double()
    mean = rows[:members].mean(0)
    return (rows - mean).norm(dim=1).numpy(), float(mean.norm())


@dataclass(frozen=True)
class Cosines:
    """Cosine similarities of members' projected gradients, means over pairs; None where there are no such pairs."""

    all: float | None = None
    neighbours: float | None = None  # i and i + 1, in the order of their ranks, as a ring has them
    others: float | None = None


def cosines(window: Window) -> Cosines:
    """Of the gradients that led to the closing cut; nothing where a member has none yet."""
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
