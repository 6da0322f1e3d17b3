"""Who goes on next in virtual time: one of the earliest, and the seed decides which."""

from __future__ import annotations

import heapq
import random
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    at: float | None  # seconds at which it is on the agenda; None where it is not


T = TypeVar("T", bound=Timed)


class EventQueue(Generic[T]):
    """Everybody who can go on, by the second at which. Any of those at the same second is as likely to be next.

    Not a heap of (second, random number): who drew a high number would be overtaken again and again by others that
    come back at the same second with a new one.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._at: dict[float, list[T]] = {}
        self._seconds: list[float] = []  # heap; may hold seconds at which nobody is left

    def add(self, who: T, second: float) -> None:
        who.at = second
        if (others := self._at.get(second)) is None:
            self._at[second] = [who]
            heapq.heappush(self._seconds, second)
        else:
            others.append(who)

    def remove(self, who: T) -> None:
        """Take somebody off; nothing happens where they are not on it."""
        if who.at is None:
            return
        others = self._at[who.at]
        others.remove(who)
        if not others:
            del self._at[who.at]
        who.at = None

    def first(self) -> float | None:
        """The earliest second at which somebody can go on."""
        while self._seconds and self._seconds[0] not in self._at:
            heapq.heappop(self._seconds)
        return self._seconds[0] if self._seconds else None

    def take(self, second: float) -> T:
        """Choose and take off one of those at `second`."""
        others = self._at[second]
        who = others.pop(self._rng.randrange(len(others)))
        if not others:
            del self._at[second]
        who.at = None
        return who
