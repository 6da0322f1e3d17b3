"""A poll of a host returns a bounded number of bytes, and a poll that times out is retried with a smaller bound."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")

from ray.exceptions import GetTimeoutError

from gossamer.launch.base import Crew
from gossamer.launch.ray import messages
from gossamer.launch.ray.host import HostProcess
from gossamer.launch.ray.messages import PIECE_BYTES, POLL_BYTES, HostObserver, HostState, Pieces, WorkerMessage
from gossamer.launch.ray.supervisor import Limits, Supervisor
from gossamer.runtime import Silent

MB = 1 << 20


def megabytes(size: float, value: int = 0) -> np.ndarray:
    return np.full(int(size * MB), value, np.uint8)


def content(news: tuple[WorkerMessage, ...]) -> list[tuple[str, Any]]:
    """The complete ones of these messages, put together."""
    pieces = Pieces()
    return [(each.kind, pieces.take()) for each in news if pieces.add(each)]


def test_a_poll_returns_a_bounded_number_of_bytes_in_order() -> None:
    observer = HostObserver({})
    for number in range(20):
        observer.report("a", megabytes(1, number))
    polls, news = 0, tuple[WorkerMessage, ...]()
    while sum(not each.more for each in news) < 20:
        first, found = observer.fetch(len(news))
        assert first == len(news)
        assert len(pickle.dumps(found)) <= POLL_BYTES
        polls, news = polls + 1, news + found
    assert [int(array[0]) for _, array in content(news)] == list(range(20))
    assert 5 <= polls <= 7  # 20 MB in polls of 4


def test_many_small_messages_are_one_poll_and_at_least_one_always_comes() -> None:
    observer = HostObserver({})
    for number in range(100):
        observer.report("a", number)
    assert content(observer.fetch(0)[1]) == [("report", number) for number in range(100)]
    assert content(observer.fetch(0, max_bytes=1)[1]) == [("report", 0)]
    assert content(observer.fetch(99, max_bytes=1)[1]) == [("report", 99)]
    assert observer.fetch(100, max_bytes=1) == (100, ())


def test_a_state_comes_in_pieces_and_is_on_its_way_until_all_have_been_seen() -> None:
    observer = HostObserver({})
    observer.save("a", megabytes(10))
    assert observer.saving("a")
    first, found = observer.fetch(0)
    assert content(found) == []
    while found:
        assert observer.saving("a")
        first, found = observer.fetch(first + len(found))
    assert not observer.saving("a")


class Link:
    """An actor behind a network that carries so many bytes within the time that a call may take."""

    def __init__(self, host: HostProcess, carries: int) -> None:
        self.host, self.carries, self.tries = host, carries, 0
        self.poll = SimpleNamespace(remote=lambda *args: args)

    def answer(self, args: tuple[Any, ...], seconds: float) -> HostState:
        self.tries += 1
        state = self.host.poll(*args)
        if len(pickle.dumps(state)) > self.carries:
            raise GetTimeoutError("no answer")
        return state


class Told(Silent):
    def __init__(self) -> None:
        self.records: list[Any] = []
        self.states: list[Any] = []

    def report(self, worker: str, record: Any) -> None:
        self.records.append(record)

    def save(self, worker: str, state: Any) -> None:
        self.states.append(state)


def linked(carries: int) -> tuple[HostObserver, Link, Supervisor, Told]:
    """A host's observer, the link to it, and the supervisor and observer of the driver."""
    host = HostProcess("one")
    host.observer = HostObserver({})
    host.crew = Crew(host.observer, wake=lambda: None)
    link, told = Link(host, carries), Told()
    deployment: Any = SimpleNamespace(
        crew=Crew(told, wake=lambda: None), actors={"one": link}, limits=Limits(5.0, 0, 1.0, 1.0)
    )
    supervisor = Supervisor(deployment, "one", ["a"])
    supervisor._ask = link.answer  # type: ignore[method-assign]
    return host.observer, link, supervisor, told


@pytest.mark.parametrize("carries", [MB, 2 * PIECE_BYTES])
def test_what_does_not_cross_in_time_is_asked_for_in_smaller_parts(carries: int) -> None:
    """One state and the reports behind it, each larger than a slow network carries in the time of one poll."""
    observer, link, supervisor, told = linked(carries)
    observer.save("a", megabytes(5, 7))
    for number in range(3):
        observer.report("a", (number, megabytes(2)))
    observer.ended("a")
    failed = 0
    while supervisor.running and link.tries < 1000:
        try:
            supervisor._poll()
        except GetTimeoutError:
            failed += 1
    assert supervisor.running == set()
    assert np.array_equal(told.states[0], megabytes(5, 7))
    assert [number for number, _ in told.records] == [0, 1, 2]
    assert 0 < failed < link.tries / 2  # it asks for more again now and then, but not each time


def test_a_poll_may_be_as_large_as_before_once_the_network_carries_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "POLL_WAIT", 0.0)  # of those that find no message
    observer, link, supervisor, _ = linked(PIECE_BYTES // 2)
    observer.report("a", megabytes(20))
    for _ in range(10):
        with pytest.raises(GetTimeoutError):
            supervisor._poll()
    assert supervisor._max_bytes == PIECE_BYTES
    link.carries = 100 * MB
    tries = link.tries
    while supervisor._max_bytes < POLL_BYTES:
        supervisor._poll()
    assert link.tries - tries < POLL_BYTES / PIECE_BYTES + 1
