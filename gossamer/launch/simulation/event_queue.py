"""Event queue in virtual time: the earliest item comes first, and the seed decides between items of the same time."""

from __future__ import annotations

import heapq
import random
from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    at: float | None  # its time in the queue, in virtual seconds; None if it is not in the queue


T = TypeVar("T", bound=Timed)


class EventQueue(Generic[T]):
    """Items ordered by virtual time. Items of the same time are drawn with equal probability.

    A heap of (second, random number) would not do that: an item with a high number could be overtaken again and again
    by items that return to the same second with a new number.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._at: dict[float, list[T]] = {}
        self._seconds: list[float] = []  # heap; may contain seconds without items

    def add(self, item: T, second: float) -> None:
        item.at = second
        if (others := self._at.get(second)) is None:
            self._at[second] = [item]
            heapq.heappush(self._seconds, second)
        else:
            others.append(item)

    def remove(self, item: T) -> None:
        """Remove an item, if it is in the queue."""
        if item.at is None:
            return
        others = self._at[item.at]
        others.remove(item)
        if not others:
            del self._at[item.at]
        item.at = None

    def __contains__(self, second: float) -> bool:
        """Whether there is an item at this second."""
        return second in self._at

    def first(self) -> float | None:
        """The earliest second with an item; None if the queue is empty."""
        while self._seconds and self._seconds[0] not in self._at:
            heapq.heappop(self._seconds)
        return self._seconds[0] if self._seconds else None

    def take(self, second: float) -> T:
        """Draw and remove one of the items at `second`."""
        others = self._at[second]
        count = len(others)
        number = self._rng.getrandbits(count.bit_length())
        while number >= count:  # as in `randrange`, which takes three times as long
            number = self._rng.getrandbits(count.bit_length())
        item = others.pop(number)
        if not others:
            del self._at[second]
        item.at = None
        return item
