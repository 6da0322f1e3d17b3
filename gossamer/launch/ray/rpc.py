"""Calls between processes, over TCP: a connection for each thread that calls, arrays sent as they lie in memory.

A connection carries one call at a time. First both ends show that they know the program's key. What crosses then is
pickled, arrays out of band (PEP 574): who has the key can do anything, so it is told to the program's processes alone.
"""

from __future__ import annotations

import hmac
import os
import secrets
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from ray import cloudpickle

from gossamer.launch.ray.messages import Outcome

Address: TypeAlias = tuple[str, int]
Frame: TypeAlias = tuple[bytes | memoryview, Sequence[memoryview]]  # a pickle and the arrays that belong to it
Answer: TypeAlias = Callable[[Any, Callable[[], bool]], Any]  # (what is asked, whether it has been given up) -> answer

CHALLENGE = 32  # random bytes
GREETING_SECONDS = 5.0  # that whoever connects has to show that it knows the key
PORTS = "GOSSAMER_PORTS"  # variable of a machine behind a firewall: LOW-HIGH, the ports to choose from
FRAME = struct.Struct(
    "<IQ"
)  # how many arrays, bytes of pickle; then the arrays' sizes as uint64, the pickle, the arrays


class Server:
    """Answers calls, each connection in a thread of its own. One that ends while a call waits has given it up."""

    def __init__(self, host: str, key: bytes, answer: Answer, seconds: float) -> None:
        """`host`: an address of this machine; `seconds`: until a peer that takes or gives nothing is given up.

        Raises `OSError` where none of the `ports` is free."""
        self._key, self._answer, self._seconds = key, answer, seconds
        self._listener = _listen(host, ports())
        self.address: Address = (host, self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="rpc", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        with suppress(OSError):  # it wakes whoever accepts
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), name="rpc", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the other end is gone, or never knew the key
            _settle(connection, GREETING_SECONDS, self._seconds)
            _greet(connection, self._key, b"server", b"client")
            _settle(connection, 0.0, self._seconds)  # the next call may be long in coming
            while True:
                _send(connection, self._outcome(_receive(connection), connection))

    def _outcome(self, question: Frame, connection: socket.socket) -> Frame:
        outcome = Outcome.of(lambda: self._answer(_unpacked(question), lambda: _ended(connection)))
        try:
            return _packed(outcome)
        except Exception as error:  # what cannot be sent is the caller's to know
            return _packed(Outcome.failed(error))


class Client:
    """A connection to a server, for one thread. After any error it is of no more use."""

    def __init__(self, address: Address, key: bytes, seconds: float) -> None:
        """Raises `OSError` where nobody answers within `seconds`, or who does has not the key."""
        self._connection = socket.create_connection(address, timeout=seconds)
        try:
            _settle(self._connection, seconds, seconds)
            _greet(self._connection, key, b"client", b"server")
        except BaseException:
            self.close()
            raise

    def ask(self, what: Any) -> None:
        """Send a question; `OSError` where it cannot be sent."""
        _send(self._connection, _packed(what))

    def answered(self, seconds: float) -> bool:
        """Whether the answer comes, or the connection ends, within so many seconds."""
        return _readable(self._connection, seconds)

    def outcome(self) -> Outcome:
        """The answer; `OSError` where none comes."""
        found: Outcome = _unpacked(_receive(self._connection))
        return found

    def close(self) -> None:
        """Drop the connection, and what has not been sent yet."""
        with suppress(OSError):
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()


def ports() -> Sequence[int]:
    """Those of the variable GOSSAMER_PORTS, or 0 for any that is free. `ValueError` where it is no LOW-HIGH."""
    wanted = os.environ.get(PORTS)
    if not wanted:
        return [0]
    low, _, high = wanted.partition("-")
    if not (low.isdigit() and high.isdigit() and 0 < int(low) <= int(high) < 2**16):
        raise ValueError(f"{PORTS}={wanted!r}: must be LOW-HIGH, two ports from 1 to 65535")
    return range(int(low), int(high) + 1)


def _listen(host: str, choice: Sequence[int]) -> socket.socket:
    for port in choice:
        with suppress(OSError):  # somebody else has it
            return socket.create_server((host, port), backlog=socket.SOMAXCONN)
    raise OSError(f"no free port of {choice[0]}-{choice[-1]} ({PORTS})")


def _settle(connection: socket.socket, receive: float, send: float) -> None:
    """Set time-outs, in seconds of silence, 0 for none. The kernel sees to them: in one system call then all of an
    array is sent or received, and the interpreter's lock changes hands once. A peer that a network has lost is noticed
    as soon, even where nothing is being sent."""
    connection.settimeout(None)
    for option, seconds in ((socket.SO_RCVTIMEO, receive), (socket.SO_SNDTIMEO, send)):
        connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    probes = {"TCP_KEEPIDLE": max(1, int(send / 2)), "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": max(1, int(send / 2))}
    for name, value in probes.items():
        if hasattr(socket, name):  # Linux has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _greet(connection: socket.socket, key: bytes, mine: bytes, theirs: bytes) -> None:
    """Show that we know the key, and see that the other end does. `ConnectionRefusedError` where not."""
    challenge = secrets.token_bytes(CHALLENGE)
    connection.sendall(challenge)
    connection.sendall(hmac.digest(key, mine + bytes(_read(connection, CHALLENGE)), "sha256"))
    shown = bytes(_read(connection, 32))
    if not hmac.compare_digest(shown, hmac.digest(key, theirs + challenge, "sha256")):
        raise ConnectionRefusedError("it does not know the program's key")


def _packed(what: Any) -> Frame:
    buffers: list[Any] = []
    data = cloudpickle.dumps(what, protocol=5, buffer_callback=buffers.append)  # type: ignore[no-untyped-call]
    return data, [buffer.raw() for buffer in buffers]


def _unpacked(frame: Frame) -> Any:
    data, arrays = frame
    return cloudpickle.loads(data, buffers=arrays)


def _send(connection: socket.socket, frame: Frame) -> None:
    data, arrays = frame
    sizes = struct.pack(f"<{len(arrays)}Q", *(array.nbytes for array in arrays))
    try:
        connection.sendall(b"".join([FRAME.pack(len(arrays), len(data)), sizes, data]))
        for array in arrays:
            connection.sendall(array)
    except BlockingIOError:
        raise TimeoutError("it takes nothing") from None


def _receive(connection: socket.socket) -> Frame:
    count, size = FRAME.unpack(_read(connection, FRAME.size))
    rest = _read(connection, 8 * count + size)
    arrays = [_read(connection, length) for length in struct.unpack_from(f"<{count}Q", rest)]
    return rest[8 * count :], arrays


def _read(connection: socket.socket, size: int) -> memoryview:
    """So many bytes, in memory of their own."""
    room, read = memoryview(np.empty(size, np.uint8).data), 0  # a bytearray would be zeroed first
    while read < size:
        try:
            more = connection.recv_into(room[read:], flags=socket.MSG_WAITALL)
        except BlockingIOError:
            raise TimeoutError("it says nothing") from None
        if not more:
            raise ConnectionResetError("it has hung up")
        read += more
    return room


def _readable(connection: socket.socket, seconds: float) -> bool:
    looker = select.poll()  # `select.select` knows no more than 1,024 files
    looker.register(connection, select.POLLIN)
    return bool(looker.poll(seconds * 1e3))


def _ended(connection: socket.socket) -> bool:
    """Whether the other end is gone: while it is owed an answer it has nothing to say."""
    return _readable(connection, 0.0)
