"""Calls from one host of a program on Ray to services on the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray

from gossamer.launch.ray.messages import GONE, Outcome
from gossamer.launch.ray.rpc import Address, Client
from gossamer.program import Program, Ref, Stopped, Unreachable

LOOK_SECONDS = 0.5  # between looks whether the program has been stopped, while an answer is waited for


@dataclass(frozen=True)
class RemoteCall:
    """Of a service, by its place in `Program.services`; without a method it asks which there are."""

    index: int
    method: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    waits: bool = False


class Remote:
    """Stands for a service on another host: its public methods, and nothing else, each a remote call."""

    def __init__(self, calls: Calls, ref: Ref, may_wait: bool) -> None:
        self._calls, self._ref, self._may_wait = calls, ref, may_wait

    def __getattr__(self, method: str) -> Callable[..., Any]:
        # The first test also keeps copy and pickle, which ask half-made objects, from asking without end.
        if method.startswith("_") or method not in (published := self._calls.published(self._ref)):
            raise AttributeError(f"{method!r} is no public method of a service; a handle passes nothing else")
        waits = self._may_wait and published[method]
        return lambda *args, **kwargs: self._calls.make(RemoteCall(self._ref.index, method, args, kwargs, waits))

    def __repr__(self) -> str:
        return f"<handle of {self._calls.program.services[self._ref.index].name}>"


class Calls:
    """Of all threads of one host, each over connections of its own."""

    def __init__(
        self, program: Program, peers: Mapping[str, Any], key: bytes, seconds: float, stopped: Callable[[], bool]
    ) -> None:
        """`peers`: the actors of all hosts; `seconds`: until a call that need not wait is given up."""
        self.program = program
        self._peers, self._key, self._seconds, self._stopped = peers, key, seconds, stopped
        self._published: dict[int, dict[str, bool]] = {}
        self._local = threading.local()
        self._addresses: dict[str, Address] = {}  # of the others' servers
        self._doubted = set[str]()  # hosts that did not answer there

    def published(self, ref: Ref) -> dict[str, bool]:
        """A service's public methods, and whether a call of each may have to wait. Raises Unreachable."""
        if ref.index not in self._published:
            self._published[ref.index] = self.make(RemoteCall(ref.index))
        return self._published[ref.index]

    def make(self, call: RemoteCall) -> Any:
        """RemoteCall a service on another host.

        Raises what the service raised, Unreachable where that host does not answer, and Stopped where it has to
        wait in a program that is being stopped.
        """
        node = self.program.services[call.index]
        return self._outcome(node.host, call, f"{node.name}.{call.method or 'methods'}").get()

    def _outcome(self, host: str, call: RemoteCall, what: str) -> Outcome:
        clients = self._clients()
        try:
            if host not in clients:
                clients[host] = self._connect(host)
            clients[host].ask(call)
            if call.waits:
                self._await(clients[host], what)
            return clients[host].outcome()
        except BaseException as error:  # whatever it was, the next answer on this connection would be this call's
            if host in clients:
                clients.pop(host).close()
            if isinstance(error, (OSError, *GONE)):
                reason = str(error).strip().split("\n")[0]
                raise Unreachable(
                    f"{what}: no answer within {self._seconds:g} s, or its host is gone: {reason}"
                ) from None
            raise

    def _clients(self) -> dict[str, Client]:
        """This thread's connections, by host."""
        if not hasattr(self._local, "clients"):
            self._local.clients = {}
        clients: dict[str, Client] = self._local.clients
        return clients

    def _connect(self, host: str) -> Client:
        """Where a host does not answer at the address that is known, Ray is asked next: a process that was started
        again has another one. Then the known one is tried again: after a cut, Ray needs longer to find its way."""
        if host not in self._addresses or host in self._doubted:
            self._doubted.discard(host)
            self._addresses[host] = self._address(host)
        try:
            return Client(self._addresses[host], self._key, self._seconds)
        except OSError:
            self._doubted.add(host)
            raise

    def _address(self, host: str) -> Address:
        """Where Ray finds a host's services."""
        answer = self._peers[host].door.remote()
        try:
            address: Address | None = ray.get(answer, timeout=self._seconds)
        except GONE:
            ray.cancel(answer)  # or it would be carried out later, in a cut network perhaps many times
            raise
        if address is None:
            raise ConnectionRefusedError("it has not been built")
        return address

    def _await(self, client: Client, what: str) -> None:
        """Until there is an answer. The other host tells those who wait there of an end; it may be gone by then."""
        end = float("inf")
        while not client.answered(LOOK_SECONDS):
            if self._stopped():
                end = min(end, time.monotonic() + self._seconds)
            if time.monotonic() > end:
                raise Stopped(f"while waiting for {what}")
