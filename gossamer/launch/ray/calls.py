"""Calls from one host of a program on Ray to services on the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import ray

from gossamer.launch.ray.faults import describe
from gossamer.launch.ray.messages import UNAVAILABLE
from gossamer.launch.ray.rpc import Address, Client, key_of
from gossamer.program import Program, Ref
from gossamer.runtime import Method, Stopped, Unreachable

POLL_SECONDS = 0.5  # while waiting for an answer: how often to check whether the program has been stopped


@dataclass(frozen=True)
class RemoteCall:
    """A call of the service with this index in `Program.services`. Without a method, it asks for the method names."""

    index: int
    method: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    waits: bool = False


class Remote:
    """A handle to a service on another host. Its public methods are remote calls; it has no other attributes."""

    def __init__(self, calls: Calls, ref: Ref, may_wait: bool) -> None:
        self._calls, self._ref, self._may_wait = calls, ref, may_wait

    def __getattr__(self, method: str) -> Method:
        if method.startswith("_"):  # else copy and pickle would recurse on an object that is not yet initialised
            raise AttributeError(method)
        with suppress(Unreachable):  # then the call raises it
            self._may_have_to_wait(method)

        def start(*args: Any, **kwargs: Any) -> Callable[[], Any]:
            waits = self._may_wait and self._may_have_to_wait(method)
            return self._calls.start(RemoteCall(self._ref.index, method, args, kwargs, waits))

        return Method(lambda *args, **kwargs: start(*args, **kwargs)(), start)

    def _may_have_to_wait(self, method: str) -> bool:
        """Raises AttributeError if the service has no such public method; Unreachable."""
        if method not in (published := self._calls.published(self._ref)):
            raise AttributeError(f"{method!r} is not a public method of the service; a handle has only those")
        return published[method]

    def __repr__(self) -> str:
        return f"<handle of {self._calls.program.services[self._ref.index].name}>"


class Calls:
    """Makes the remote calls of one host. Each of its threads has its own connections."""

    def __init__(
        self, program: Program, peers: Mapping[str, Any], key: bytes, seconds: float, stopped: Callable[[], bool]
    ) -> None:
        """`peers`: the actors of all hosts; `seconds`: timeout of calls that do not wait."""
        self.program = program
        self._peers, self._key, self._seconds, self._stopped = peers, key, seconds, stopped
        self._published: dict[int, dict[str, bool]] = {}
        self._local = threading.local()
        self._addresses: dict[str, Address] = {}  # host -> address of its server
        self._stale = set[str]()  # hosts that did not answer at that address

    def published(self, ref: Ref) -> dict[str, bool]:
        """A service's public methods, and whether each may wait. Raises Unreachable."""
        if ref.index not in self._published:
            self._published[ref.index] = self.make(RemoteCall(ref.index))
        return self._published[ref.index]

    def make(self, call: RemoteCall) -> Any:
        """Call a service on another host: see `start`."""
        return self.start(call)()

    def start(self, call: RemoteCall) -> Callable[[], Any]:
        """Send a call to a service on another host. Returns a function that waits for its answer.

        Both raise Unreachable if the host does not answer; the function raises the service's own error, and Stopped if
        the call is still waiting when the program is stopped. A call in progress has its connection for itself."""
        node, clients = self.program.services[call.index], self._clients()
        what = f"{node.name}.{call.method or 'methods'}"
        with self._failing(what, node.host):
            client = clients.pop(node.host, None) or self._connect(node.host)
            with _closed_on_error(client):
                client.ask(call)

        def answer() -> Any:
            with self._failing(what, node.host), _closed_on_error(client):
                if call.waits:
                    self._await(client, what)
                outcome = client.outcome()
            if clients.setdefault(node.host, client) is not client:  # of another call that was in progress, too
                client.close()
            return outcome.get()

        return answer

    @contextmanager
    def _failing(self, what: str, host: str) -> Iterator[None]:
        """Raise Unreachable for an error of a connection."""
        try:
            yield
        except (OSError, *UNAVAILABLE) as error:
            raise Unreachable(
                f"{what}: call to host {host} failed (timeout {self._seconds:g} s): {describe(error)}"
            ) from None

    def _clients(self) -> dict[str, Client]:
        """This thread's connections: host -> client."""
        if not hasattr(self._local, "clients"):
            self._local.clients = {}
        clients: dict[str, Client] = self._local.clients
        return clients

    def _connect(self, host: str) -> Client:
        """Connect to a host's server at its last known address.

        After a failure the next call asks Ray for the address, because a restarted process has a new one. If that fails
        too, the call after it tries the known address: after a network cut, Ray needs longer to recover."""
        if host not in self._addresses or host in self._stale:
            self._stale.discard(host)
            self._addresses[host] = self._address(host)
        try:
            return Client(self._addresses[host], key_of(host, self._key), self._seconds)
        except OSError:
            self._stale.add(host)
            raise

    def _address(self, host: str) -> Address:
        """Ask a host for the address of its server, through Ray."""
        answer = self._peers[host].server_address.remote()
        try:
            address: Address | None = ray.get(answer, timeout=self._seconds)
        except UNAVAILABLE:
            ray.cancel(answer)  # otherwise Ray executes such requests later, after a network cut possibly many at once
            raise
        if address is None:
            raise ConnectionRefusedError("host not ready yet")
        return address

    def _await(self, client: Client, what: str) -> None:
        """Block until there is an answer. When the program is stopped, the other host ends the calls that wait there.
        Raises Stopped if this takes longer than the timeout."""
        end = float("inf")
        while not client.answered(POLL_SECONDS):
            if self._stopped():
                end = min(end, time.monotonic() + self._seconds)
            if time.monotonic() > end:
                raise Stopped(f"while waiting for {what}")


@contextmanager
def _closed_on_error(client: Client) -> Iterator[None]:
    """Close a connection after an error, because the next answer on it could belong to this call."""
    try:
        yield
    except BaseException:
        client.close()
        raise
