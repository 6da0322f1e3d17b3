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
        if self.total <= 0:
            raise ValueError("all priorities are 0")
        left = (np.arange(count) + torch.rand(count, generator=rng, dtype=torch.float64).numpy()) * (self.total / count)
        nodes, every = np.zeros(count, np.int64), np.arange(count)
        for level in self._levels[-2::-1]:
            ends = level.reshape(-1, FAN)[nodes].cumsum(1)  # [count, FAN]
            left = np.minimum(left, np.nextafter(ends[:, -1], 0.0))  # rounding must not lead past the last child
            child = (ends <= left[:, None]).sum(1)  # the first one that ends after it: its priority is not 0
            left -= np.where(child > 0, ends[every, child - 1], 0.0)
            nodes = nodes * FAN + child
        return nodes
