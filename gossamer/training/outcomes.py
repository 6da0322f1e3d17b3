"""What becomes of the environment steps that are acted: each is learned from, or dropped for a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum

from gossamer.data import Rollout
from gossamer.task import WorkerReport


class Reason(Enum):
    """Why steps that were acted were not learned from."""

    REFUSED = "refused"  # their slot had been given to another actor, or their learner had ended
    ENDED = "ended"  # they were on the way to a learner, or in its memory, when it ended
    FAILED = "failed"  # they were with a worker or on a host that failed, or that was ended at once


class Outcomes:
    """The steps that are acted and not learned from yet, and those that are learned from and not reported as acted.

    Nothing is a difference of totals: what goes from one worker to another is a named rollout, which both report, in
    either order. A worker that learns from its own steps reports both at once."""

    def __init__(self) -> None:
        self._open = set[Rollout]()  # acted, not learned from
        self._early = set[Rollout]()  # learned from, not reported as acted
        self._why: dict[Rollout, Reason] = {}  # if it is not learned from
        self._last: dict[tuple[int, int], int] = {}  # actor and life -> number of its last reported rollout
        self._own = Counter[str]()  # worker -> its own steps that it has not learned from
        self._failed = 0  # steps of such workers that have died

    def found(self, own: Mapping[str, int], rollouts: Collection[Rollout]) -> None:
        """Begin with what an earlier session acted and did not learn from: steps in memories of workers of their own,
        and rollouts in those of several."""
        self._own.update(own)
        self._open.update(rollouts)
        for rollout in rollouts:
            last = self._last.get((rollout.actor, rollout.life), 0)
            self._last[rollout.actor, rollout.life] = max(last, rollout.number)

    def update(self, worker: str, report: WorkerReport) -> int:
        """Add what a worker reports. Returns the steps in `report.learned` that have been counted as learned from
        before: after a restart, a service may take a rollout for a new one."""
        for rollout in report.handed_over:
            self._last[rollout.actor, rollout.life] = rollout.number
            if rollout in self._early:
                self._early.discard(rollout)
            else:
                self._open.add(rollout)
        self._why |= dict.fromkeys(report.refused, Reason.REFUSED)
        acted = report.steps - sum(rollout.steps for rollout in report.handed_over)
        learned = report.learned - sum(rollout.steps for rollout in report.learned_of)
        self._own[worker] += acted - learned
        return sum(rollout.steps for rollout in report.learned_of if not self._learned(rollout))

    def _learned(self, rollout: Rollout) -> bool:
        """A rollout has been learned from: whether for the first time."""
        if rollout in self._open:
            self._open.discard(rollout)
            self._why.pop(rollout, None)
        elif rollout.number <= self._last.get((rollout.actor, rollout.life), 0) or rollout in self._early:
            return False
        else:
            self._early.add(rollout)
        return True

    def left(self, rollouts: tuple[Rollout, ...]) -> None:
        """These rollouts were on the way to a learner that has ended; some may have been learned from."""
        for rollout in rollouts:
            self._why.setdefault(rollout, Reason.ENDED)

    def died(self, worker: str) -> None:
        """The worker's process has died, with what it had not learned from."""
        self._failed += self._own.pop(worker, 0)

    def dropped(self) -> dict[str, int]:
        """Steps acted that are not learned from, by reason, if no worker runs any more."""
        found = Counter({Reason.ENDED: self._own.total(), Reason.FAILED: self._failed})
        for rollout in self._open:
            found[self._why.get(rollout, Reason.FAILED)] += rollout.steps
        return {why.value: found[why] for why in Reason}

    @property
    def unreported(self) -> int:
        """Steps learned from whose actors have not reported them, because they died before."""
        return sum(rollout.steps for rollout in self._early)

    def told(self) -> str:
        """The losses in words, if no worker runs any more; empty without any."""
        lost, parts = {why: steps for why, steps in self.dropped().items() if steps}, list[str]()
        if lost:
            which = ", ".join(f"{steps:,} {why}" for why, steps in lost.items()) if len(lost) > 1 else next(iter(lost))
            parts.append(f"{sum(lost.values()):,} steps were not learned from ({which})")
        if self.unreported:
            parts.append(f"{self.unreported:,} were learned from and not reported")
        return "; ".join(parts)
