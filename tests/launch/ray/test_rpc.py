"""Calls over TCP: answers and errors, peers without the key, closed connections, limits."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")

from ray import cloudpickle

from gossamer.launch.ray import rpc
from gossamer.launch.ray.channel import HEADER, MAC, MESSAGE_MB, MessageTooLarge, settle
from gossamer.launch.ray.rpc import PORTS, Client, Server, key_of, ports

KEY, HERE, SECONDS = bytes(32), "127.0.0.1", 5.0


@contextmanager
def serving(answer: Callable[[Any, Callable[[], bool]], Any], seconds: float = SECONDS) -> Iterator[Server]:
    server = Server(HERE, KEY, answer, seconds)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def calling(server: Server, seconds: float = SECONDS) -> Iterator[Client]:
    with closing(Client(server.address, KEY, seconds)) as client:
        yield client


def ask(client: Client, what: Any) -> Any:
    client.ask(what)
    return client.outcome().get()


def echo(asked: Any, given_up: Callable[[], bool]) -> Any:
    return asked


TREES = {
    "nothing": None,
    "words": {"a": (1, "b"), "c": [2.5, None]},
    "an array": np.arange(5_000_000, dtype=np.uint8),
    "arrays": [np.arange(6.0).reshape(2, 3), np.zeros((3, 0)), np.asfortranarray(np.ones((4, 5)))],
    "a view": np.arange(100)[::3],
    "a scalar": np.array(3.5),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
def test_what_goes_in_comes_out(tree: Any) -> None:
    with serving(echo) as server, calling(server) as client:
        for _ in range(2):
            np.testing.assert_equal(ask(client, tree), tree)


def test_arrays_that_arrive_are_the_receivers_own() -> None:
    def fill(asked: Any, given_up: Callable[[], bool]) -> Any:
        asked[:] = 7
        return asked

    mine = np.zeros(10)
    with serving(fill) as server, calling(server) as client:
        got = ask(client, mine)
        got += 1
        assert mine.sum() == 0
        assert got.sum() == 80


def test_many_threads_call_at_once_and_each_gets_its_own_answer() -> None:
    def slow(asked: Any, given_up: Callable[[], bool]) -> Any:
        time.sleep(0.001)
        return asked * 2

    def call(number: int) -> bool:
        with calling(server) as client:
            return all(ask(client, (number, i)) == (number, i, number, i) for i in range(20))

    with serving(slow) as server, ThreadPoolExecutor(16) as pool:
        assert all(pool.map(call, range(16)))


class Odd(Exception):
    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


@pytest.mark.parametrize(
    ("fails", "text"),
    [(KeyError("gone"), "gone"), (Odd("one", "other"), "one and other"), (ConnectionError("its own"), "its own")],
)
def test_what_is_raised_there_is_raised_here(fails: Exception, text: str) -> None:
    def fail(asked: Any, given_up: Callable[[], bool]) -> Any:
        raise fails

    with serving(fail) as server, calling(server) as client:
        with pytest.raises((type(fails), RuntimeError), match=text):
            ask(client, None)
        client.ask(None)  # the connection is as good as before
        assert client.outcome().error is not None


def test_an_answer_that_cannot_be_sent_is_an_error() -> None:
    def lock(asked: Any, given_up: Callable[[], bool]) -> Any:
        return threading.Lock()

    with serving(lock) as server, calling(server) as client:
        for _ in range(2):
            with pytest.raises(TypeError, match="lock"):
                ask(client, None)


class Unreadable:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_a_question_that_cannot_be_read_is_an_error() -> None:
    with serving(echo) as server, calling(server) as client:
        with pytest.raises(ValueError, match="no number"):
            ask(client, Unreadable())
        assert ask(client, 1) == 1


def test_without_the_key_nobody_gets_in_or_is_believed() -> None:
    asked: list[Any] = []

    def note(what: Any, given_up: Callable[[], bool]) -> Any:
        asked.append(what)

    with serving(note) as server:
        with pytest.raises(ConnectionError):  # each end finds out about the other
            Client(server.address, b"x" * 32, SECONDS)
        with socket.create_connection(server.address, timeout=SECONDS) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n" + bytes(200))
            with suppress(ConnectionResetError):
                while stranger.recv(1000):
                    pass  # a challenge, and the end
        with calling(server) as client:
            ask(client, "honest")
    assert asked == ["honest"]


def test_who_mirrors_the_challenge_is_not_believed() -> None:
    with socket.create_server((HERE, 0)) as listener:

        def mirror() -> None:
            connection, _ = listener.accept()
            with connection, suppress(ConnectionResetError):
                while data := connection.recv(64):
                    connection.sendall(data)

        thread = threading.Thread(target=mirror, daemon=True)
        thread.start()
        with pytest.raises(ConnectionRefusedError, match="key"):
            Client((HERE, listener.getsockname()[1]), KEY, SECONDS)
        thread.join(SECONDS)


RAN: list[str] = []


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return RAN.append, ("unpickled",)


def test_a_pickle_injected_after_the_greeting_is_not_read() -> None:
    """By someone on the path, who sees and writes bytes but does not have the key."""
    RAN.clear()
    pickle = cloudpickle.dumps(Bomb())
    with serving(echo) as server, calling(server) as client:
        client._connection.sendall(HEADER.pack(0, len(pickle)) + bytes(MAC) + pickle)
        with pytest.raises(ConnectionResetError, match="closed by peer"):
            client.outcome()
    assert RAN == []


def test_messages_over_the_limit_are_errors_and_the_connection_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(asked: Any, given_up: Callable[[], bool]) -> Any:
        return np.zeros(asked if isinstance(asked, int) else 1, np.uint8)

    monkeypatch.setenv(MESSAGE_MB, "1")
    with serving(zeros) as server, calling(server) as client:
        with pytest.raises(MessageTooLarge, match=r"exceeds the limit of 1,000,000 bytes \(GOSSAMER_MESSAGE_MB\)"):
            client.ask(np.zeros(1_000_001, np.uint8))
        client.ask(1_000_001)
        with pytest.raises(MessageTooLarge, match="exceeds the limit"):
            client.outcome().get()
        assert ask(client, 3).size == 3


def test_connections_that_do_not_greet_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MAX_GREETINGS", 2)
    with serving(echo) as server, socket.create_connection(server.address):
        with socket.create_connection(server.address), pytest.raises(TimeoutError, match="greeting timed out"):
            Client(server.address, KEY, 0.3)
        with calling(server) as client:  # as soon as one of them has ended
            assert ask(client, 1) == 1


def test_a_connection_that_does_not_greet_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "GREETING_SECONDS", 0.1)
    with serving(echo) as server, socket.create_connection(server.address, timeout=SECONDS) as silent:
        while silent.recv(1000):
            pass  # a challenge, and the end


def test_a_failure_to_accept_does_not_end_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [OSError(24, "Too many open files")]
    accept = socket.socket.accept

    def accepted(listener: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accepted)
    with serving(echo) as server, calling(server) as client:
        assert ask(client, 1) == 1
    assert not failures


def test_who_hangs_up_has_given_up() -> None:
    told = threading.Event()

    def wait(asked: Any, given_up: Callable[[], bool]) -> Any:
        while not given_up():
            time.sleep(0.01)
        told.set()

    with serving(wait) as server:
        with calling(server) as client:
            client.ask("something")
            assert not client.answered(0.1)
            assert not told.is_set()
        assert told.wait(SECONDS)


def test_a_server_that_says_nothing_is_given_up() -> None:
    release = threading.Event()

    def wait(asked: Any, given_up: Callable[[], bool]) -> Any:
        release.wait(SECONDS)

    with serving(wait) as server, calling(server, seconds=0.2) as client:
        client.ask("something")
        with pytest.raises(TimeoutError, match="receive timed out"):
            client.outcome()
        release.set()


def test_a_server_that_takes_nothing_is_given_up() -> None:
    release = threading.Event()

    def wait(asked: Any, given_up: Callable[[], bool]) -> Any:
        release.wait(SECONDS)

    with serving(wait) as server, calling(server, seconds=0.2) as client:
        client.ask("something")  # it is busy with this
        with pytest.raises(TimeoutError, match="send timed out"):
            client.ask(np.zeros(100_000_000, np.uint8))
        release.set()


def test_a_server_that_is_gone_is_noticed() -> None:
    with serving(echo) as server:
        address = server.address
    with pytest.raises(OSError, match="refused"):
        Client(address, KEY, SECONDS)


def test_ports_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HERE, 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv(PORTS, f"{port}-{port}")
        with pytest.raises(OSError, match=f"no free port of {port}-{port}"), serving(echo):
            pass
        monkeypatch.setenv(PORTS, f"{port}-{min(port + 20, 2**16 - 1)}")
        with serving(echo) as server, calling(server) as client:
            assert port < server.address[1] <= port + 20
            assert ask(client, 1) == 1


@pytest.mark.parametrize("wanted", ["80", "a-b", "2-1", "0-9", "1-65536", "-"])
def test_ports_that_are_none(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTS, wanted)
    with pytest.raises(ValueError, match="LOW-HIGH"):
        ports()


def test_another_host_at_an_address_is_not_taken_for_the_one_that_was_there() -> None:
    with closing(Server(HERE, key_of("a", KEY), lambda call, given_up: call, SECONDS)) as server:
        with closing(Client(server.address, key_of("a", KEY), SECONDS)) as client:
            assert ask(client, 3) == 3
        with pytest.raises(OSError, match=r"program's key|closed by peer|reset"):
            Client(server.address, key_of("b", KEY), SECONDS)


def test_what_is_not_acknowledged_ends_a_connection_in_time() -> None:
    with closing(socket.socket()) as connection:
        settle(connection, 0, 1.5)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1500
