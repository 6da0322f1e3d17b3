"""A sum tree: leaves are drawn in proportion to their priorities (Schaul et al. 2016, appendix B.2.1).

Each node has `FAN` children, which lie side by side, so that one NumPy operation reads or adds up the children of a
whole batch of nodes: a million leaves have five levels."""

from __future__ import annotations

import numpy as np
import torch

from gossamer.data import Array

FAN = 16  # children of a node


class Priorities:
    """Priorities of leaves 0 .. count - 1, at first 0.

    Sums are added up anew from the children and not changed by differences, so that rounding errors do not
    accumulate."""

    def __init__(self, count: int) -> None:
        """Raises `ValueError` if there are no leaves."""
        if count < 1:
            raise ValueError(f"{count} leaves: a sum tree needs at least one")
        self._levels: list[Array] = []  # of float64, the leaves first; each but the last a multiple of FAN
        width = count
        while not self._levels or width > 1:
            width = -(-width // FAN) * FAN
            self._levels.append(np.zeros(width))
            width //= FAN
        self._levels.append(np.zeros(1))
        self._count = count

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._levels[-1][0])

    @property
    def leaves(self) -> Array:
        """The priorities of all leaves [count], as a view. To be changed with `set` only."""
        return self._levels[0][: self._count]

    def set(self, leaves: Array, priorities: Array | float) -> None:
        """Change the priorities [W] (at least 0, finite) of leaves [W]. Of equal leaves the last one counts."""
        self._levels[0][leaves] = priorities
        nodes = leaves
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            nodes = nodes // FAN
            level[nodes] = below.reshape(-1, FAN)[nodes].sum(1)

    def draw(self, count: int, rng: torch.Generator) -> Array:
        """Draw leaves [count] in proportion to their priorities, with replacement. Stratified: one from each of `count`
        equal parts of the total, so that the expected number of draws of a leaf is exactly count * priority / total.

        Raises `ValueError` if all priorities are 0."""
        return self.at(strata(count, self.total, rng))

    def at(self, left: Array) -> Array:
        """The leaves [W] at these positions, from 0 to the total, where each leaf is as wide as its priority."""
        nodes, every = np.zeros(len(left), np.int64), np.arange(len(left))
        for level in self._levels[-2::-1]:
            ends = level.reshape(-1, FAN)[nodes].cumsum(1)  # [count, FAN]
            left = np.minimum(left, np.nextafter(ends[:, -1], 0.0))  # rounding must not lead past the last child
            child = (ends <= left[:, None]).sum(1)  # the first one that ends after it: its priority is not 0
            left -= np.where(child > 0, ends[every, child - 1], 0.0)
            nodes = nodes * FAN + child
        return nodes


class PrioritiesOfGames:
    """Priorities of leaves of several games: each game is drawn as often as it has steps, and within a game each leaf
    in proportion to its priority. With one tree, the game with the largest or least predictable returns would take the
    samples of the others."""

    def __init__(self, count: int, games: int) -> None:
        """Leaves 0 .. count - 1, at first 0. Raises `ValueError` if there are none."""
        self._trees = [Priorities(count) for _ in range(games)]

    @property
    def leaves(self) -> Array:
        """The priorities of all leaves [count]: a view with one game, else a copy."""
        first, *others = [tree.leaves for tree in self._trees]
        return np.add.reduce([first, *others]) if others else first

    def of(self, leaves: Array) -> Array:
        """The priorities [W] of some leaves."""
        found: Array = np.add.reduce([tree.leaves[leaves] for tree in self._trees])  # 0 in those of other games
        return found

    def set(self, leaves: Array, priorities: Array | float, games: Array) -> None:
        """Change the priorities [W] of leaves [W], which are of these games [W]."""
        each = np.broadcast_to(np.asarray(priorities, np.float64), leaves.shape)
        for game, tree in enumerate(self._trees):
            own = games == game
            if own.any():
                tree.set(leaves[own], each[own])

    def scales(self, steps: Array, windows: int) -> Array:
        """What brings each game's priorities to its part of `windows` [G]; 1 with one game. `steps` [G]: that are
        stored of each game."""
        if len(self._trees) == 1:
            return np.ones(1)
        totals = np.array([tree.total for tree in self._trees])
        shares = np.where(totals > 0, steps, 0)
        found: Array = np.zeros(len(totals))
        there = shares > 0
        found[there] = windows * shares[there] / (shares.sum() * totals[there])
        return found

    def total(self, scales: Array) -> float:
        """The sum of all scaled priorities."""
        return float(sum(tree.total * scale for tree, scale in zip(self._trees, scales, strict=True)))

    def draw(self, count: int, rng: torch.Generator, scales: Array) -> tuple[Array, Array]:
        """Draw leaves [count] in proportion to their scaled priorities, and return these [count], too; see
        `Priorities.draw`."""
        totals = np.array([tree.total for tree in self._trees]) * scales
        ends = totals.cumsum()
        left = strata(count, float(ends[-1]), rng)
        games = np.minimum(np.searchsorted(ends, left, side="right"), np.flatnonzero(totals).max())
        leaves, mass = np.zeros(count, np.int64), np.zeros(count)
        for game in np.unique(games):
            own, tree, scale = games == game, self._trees[game], scales[game]
            leaves[own] = tree.at((left[own] - (ends[game] - totals[game])) / scale)
            mass[own] = tree.leaves[leaves[own]] * scale
        return leaves, mass


def strata(count: int, total: float, rng: torch.Generator) -> Array:
    """Positions [count], a random one in each of `count` equal parts of the total. Raises `ValueError` if it is 0."""
    if total <= 0:
        raise ValueError("all priorities are 0")
    drawn: Array = np.arange(count) + torch.rand(count, generator=rng, dtype=torch.float64).numpy()
    return drawn * (total / count)
