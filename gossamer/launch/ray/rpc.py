"""Remote procedure calls between processes, over TCP.

Each calling thread has its own connection, which carries one call at a time. A message is pickled, with its arrays out
of band (PEP 574), so arrays are sent and received without a copy. Unpickling runs code, so only processes that have the
program's key may connect, and every pickle is authenticated (see `channel`).
"""

from __future__ import annotations

import hmac
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from ray import cloudpickle

from gossamer.launch.ray.channel import Channel, Frame, FrameRejected, greet, readable, settle, size_limit
from gossamer.launch.ray.messages import CallOutcome

Address: TypeAlias = tuple[str, int]
Respond: TypeAlias = Callable[[Any, Callable[[], bool]], Any]  # (question, whether the caller has given up) -> answer

GREETING_SECONDS = 5.0  # timeout for authenticating the peer of a new connection
MAX_GREETINGS = 64  # connections that may be unauthenticated at one time; further ones wait to be accepted
RETRY_SECONDS = 0.1  # pause after a failed accept, for example when file descriptors run out
PORTS = "GOSSAMER_PORTS"  # environment variable for a machine behind a firewall: LOW-HIGH, the ports to choose from

log = logging.getLogger(__name__)


class Server:
    """Answers calls, with one thread per connection. If a connection ends during a call, the call is abandoned."""

    def __init__(self, host: str, key: bytes, answer: Respond, seconds: float) -> None:
        """`host`: an address of this machine; `seconds`: timeout for sending to a peer and for detecting a lost peer.

        Raises OSError if none of the `ports` is free, ValueError for an unusable environment variable.
        """
        self._key, self._answer, self._seconds, self._limit = key, answer, seconds, size_limit()
        self._listener = _listen(host, ports())
        self.address: Address = (host, self._listener.getsockname()[1])
        self._closed = threading.Event()
        self._greetings = threading.Semaphore(MAX_GREETINGS)
        threading.Thread(target=self._accept, name="rpc", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        self._closed.set()
        with suppress(OSError):  # this ends a pending `accept`
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            self._greetings.acquire()
            try:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), name="rpc", daemon=True).start()
            except (OSError, RuntimeError):  # out of file descriptors or threads
                self._greetings.release()
                self._closed.wait(RETRY_SECONDS)

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the connection ended, or the peer does not have the key
            channel = self._greet(connection)
            settle(connection, 0.0, self._seconds)  # no receive timeout: the next call may come at any time
            try:
                while True:
                    self._reply(channel, self._outcome(channel.receive(), connection))
            except FrameRejected as error:
                log.warning("connection from %s closed: %s", connection.getpeername()[0], error)

    def _greet(self, connection: socket.socket) -> Channel:
        try:
            settle(connection, GREETING_SECONDS, self._seconds)
            return greet(connection, self._key, "server", self._limit, GREETING_SECONDS)
        finally:
            self._greetings.release()

    def _outcome(self, question: Frame, connection: socket.socket) -> CallOutcome:
        # The client sends nothing while it waits for an answer, so a readable connection has ended.
        return CallOutcome.of(lambda: self._answer(_unpacked(question), lambda: readable(connection, 0.0)))

    def _reply(self, channel: Channel, outcome: CallOutcome) -> None:
        try:
            channel.send(_packed(outcome))
        except OSError:
            raise
        except Exception as error:  # an answer that cannot be pickled, or is too large, is the caller's error
            channel.send(_packed(CallOutcome.failed(error)))


class Client:
    """A connection to a server, for one thread. After an OSError it cannot be used any more."""

    def __init__(self, address: Address, key: bytes, seconds: float) -> None:
        """`seconds`: timeout for connecting, and for each later operation.

        Raises OSError if there is no answer in time or the server does not have the key, ValueError for an unusable
        GOSSAMER_MESSAGE_MB.
        """
        deadline, limit = time.monotonic() + seconds, size_limit()
        self._connection = socket.create_connection(address, timeout=seconds)
        try:
            settle(self._connection, seconds, seconds)
            self._channel = greet(self._connection, key, "client", limit, deadline - time.monotonic())
            settle(self._connection, seconds, seconds)
        except BaseException:
            self.close()
            raise

    def ask(self, what: Any) -> None:
        """Send a request. Raises OSError if it cannot be sent; MessageTooLarge, in which case nothing has been sent."""
        self._channel.send(_packed(what))

    def answered(self, seconds: float) -> bool:
        """Whether the answer arrives, or the connection ends, within `seconds`."""
        return readable(self._connection, seconds)

    def outcome(self) -> CallOutcome:
        """The answer. Raises OSError if there is none."""
        found: CallOutcome = _unpacked(self._channel.receive())
        return found

    def close(self) -> None:
        """Close the connection and discard unsent data."""
        with suppress(OSError):
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()


def key_of(host: str, key: bytes) -> bytes:
    """A host's part of the program's key: another host that has come to listen at its address does not have it."""
    return hmac.digest(key, host.encode(), "sha256")


def ports() -> Sequence[int]:
    """The ports of GOSSAMER_PORTS, or 0 for any free port. Raises ValueError if it is not LOW-HIGH."""
    wanted = os.environ.get(PORTS)
    if not wanted:
        return [0]
    low, _, high = wanted.partition("-")
    if not (low.isdigit() and high.isdigit() and 0 < int(low) <= int(high) < 2**16):
        raise ValueError(f"{PORTS}={wanted!r}: must be LOW-HIGH, two ports from 1 to 65535")
    return range(int(low), int(high) + 1)


def _listen(host: str, choice: Sequence[int]) -> socket.socket:
    for port in choice:
        with suppress(OSError):  # the port is in use
            return socket.create_server((host, port), backlog=socket.SOMAXCONN)
    raise OSError(f"no free port of {choice[0]}-{choice[-1]} ({PORTS})")


def _packed(what: Any) -> Frame:
    buffers: list[Any] = []
    data = cloudpickle.dumps(what, protocol=5, buffer_callback=buffers.append)  # type: ignore[no-untyped-call]
    return data, [buffer.raw() for buffer in buffers]


def _unpacked(frame: Frame) -> Any:
    data, arrays = frame
    return cloudpickle.loads(data, buffers=arrays)
