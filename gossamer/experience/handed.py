"""What an actor hands over to learners elsewhere, named so that the run can count what becomes of it."""

from __future__ import annotations

from gossamer.data import Rollout
from gossamer.experience.base import Kept


class Handed:
    """The rollouts of one life of an actor."""

    def __init__(self, actor: int, life: int) -> None:
        """`actor`: its rank; `life`: restarts of its host."""
        self._actor, self._life = actor, life
        self._number = 0  # of the last rollout
        self._all, self._refused = list[Rollout](), list[Rollout]()  # since the last call of `kept`

    def next(self, position: int, steps: int) -> Rollout:
        """Name the actor's next rollout: environment steps in the run's budget before it, and in it."""
        self._number += 1
        return Rollout(self._actor, self._life, self._number, position, steps)

    def add(self, rollout: Rollout, taken: bool) -> None:
        """The learner's side has taken the rollout, or refused it."""
        self._all.append(rollout)
        if not taken:
            self._refused.append(rollout)

    def kept(self) -> Kept:
        """What has been handed over since the last call."""
        kept = Kept(handed_over=tuple(self._all), refused=tuple(self._refused))
        self._all, self._refused = [], []
        return kept
