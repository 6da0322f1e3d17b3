"""Services, workers and an observer for programs that run on every launcher.

Hosts on Ray import this module by its name: it imports nothing that takes long.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from typing import Any

from gossamer.runtime import Answer, Context, Silent, Stopped, Wait, waits


class Watcher(Silent):
    """An observer that keeps what it is told. It asks for the end, and for workers' states, when it is told to."""

    def __init__(self, states: dict[str, Any] | None = None) -> None:
        self.states = dict(states or {})
        self.records: list[tuple[str, Any]] = []
        self.saves: list[str] = []
        self.wanted: set[str] = set()  # workers whose state is due
        self.wants_end = False

    def restored(self, worker: str) -> Any | None:
        return self.states.get(worker)

    def report(self, worker: str, record: Any) -> None:
        self.records.append((worker, record))

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        return 0 if worker not in self.wanted else Answer.SAVE if idle else Answer.WAIT

    def save(self, worker: str, state: Any) -> None:
        self.states[worker] = state
        self.saves.append(worker)
        self.wanted.discard(worker)

    def stopping(self) -> bool:
        return self.wants_end

    def of(self, worker: str) -> list[Any]:
        return [record for who, record in self.records if who == worker]


class Impatient(Watcher):
    """Ends the program after ten reports."""

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        self.wants_end = self.wants_end or len(self.records) == 10


class Counter:
    def __init__(self) -> None:
        self.count, self._secret = 0, 0

    def add(self) -> int:
        before = self.count
        time.sleep(0)  # invites another thread: only one call at a time keeps the count right
        self.count = before + 1
        return self.count

    @waits
    def until(self, count: int) -> Wait[int]:
        while self.count < count:
            yield
        return self.count

    def _hidden(self) -> None: ...


class Fifo:
    def __init__(self, capacity: int) -> None:
        self.capacity, self.items, self.waiting, self.came = capacity, deque[Any](), 0, 0

    @waits
    def put(self, item: Any) -> Wait[int]:
        while len(self.items) >= self.capacity:
            yield
        self.items.append(item)
        return len(self.items)

    @waits
    def put_all(self, items: list[Any]) -> Wait[None]:
        for item in items:
            while len(self.items) >= self.capacity:
                yield
            self.items.append(item)

    @waits
    def get(self) -> Wait[Any]:
        self.waiting, self.came = self.waiting + 1, self.came + 1
        try:
            while not self.items:
                yield
            return self.items.popleft()
        finally:
            self.waiting -= 1

    def waiters(self) -> int:
        return self.waiting

    def ever(self) -> int:
        return self.came


class Barrier:
    """A call returns when all members have come; the next round begins when all have left."""

    def __init__(self, members: int) -> None:
        self.members, self.inside, self.leaving = members, 0, False

    @waits
    def meet(self) -> Wait[None]:
        while self.leaving:
            yield
        self.inside += 1
        self.leaving = self.inside == self.members
        while not self.leaving:
            yield
        self.inside -= 1
        self.leaving = self.inside > 0


class Desk:
    """A service that holds another."""

    def __init__(self, queue: Fifo) -> None:
        self.queue = queue

    def count(self) -> int:
        return self.queue.waiters()

    def hand_in(self, item: Any) -> None:
        self.queue.put(item)

    def hand_out(self) -> Any:
        return self.queue.get()


def count(ctx: Context, counter: Counter, times: int) -> None:
    for _ in range(times):
        ctx.report(counter.add())


def produce(ctx: Context, queue: Fifo, items: int) -> None:
    for item in range(items):
        ctx.report(queue.put((ctx.rank, item)))


def consume(ctx: Context, queue: Fifo, items: int) -> None:
    for _ in range(items):
        ctx.report(queue.get())


def work(ctx: Context) -> None:
    while not ctx.stopped:
        ctx.report("work")


def wait_for_ever(ctx: Context, queue: Fifo) -> None:
    try:
        queue.get()
    except Stopped:
        ctx.report("stopped")
        raise


def break_down(ctx: Context, counter: Counter) -> None:
    counter.until(0)
    raise ZeroDivisionError("broke down")


def add_up(ctx: Context) -> None:
    """The sum of 0, 1, 2, ...: at least one step further; ends when it has been asked for its state."""
    step, total = ctx.restored() or (0, 0)
    ctx.report(step)
    while True:
        total += step
        step += 1
        here, asked = (step, total), list[bool]()
        ctx.claim(0, lambda here=here, asked=asked: (asked.append(True), here)[1])
        if asked:
            break
        ctx.sleep(0.001)


def send_signal(ctx: Context, process: int) -> None:
    """To the process that runs the program."""
    assert threading.current_thread() is not threading.main_thread()
    time.sleep(0.05)  # until the process waits for this worker
    os.kill(process, signal.SIGUSR1)
    while not ctx.stopped:
        time.sleep(0.001)
    time.sleep(0.05)  # its end takes a while, and is waited for
    ctx.report("ended")
