"""Methods that may have to wait, and the observer that wants nothing."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from gossamer.runtime import Observer, Silent, Wait, WouldBlock, waits


class Fifo:
    def __init__(self) -> None:
        self.items = deque[int]()

    def put(self, item: int) -> None:
        self.items.append(item)

    @waits
    def get(self) -> Wait[int]:
        """The oldest."""
        while not self.items:
            yield
        return self.items.popleft()


def test_waits_answers_at_once_where_it_can_and_raises_where_it_cannot() -> None:
    queue = Fifo()
    queue.put(7)
    assert queue.get() == 7
    with pytest.raises(WouldBlock, match=r"Fifo\.get"):
        queue.get()
    assert Fifo.get.__doc__ == "The oldest."


def test_waits_refuses_a_method_that_never_yields() -> None:
    with pytest.raises(TypeError, match=r"answer.*yield"):

        @waits  # type: ignore[arg-type]
        def answer(self: Any) -> int:
            return 42


def test_the_silent_observer_wants_nothing_and_never_asks_to_end() -> None:
    observer: Observer = Silent()
    observer.report("act", 1)
    observer.save("act", 1)
    assert observer.restored("act") is None
    assert observer.due("act") is None
    assert observer.claim("act", 5) == 0
    assert not observer.stopping()
