"""Authenticated connections: only frames of the peer, in order and whole, are accepted; sizes and times are bounded."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from gossamer.launch.ray import channel
from gossamer.launch.ray.channel import (
    CHALLENGE,
    HEADER,
    MAC,
    MESSAGE_MB,
    PROOF,
    SMALL,
    Channel,
    Frame,
    FrameRejected,
    MessageTooLarge,
    Role,
    greet,
    joined,
    size_limit,
)

KEY, CHALLENGES, LIMIT = bytes(32), bytes(range(80)), 10_000
FRAMES: tuple[Frame, ...] = ((b"first", [memoryview(bytes(range(8))), memoryview(b"xy")]), (b"second", []))


class Wire:
    """A channel whose bytes are written and read by hand."""

    def __init__(self, stack: ExitStack, role: Role, *, key: bytes = KEY, challenges: bytes = CHALLENGES) -> None:
        inner, self.outer = (stack.enter_context(end) for end in socket.socketpair())
        self.channel = Channel(inner, key, role, challenges, LIMIT)

    def sent(self, frame: Frame) -> bytes:
        """What the channel writes for this frame."""
        self.channel.send(frame)
        return self.outer.recv(10 * LIMIT)

    def received(self, data: bytes) -> Frame:
        """What the channel reads from these bytes, which are the last ones."""
        self.outer.sendall(data)
        self.outer.shutdown(socket.SHUT_WR)
        return self.channel.receive()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


@pytest.fixture
def client(stack: ExitStack) -> Wire:
    return Wire(stack, "client")


@pytest.fixture
def server(stack: ExitStack) -> Wire:
    return Wire(stack, "server")


def same(one: Frame, other: Frame) -> bool:
    return bytes(one[0]) == bytes(other[0]) and [bytes(a) for a in one[1]] == [bytes(a) for a in other[1]]


def test_frames_arrive_unchanged_and_in_order(client: Wire, server: Wire) -> None:
    server.outer.sendall(b"".join(client.sent(frame) for frame in FRAMES))
    assert all(same(server.channel.receive(), frame) for frame in FRAMES)


def test_small_neighbours_are_sent_together_and_large_arrays_as_they_are() -> None:
    large = memoryview(bytes(SMALL + 1))
    parts = list(joined([b"a", b"b", memoryview(b""), large, large, memoryview(b"c")]))
    assert [bytes(part) for part in parts] == [b"ab", bytes(large), bytes(large), b"c"]
    assert parts[1] is large
    assert list(joined([])) == []


def test_a_frame_made_without_the_key_is_rejected(stack: ExitStack, server: Wire) -> None:
    stranger = Wire(stack, "client", key=b"x" * 32)
    with pytest.raises(FrameRejected, match="authentication"):
        server.received(stranger.sent(FRAMES[0]))


def test_a_replayed_frame_is_rejected(client: Wire, server: Wire) -> None:
    data = client.sent(FRAMES[1])
    server.outer.sendall(data)
    assert same(server.channel.receive(), FRAMES[1])
    with pytest.raises(FrameRejected, match="authentication"):
        server.received(data)


def test_a_frame_out_of_order_is_rejected(client: Wire, server: Wire) -> None:
    client.sent(FRAMES[0])  # lost on its way
    with pytest.raises(FrameRejected, match="authentication"):
        server.received(client.sent(FRAMES[1]))


def test_a_frame_of_another_connection_is_rejected(stack: ExitStack, server: Wire) -> None:
    other = Wire(stack, "client", challenges=CHALLENGES[::-1])
    with pytest.raises(FrameRejected, match="authentication"):
        server.received(other.sent(FRAMES[0]))


def test_a_frame_sent_back_to_its_sender_is_rejected(client: Wire) -> None:
    with pytest.raises(FrameRejected, match="authentication"):
        client.received(client.sent(FRAMES[0]))


COVERED = HEADER.size + MAC + 2 * 8 + len(FRAMES[0][0])  # bytes of the first frame before its arrays


@pytest.mark.parametrize("position", range(COVERED))
def test_a_flipped_bit_before_the_arrays_is_rejected(position: int, client: Wire, server: Wire) -> None:
    data = bytearray(client.sent(FRAMES[0]))
    data[position] ^= 1
    # A larger number of arrays or bytes in the header is noticed when the connection ends: there are not as many.
    with pytest.raises(FrameRejected if position >= HEADER.size else (FrameRejected, ConnectionResetError)):
        server.received(bytes(data))


def test_nothing_is_read_or_allocated_for_a_header_over_the_limits(client: Wire, server: Wire) -> None:
    for count, size, text in ((0, 2**62, "exceeds the limit of 10,000 bytes"), (2**32 - 1, 0, "65,536 arrays")):
        server.outer.sendall(HEADER.pack(count, size) + bytes(MAC))  # numpy could not allocate as much
        with pytest.raises(FrameRejected, match=text):
            server.channel.receive()


def test_nothing_is_allocated_for_authentic_arrays_over_the_limit(client: Wire, server: Wire) -> None:
    sizes = struct.pack("<Q", 2**62)
    header = HEADER.pack(1, 0)
    mac = client.channel._outgoing.next(header, sizes)
    with pytest.raises(FrameRejected, match=r"4,611,686,018,427,387,904 bytes.*GOSSAMER_MESSAGE_MB"):
        server.received(header + mac + sizes)


def test_a_message_over_the_limits_is_refused_before_anything_is_sent(client: Wire, server: Wire) -> None:
    half = memoryview(np.zeros(LIMIT // 2, np.uint8).data)
    with pytest.raises(MessageTooLarge, match=r"10,001 bytes exceeds the limit of 10,000 bytes"):
        client.channel.send((b"x", [half, half]))
    with pytest.raises(MessageTooLarge, match="65,537 arrays"):
        client.channel.send((b"x", [memoryview(b"")] * 65_537))
    assert same(server.received(client.sent(FRAMES[0])), FRAMES[0])  # the connection is in order


@pytest.mark.parametrize("role", ["client", "server"])
def test_a_greeting_has_a_time_limit_as_a_whole(role: Role, stack: ExitStack) -> None:
    mine, theirs = (stack.enter_context(end) for end in socket.socketpair())
    over = threading.Event()

    def dribble() -> None:
        with suppress(OSError):
            for _ in range(CHALLENGE.size + PROOF):
                theirs.sendall(b"x")
                over.wait(0.02)  # less than the limit for each, 1.4 s for all

    thread = threading.Thread(target=dribble)
    thread.start()
    with pytest.raises(TimeoutError, match="greeting timed out"):
        greet(mine, KEY, role, LIMIT, seconds=0.3)
    over.set()
    mine.close()
    thread.join()


def test_both_ends_keep_to_the_smaller_limit(stack: ExitStack) -> None:
    mine, theirs = (stack.enter_context(end) for end in socket.socketpair())
    made = list[Channel]()
    thread = threading.Thread(target=lambda: made.append(greet(theirs, KEY, "server", 100, seconds=5.0)))
    thread.start()
    made.append(greet(mine, KEY, "client", LIMIT, seconds=5.0))
    thread.join()
    for end in made:
        with pytest.raises(MessageTooLarge, match="limit of 100 bytes"):
            end.send((bytes(101), []))


def test_the_limit_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MESSAGE_MB, raising=False)
    assert size_limit() == channel.DEFAULT_MESSAGE_MB * 1_000_000
    monkeypatch.setenv(MESSAGE_MB, "20")
    assert size_limit() == 20_000_000


@pytest.mark.parametrize("given", ["0", "-1", "1e3", "many", str(2**40)])
def test_a_limit_that_cannot_be_used_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MESSAGE_MB, given)
    with pytest.raises(ValueError, match=f"{MESSAGE_MB}='{given}': must be a whole number of MB"):
        size_limit()
