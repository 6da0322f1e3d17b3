"""Losses that are too far above their running mean."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.data import Tree

WARM_UP = 100  # losses before the first one may be an outlier
DECAY = 0.999  # of the running means, for each loss


@dataclass
class Outliers:
    """Tells which losses exceed their running mean by more than `deviations` standard deviations (Nair et al. 2015,
    section 4.3, which gives neither the number nor the kind of mean).

    Means decay exponentially and include outliers, so that a lasting change of losses is soon none."""

    deviations: float
    count: int = 0
    mean: float = 0.0
    square: float = 0.0  # mean of the squares

    def add(self, loss: float) -> bool:
        """Take a loss into the means. Returns whether it is an outlier among those before it."""
        spread = math.sqrt(max(0.0, self.square - self.mean**2))
        outlier = self.count >= WARM_UP and loss > self.mean + self.deviations * spread
        self.count += 1
        part = max(1 / self.count, 1 - DECAY)  # a plain mean first
        self.mean += part * (loss - self.mean)
        self.square += part * (loss**2 - self.square)
        return outlier

    def state_dict(self) -> Tree:
        """See `load_state_dict`."""
        return {"count": self.count, "mean": self.mean, "square": self.square}

    def load_state_dict(self, state: Tree) -> None:
        """Restore a state of `state_dict`."""
        self.count, self.mean, self.square = int(state["count"]), float(state["mean"]), float(state["square"])
