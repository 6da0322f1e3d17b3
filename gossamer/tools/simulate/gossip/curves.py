"""Curves of a simulation of gossip over virtual time: distance to consensus, efficiency, staleness."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Array
from gossamer.exchange.gossip.records import Cut
from gossamer.tools.simulate.gossip.members import Iteration
from gossamer.tools.simulate.ledger import Ledger, busy
from gossamer.tools.simulate.picture import POINTS

FINE = 400  # parts of a run in which `reached` looks


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
    lines = list(_lines(ledger).values())
    count = max(2, min(POINTS, max(map(len, lines)) // 2))
    edges = np.linspace(0.0, max(line[-1].end for line in lines), count + 1)
    working = busy([span for line in lines for each in line for span in each.spans], edges) * np.diff(edges)
    present = sum(np.diff(np.minimum(edges, line[-1].end)) for line in lines)
    mean, most = _staleness(_arrivals(ledger), edges)
    members = _members(lines)
    distance = np.array([_distance_at(_training(members, second), second) for second in edges[1:]])
    return Curves(edges[1:], distance, np.asarray(working / np.maximum(present, 1e-12)), mean, most)


class Reached(NamedTuple):
    """What there was until a distance was reached."""

    seconds: float
    sent: float  # messages sent by each member
    whole: float  # of these: messages with all parameters


def reached(ledger: Ledger, distance: float) -> Reached | None:
    """When the farthest of all members is first this near to the mean, to `FINE` parts of the run; None if it never is.
    Members that have ended or are away count with the parameters that they had last."""
    lines = _members(list(_lines(ledger).values()))
    begun, end = max(line[0].end for line in lines), max(line[-1].end for line in lines)
    for second in np.linspace(0.0, end, FINE + 1)[1:]:
        if second >= begun and _distance_at(lines, second) <= distance:
            traffic = [t for line in lines for each in line if each.end <= second for t in each.traffic]
            sent, whole = sum(t.sent for t in traffic), sum(t.sent_whole for t in traffic)
            return Reached(float(second), sent / len(lines), whole / len(lines))
    return None


def cut_distance(ledger: Ledger) -> float | None:
    """max_i ||x_i - xbar|| / ||xbar|| at the last complete cut; None if no cut is complete."""
    cuts: dict[int, dict[int, Tensor]] = {}
    taking_part: dict[int, tuple[int, ...]] = {}
    for _, iteration in ledger.of(Iteration):
        for cut in iteration.exchange:
            if isinstance(cut, Cut):
                cuts.setdefault(cut.epoch, {})[cut.member] = cut.parameters
                taking_part[cut.epoch] = cut.members
    complete = [epoch for epoch, cut in cuts.items() if epoch and set(cut) >= set(taking_part[epoch])]
    if not complete:
        return None
    return _relative_distance(torch.stack(list(cuts[max(complete)].values())).numpy())


def _lines(ledger: Ledger) -> dict[str, list[Iteration]]:
    """The iterations of each learner, in order."""
    learners: dict[str, list[Iteration]] = {}
    for worker, iteration in ledger.of(Iteration):
        learners.setdefault(worker, []).append(iteration)
    return learners


def _members(lines: Sequence[list[Iteration]]) -> list[list[Iteration]]:
    """Those of the learners that gossip: of each group one."""
    return [line for line in lines if any(each.traffic for each in line)]


def _arrivals(ledger: Ledger) -> list[tuple[float, int]]:
    """(virtual second, staleness in iterations) of averaged messages."""
    return [
        (iteration.end, max(0, behind))
        for _, iteration in ledger.of(Iteration)
        for behind, count in iteration.lag.items()
        for _ in range(count)
    ]


def _distance_at(members: Sequence[Sequence[Iteration]], second: float) -> float:
    """The distance among these members, which have all begun by then. NaN for fewer than two."""
    if len(members) < 2:
        return np.nan
    points = [member[bisect_right(member, second, key=lambda each: each.end) - 1].point for member in members]
    return _relative_distance(torch.stack(points).numpy())


def _training(members: Sequence[list[Iteration]], second: float) -> list[list[Iteration]]:
    """The members that have begun, and are still training or end at this time."""
    return [member for member in members if member[0].end <= second <= member[-1].end]


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
