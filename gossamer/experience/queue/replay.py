"""Uniform replay of trajectories (Espeholt et al. 2018, section 5.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gossamer.data import Trajectory


class Share:
    """Old trajectories in each batch, so that they are a fraction of all trajectories that are learned from."""

    def __init__(self, share: float) -> None:
        """`share`: of old trajectories, 0 <= share < 1, on average over batches."""
        self._share = share
        self._owed = 0.0  # old trajectories, of which the next batch gets the whole ones

    def of(self, fresh: int) -> int:
        """How many are added to a batch of so many fresh ones."""
        self._owed += fresh * self._share / (1 - self._share)
        wanted = int(self._owed + 1e-9)  # nine ninths are one
        self._owed -= wanted
        return wanted


@dataclass(frozen=True)
class Mixed:
    """A batch of fresh and old trajectories."""

    data: Trajectory
    windows: Tensor | None = None  # keys of the old ones in replay memories on other hosts; None: none are from there


class Mixing(Protocol):
    """Adds old trajectories to new batches."""

    def mixed(self, fresh: Trajectory) -> Mixed:
        """Return a batch of fresh and old trajectories."""


class Replay:
    """Keeps copies of the newest trajectories and adds some of them to each new batch.

    The copies lie in one ring, which is allocated with the first batch. If each copy were a block of its own, the
    allocator could not reuse the memory of earlier batches: the process would grow to several times what it keeps."""

    def __init__(self, share: float, capacity: int, rng: torch.Generator) -> None:
        """`share`: see `Share`; `capacity`: trajectories kept; `rng`: a generator of the CPU."""
        self._share, self._capacity, self._rng = Share(share), capacity, rng
        self._memory: Trajectory | None = None  # allocated with the first batch
        self._kept: list[Trajectory] = []  # one environment each: columns of the memory
        self._next = 0  # column that is overwritten next

    def mixed(self, fresh: Trajectory) -> Mixed:
        """Return a batch of fresh and old trajectories, and keep copies of the fresh ones."""
        wanted = self._share.of(fresh.num_envs) if self._kept else 0
        chosen = torch.randint(len(self._kept) or 1, (wanted,), generator=self._rng).tolist()
        batch = Trajectory.concatenated([fresh, *(self._kept[i] for i in chosen)]) if chosen else fresh
        self._keep(fresh)
        return Mixed(batch)

    def _keep(self, fresh: Trajectory) -> None:
        """Copy trajectories into the ring, in place of the oldest ones."""
        if self._memory is None:
            self._memory = fresh.new_empty(self._capacity)
        for b in range(fresh.num_envs):
            if len(self._kept) < self._capacity:
                self._kept.append(self._memory.column(self._next))
            self._kept[self._next].copy_(fresh.column(b))
            self._next = (self._next + 1) % self._capacity
