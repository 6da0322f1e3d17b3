"""Uniform replay of trajectories (Espeholt et al. 2018, section 5.2.2)."""

from __future__ import annotations

from collections import deque

import torch

from gossamer.data import Trajectory


class Replay:
    """Keeps copies of the newest trajectories and adds some of them to each new batch."""

    def __init__(self, share: float, capacity: int, rng: torch.Generator) -> None:
        """`share`: fraction of old trajectories, 0 <= share < 1, on average over batches; `capacity`: trajectories
        kept; `rng`: a generator of the CPU."""
        self._share, self._capacity, self._rng = share, capacity, rng
        self._kept = deque[Trajectory]()  # one environment each
        self._owed = 0.0  # old trajectories, of which the next batch gets the whole ones

    def mixed(self, fresh: Trajectory) -> Trajectory:
        """Return a batch of fresh and old trajectories, and keep copies of the fresh ones."""
        width = len(fresh.version)
        self._owed += width * self._share / (1 - self._share) if self._kept else 0.0
        wanted = int(self._owed + 1e-9)  # nine ninths are one
        self._owed -= wanted
        chosen = torch.randint(len(self._kept) or 1, (wanted,), generator=self._rng).tolist()
        batch = Trajectory.concatenated([fresh, *(self._kept[i] for i in chosen)]) if chosen else fresh
        self._kept.extend(Trajectory.concatenated([fresh.column(b)]) for b in range(width))
        while len(self._kept) > self._capacity:
            self._kept.popleft()
        return batch
