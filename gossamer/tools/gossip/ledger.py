"""Collects the reports of a simulation's members: totals, and curves over virtual time."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Array
from gossamer.exchange.gossip.records import Cut, Traffic
from gossamer.runtime import Silent

POINTS = 60  # maximum number of points of a curve


@dataclass(frozen=True)
class Computed:
    """One iteration of one member. Times are virtual seconds."""

    iteration: int  # 1, 2, ..
    start: float
    worked: float  # duration of computing
    end: float  # after the exchange
    point: Tensor  # [P] the parameters at `end`


class Ledger(Silent):
    """Observer: adds up steps, messages and staleness, and keeps the parameters of every member over time. It ends the
    program when all members have taken their steps; messages still in transit then have no receiver."""

    def __init__(self, members: int, iterations: int) -> None:
        """`iterations`: of each member."""
        self._members, self._iterations = members, iterations
        self._done: set[str] = set()  # workers that have finished their iterations
        self.staleness = Counter[int]()
        self.iterations = self.mixed = self.sent = 0
        self.worked = 0.0  # virtual seconds of computing, of all members
        self.computed: dict[str, list[Computed]] = {}  # by worker, in order
        self.arrivals: list[tuple[float, int]] = []  # (virtual second, staleness in iterations) of averaged messages
        self.cuts: dict[int, dict[int, Tensor]] = {}
        self.taking_part: dict[int, tuple[int, ...]] = {}
        self.steps: dict[str, int] = {}

    def restored(self, worker: str) -> Any | None:
        return self.steps.get(worker)

    def save(self, worker: str, state: Any) -> None:
        self.steps[worker] = state

    def stopping(self) -> bool:
        return len(self._done) == self._members

    def report(self, worker: str, record: Any) -> None:
        computed, *kept = record
        self.computed.setdefault(worker, []).append(computed)
        self.worked += computed.worked
        if computed.iteration >= self._iterations:
            self._done.add(worker)
        for part in kept:
            if isinstance(part, Traffic):
                self._add(part, computed.end)
            elif isinstance(part, Cut):
                self.cuts.setdefault(part.epoch, {})[part.member] = part.parameters
                self.taking_part[part.epoch] = part.members

    def _add(self, traffic: Traffic, now: float) -> None:
        self.iterations += traffic.iterations
        self.mixed += traffic.mixed
        self.sent += traffic.sent
        self.staleness.update(traffic.staleness)
        self.arrivals += [(now, max(0, behind)) for behind, count in traffic.staleness.items() for _ in range(count)]

    def distance(self) -> float | None:
        """max_i ||x_i - xbar|| / ||xbar|| at the last complete cut; None if no cut is complete."""
        complete = [e for e, cut in self.cuts.items() if e and set(cut) >= set(self.taking_part[e])]
        if not complete:
            return None
        vectors = torch.stack(list(self.cuts[max(complete)].values()))
        return _relative_distance(vectors.numpy())


@dataclass(frozen=True)
class Curves:
    """Curves over virtual time. NaN marks unknown values."""

    seconds: Array  # [N] the ends of N intervals of equal length
    distance: Array  # [N] farthest training member from the mean of all training members, relative to the mean's norm
    efficiency: Array  # [N] computing time as a fraction of the members' time in this interval
    staleness_mean: Array  # [N] iterations, of messages averaged in this interval
    staleness_max: Array  # [N]


def curves(ledger: Ledger) -> Curves:
    """At most `POINTS` points, at least two iterations apart."""
    members = list(ledger.computed.values())
    count = max(2, min(POINTS, max(map(len, members)) // 2))
    edges = np.linspace(0.0, max(member[-1].end for member in members), count + 1)
    working = sum(np.diff(_worked(member, edges)) for member in members)
    present = sum(np.diff(np.minimum(edges, member[-1].end)) for member in members)
    mean, most = _staleness(ledger.arrivals, edges)
    distance = np.array([_distance_at(members, second) for second in edges[1:]])
    return Curves(edges[1:], distance, np.asarray(working / np.maximum(present, 1e-12)), mean, most)


def _worked(member: Sequence[Computed], times: Array) -> Array:
    """Seconds of computing up to each of these times."""
    knots = np.array([[each.start, each.start + each.worked] for each in member])
    before = np.concatenate([[0.0], np.cumsum([each.worked for each in member])])
    worked: Array = np.interp(times, knots.ravel(), np.stack([before[:-1], before[1:]], 1).ravel())
    return worked


def _distance_at(members: Sequence[Sequence[Computed]], second: float) -> float:
    """The distance at this time, among the members that are still training or end at this time."""
    there = [member for member in members if member[0].end <= second <= member[-1].end]
    if len(there) < 2:
        return np.nan
    points = [member[bisect_right(member, second, key=lambda each: each.end) - 1].point for member in there]
    return _relative_distance(torch.stack(points).numpy())


def _relative_distance(vectors: Array) -> float:
    """Vectors [M, P]: max_i ||x_i - xbar|| / ||xbar||."""
    mean = vectors.mean(0)
    norm = float(np.linalg.norm(mean))
    return float(np.linalg.norm(vectors - mean, axis=1).max()) / norm if norm else np.nan


def _staleness(arrivals: Sequence[tuple[float, int]], edges: Array) -> tuple[Array, Array]:
    """Mean and maximum of each interval."""
    mean, most = np.full(len(edges) - 1, np.nan), np.full(len(edges) - 1, np.nan)
    times, behind = np.array([t for t, _ in arrivals]), np.array([k for _, k in arrivals])
    interval = np.clip(np.searchsorted(edges, times) - 1, 0, len(mean) - 1)
    for i in np.unique(interval):
        inside = behind[interval == i]
        mean[i], most[i] = inside.mean(), inside.max()
    return mean, most
