"""The one budget of environment steps of a run: leased before they are acted, counted once they are reported."""

from __future__ import annotations

from collections import Counter


class Budget:
    """`total` steps, of which some have been `acted` before. The caller locks.

    The budget is spent in whole leases: the last one may go beyond `total`, by less than its own size. No step is
    counted twice: a worker's reports count up to what it has leased.
    """

    def __init__(self, total: int, acted: int = 0) -> None:
        self.total, self.acted = total, acted
        self._leased = Counter[str]()  # worker -> steps leased and not reported yet
        self._acting = set[str]()  # workers that have leased steps

    @property
    def granted(self) -> int:
        """Steps acted or leased."""
        return self.acted + self._leased.total()

    @property
    def missing(self) -> int:
        """Steps that have not been acted."""
        return max(0, self.total - self.acted)

    def near_end(self, worker: str, steps: int, workers: int) -> bool:
        """Return whether the worker's leased steps plus `steps` exceed a quarter of its equal share of the unleased
        steps. With such a lease it might end long after the other workers. `workers`: how many act; more count if more
        have leased steps."""
        workers = max(workers, len(self._acting))
        return self._leased[worker] + steps > (self.total - self.granted) / (4 * workers)

    def lease(self, worker: str, steps: int) -> int | None:
        """Lease so many steps; their position, or None where all steps are acted or leased."""
        position = self.granted
        if steps and position >= self.total:
            return None
        self._leased[worker] += steps
        self._acting |= {worker} if steps else set()
        return position

    def holds(self, worker: str) -> bool:
        """Whether the worker has leased steps that it has not reported."""
        return self._leased[worker] > 0

    def report(self, worker: str, steps: int) -> int:
        """The worker has acted so many steps; how many of them count: not those whose lease was taken back."""
        counted = min(steps, self._leased[worker])
        self._leased[worker] -= counted
        self.acted += counted
        return counted

    def release(self, worker: str) -> int:
        """Take back what the worker has leased and not reported; how many steps."""
        return self._leased.pop(worker, 0)
