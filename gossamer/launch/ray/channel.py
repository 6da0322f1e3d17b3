"""An authenticated connection between two processes of one program: the greeting and the frames that follow it.

Greeting: each end sends a random challenge and its size limit. It answers the peer's challenge with an HMAC under the
program's key. Neither end unpickles anything before it has checked the peer's answer.

Frame: header, MAC, sizes of the arrays, pickle, arrays. The MAC covers a frame counter, the header, the sizes and the
pickle. It is checked before the pickle is read or memory for an array is allocated. Its key is derived from the
program's key and both challenges, and each direction has its own, so injected, altered, replayed, reordered and
reflected frames are all rejected. The MAC does not cover the contents of arrays: they are numbers, never code, and a
MAC over several MB would cost more than sending them. Packets of `exchange.proxy.wire` have a checksum of their own.
Nothing is encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import numpy as np

Frame: TypeAlias = tuple[bytes | memoryview, Sequence[memoryview]]  # a pickle and the arrays that belong to it
Role: TypeAlias = Literal["client", "server"]

MESSAGE_MB = "GOSSAMER_MESSAGE_MB"  # environment variable: the largest message, in MB of 1e6 bytes
DEFAULT_MESSAGE_MB = 1000
MAX_ARRAYS = 65_536  # in one frame
SMALL = 1 << 16  # bytes: longer arrays are sent without a copy

CHALLENGE = struct.Struct("<32sQ")  # random bytes; the sender's size limit, in bytes
PROOF = 32  # bytes of HMAC-SHA-256
HEADER = struct.Struct("<IQ")  # number of arrays, bytes of pickle
MAC = 16  # bytes


class FrameRejected(ConnectionAbortedError):
    """A frame is not authentic or too large. The connection cannot be used any more."""


class MessageTooLarge(ValueError):
    """A message exceeds the size limit. Nothing has been sent; the connection can be used again."""


def size_limit() -> int:
    """The largest message in bytes, from GOSSAMER_MESSAGE_MB. Raises ValueError if that is not a positive number."""
    given = os.environ.get(MESSAGE_MB) or str(DEFAULT_MESSAGE_MB)
    if not given.isdigit() or not 0 < int(given) < 2**40:
        raise ValueError(f"{MESSAGE_MB}={given!r}: must be a whole number of MB, at least 1")
    return int(given) * 10**6


class Channel:
    """One end of a connection after the greeting."""

    def __init__(self, connection: socket.socket, key: bytes, role: Role, challenges: bytes, limit: int) -> None:
        """`challenges`: the client's and the server's; `limit`: the smaller of both ends' size limits, in bytes."""
        self._connection, self._limit = connection, limit
        other: Role = "server" if role == "client" else "client"
        self._outgoing, self._incoming = (Authenticator(key, sender, challenges) for sender in (role, other))

    def send(self, frame: Frame) -> None:
        """Raises MessageTooLarge before anything is sent; TimeoutError if the peer does not read."""
        pickle, arrays = frame
        self._check_size(len(arrays), len(pickle) + sum(array.nbytes for array in arrays), MessageTooLarge)
        header = HEADER.pack(len(arrays), len(pickle))
        sizes = struct.pack(f"<{len(arrays)}Q", *(array.nbytes for array in arrays))
        mac = self._outgoing.next(header, sizes, pickle)
        try:
            for part in joined([header, mac, sizes, pickle, *arrays]):
                self._connection.sendall(part)
        except (BlockingIOError, TimeoutError):
            raise TimeoutError("send timed out") from None

    def receive(self) -> Frame:
        """The next frame. Raises FrameRejected; TimeoutError, or ConnectionResetError at the end of the connection."""
        head = read(self._connection, HEADER.size + MAC)
        count, size = HEADER.unpack_from(head)
        self._check_size(count, size, FrameRejected)
        body = read(self._connection, 8 * count + size)
        if not hmac.compare_digest(head[HEADER.size :], self._incoming.next(head[: HEADER.size], body)):
            raise FrameRejected("frame rejected: wrong authentication code")
        lengths = struct.unpack_from(f"<{count}Q", body)
        self._check_size(count, size + sum(lengths), FrameRejected)
        return body[8 * count :], [read(self._connection, length) for length in lengths]

    def _check_size(self, arrays: int, size: int, error: type[FrameRejected | MessageTooLarge]) -> None:
        if size > self._limit:
            raise error(f"message of {size:,} bytes exceeds the limit of {self._limit:,} bytes ({MESSAGE_MB})")
        if arrays > MAX_ARRAYS:
            raise error(f"message of {arrays:,} arrays exceeds the limit of {MAX_ARRAYS:,} arrays")


def joined(parts: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The parts, with neighbours of up to `SMALL` bytes copied into one: a system call for each would take longer."""
    small: list[bytes | memoryview] = []
    for part in parts:
        if memoryview(part).nbytes <= SMALL:
            small.append(part)
        else:
            if small:
                yield b"".join(small)
                small = []
            yield part
    if small:
        yield b"".join(small)


class Authenticator:
    """The MACs of all frames of one direction, in order."""

    def __init__(self, key: bytes, sender: Role, challenges: bytes) -> None:
        derived = hashlib.blake2b(challenges, key=key, person=f"from {sender}".encode()).digest()
        self._keyed, self._count = hashlib.blake2b(key=derived, digest_size=MAC), 0

    def next(self, *parts: bytes | memoryview) -> bytes:
        """The MAC of the next frame, made of these parts."""
        mac = self._keyed.copy()
        mac.update(self._count.to_bytes(8, "little"))
        for part in parts:
            mac.update(part)
        self._count += 1
        return mac.digest()


def greet(connection: socket.socket, key: bytes, role: Role, limit: int, seconds: float) -> Channel:
    """Authenticate both ends within `seconds` in total.

    Raises ConnectionRefusedError if the peer does not have the key, TimeoutError, ConnectionResetError.
    """
    deadline = time.monotonic() + seconds
    mine = CHALLENGE.pack(secrets.token_bytes(32), limit)
    other: Role = "server" if role == "client" else "client"
    connection.sendall(mine)
    theirs = _read_until(connection, CHALLENGE.size, deadline)
    connection.sendall(_proof(key, role, theirs))
    if not hmac.compare_digest(_read_until(connection, PROOF, deadline), _proof(key, other, mine)):
        raise ConnectionRefusedError("peer does not have the program's key")
    challenges = mine + theirs if role == "client" else theirs + mine
    return Channel(connection, key, role, challenges, min(limit, CHALLENGE.unpack(theirs)[1]))


def _proof(key: bytes, role: Role, challenge: bytes) -> bytes:
    return hmac.digest(key, role.encode() + challenge, "sha256")


def _read_until(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Exactly `size` bytes, before the deadline (of `time.monotonic`)."""
    data = b""
    while len(data) < size:
        connection.settimeout(max(1e-3, deadline - time.monotonic()))
        try:
            more = connection.recv(size - len(data))
        except TimeoutError:
            raise TimeoutError("greeting timed out") from None
        if not more:
            raise ConnectionResetError("connection closed by peer")
        if time.monotonic() > deadline:
            raise TimeoutError("greeting timed out")
        data += more
    return data


def settle(connection: socket.socket, receive: float, send: float) -> None:
    """Set the socket's timeouts in seconds, 0 for none, and its options.

    The kernel enforces the timeouts. An array is then sent or received in a single system call, and the interpreter's
    lock is released once. Keepalive probes detect a lost peer as quickly, even while nothing is sent. So does what is
    sent and not acknowledged, which the kernel would otherwise repeat for a quarter of an hour.
    """
    connection.settimeout(None)
    for option, seconds in ((socket.SO_RCVTIMEO, receive), (socket.SO_SNDTIMEO, send)):
        connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    probes = {"TCP_KEEPIDLE": max(1, int(send / 2)), "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": max(1, int(send / 2))}
    for name, value in {**probes, "TCP_USER_TIMEOUT": int(send * 1e3)}.items():
        if hasattr(socket, name):  # Linux has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def read(connection: socket.socket, size: int) -> memoryview:
    """Exactly `size` bytes, in newly allocated memory."""
    room, done = memoryview(np.empty(size, np.uint8).data), 0  # a bytearray would be zeroed first
    while done < size:
        try:
            more = connection.recv_into(room[done:], flags=socket.MSG_WAITALL)
        except BlockingIOError:
            raise TimeoutError("receive timed out") from None
        if not more:
            raise ConnectionResetError("connection closed by peer")
        done += more
    return room


def readable(connection: socket.socket, seconds: float) -> bool:
    """Whether data arrives, or the connection ends, within `seconds`."""
    poll = select.poll()  # `select.select` is limited to 1,024 file descriptors
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(seconds * 1e3))
