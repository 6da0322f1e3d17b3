"""Small services and observers for what is simulated."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from gossamer.runtime import Silent, Wait, waits


class Reports(Silent):
    """An observer that keeps reports and states."""

    def __init__(self, states: dict[str, Any] | None = None) -> None:
        self.records: list[tuple[str, Any]] = []
        self.states = dict(states or {})
        self.wants_end = False

    def restored(self, worker: str) -> Any | None:
        return self.states.get(worker)

    def report(self, worker: str, record: Any) -> None:
        self.records.append((worker, record))

    def save(self, worker: str, state: Any) -> None:
        self.states[worker] = state

    def stopping(self) -> bool:
        return self.wants_end

    def of(self, worker: str) -> list[Any]:
        return [record for who, record in self.records if who == worker]


class Ticking(Protocol):
    def tick(self, now: float, /) -> bool: ...


def ticks(service: Ticking, first: float, last: float) -> bool:
    """Tell a service the time each second. Returns what it answers to the last tick."""
    answers = [service.tick(first + second) for second in range(int(last - first) + 1)]
    return answers[-1]


class Box:
    """A queue without end, a count, and a log."""

    def __init__(self) -> None:
        self.items, self.count = deque[Any](), 0

    def put(self, item: Any) -> None:
        self.count += 1
        self.items.append(item)

    def add(self) -> int:
        self.count += 1
        return self.count

    def everything(self) -> list[Any]:
        return list(self.items)

    @waits
    def get(self) -> Wait[Any]:
        while not self.items:
            yield
        return self.items.popleft()

    @waits
    def until(self, count: int) -> Wait[int]:
        while self.count < count:
            yield
        return self.count


class Lock:
    def __init__(self) -> None:
        self.held = False

    @waits
    def take(self) -> Wait[None]:
        while self.held:
            yield
        self.held = True

    def free(self) -> None:
        self.held = False
