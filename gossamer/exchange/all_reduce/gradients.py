"""The service in which the learners of one host meet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from gossamer.exchange.all_reduce.given import Given, Lead, RoundOutcome
from gossamer.runtime import Wait, waits


@dataclass
class Round:
    """What happens in one round."""

    given: dict[int, Given] = field(default_factory=dict)  # by the learner's rank
    led: bool = False  # whether a learner makes it a result
    broken: bool = False  # whether a learner was stopped while it waited: then none completes the round
    outcome: RoundOutcome | None = None
    seen: set[int] = field(default_factory=set)  # learners that have the outcome


class Gradients:
    """Service: collects what the learners of one host give in each round. One of them, the leader, computes the result
    from it outside of the service. They share tensors by reference."""

    def __init__(self, learners: int, first: int = 0) -> None:
        """`learners` of consecutive ranks, from the `first` on."""
        self._active = set(range(first, first + learners))  # those that still have batches to learn from
        self._learners = set(self._active)
        self._rounds: dict[int, Round] = {}

    @waits
    def exchange(self, rank: int, number: int, given: Given | None) -> Wait[Lead | RoundOutcome]:
        """Give something in the round `number`; None: this learner has no more batches. Waits until every learner that
        still has batches has given something. Then the one with the lowest rank leads, and the others wait for the
        outcome that it publishes."""
        here = self._rounds.setdefault(number, Round())
        if given is None:
            self._active.discard(rank)
        else:
            here.given[rank] = given
        try:
            while here.outcome is None and not self._leads(rank, here):
                yield
        except GeneratorExit:
            here.given.pop(rank, None)
            here.broken = True
            raise
        if here.outcome is None:
            here.led = True
            return Lead(tuple(here.given[each] for each in sorted(here.given)))
        self._saw(rank, number, here)
        return here.outcome

    def publish(self, rank: int, number: int, outcome: RoundOutcome) -> bool:
        """The leader has a result. Returns whether it counts: not if a learner was stopped meanwhile, which then does
        not do what the others do."""
        here = self._rounds[number]
        if here.broken:
            return False
        here.outcome = outcome
        self._saw(rank, number, here)
        return True

    def forget(self, ranks: Collection[int]) -> None:
        """These learners had ended before this host restarted."""
        self._active -= set(ranks)
        self._learners -= set(ranks)

    def leave(self, rank: int) -> bool:
        """The learner ends: after it said that it has no more batches, or because the program is stopped. Returns
        whether it was the last of this host."""
        self._learners.discard(rank)
        return not self._learners

    def _leads(self, rank: int, here: Round) -> bool:
        complete = self._active <= here.given.keys()
        return complete and rank == min(self._learners) and not here.led and not here.broken

    def _saw(self, rank: int, number: int, here: Round) -> None:
        here.seen.add(rank)
        if here.seen >= self._learners:
            self._rounds.pop(number, None)
