"""One host of a program as a Ray actor: its services, its workers as threads, and its calls to other hosts."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import ray
from ray import cloudpickle

from gossamer.launch.base import Crew, Handle, build
from gossamer.launch.mail import GONE, Look, News, Outbox, Outcome
from gossamer.launch.rpc import Address, Client, Server
from gossamer.launch.threads import Monitor
from gossamer.program import Copy, Program, Ref, Stopped, Unreachable

CONTROL = "control"  # threads of the actor that no call to a service can occupy
CONTROL_THREADS = 4
BUILD_SECONDS = 60.0  # that a call waits for a service that is not there yet
LOOK_SECONDS = 0.5  # between looks whether the program has been stopped, while an answer is waited for


@dataclass(frozen=True)
class Call:
    """Of a service, by its place in `Program.services`; without a method it asks which there are."""

    index: int
    method: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    waits: bool = False


class Remote:
    """Stands for a service on another host: its public methods, and nothing else, each a remote call."""

    def __init__(self, host: HostProcess, ref: Ref, may_wait: bool) -> None:
        self._host, self._ref, self._may_wait = host, ref, may_wait

    def __getattr__(self, method: str) -> Callable[..., Any]:
        # The first test also keeps copy and pickle, which ask half-made objects, from asking without end.
        if method.startswith("_") or method not in (published := self._host.published(self._ref)):
            raise AttributeError(f"{method!r} is no public method of a service; a handle passes nothing else")
        waits = self._may_wait and published[method]
        return lambda *args, **kwargs: self._host.call_remote(Call(self._ref.index, method, args, kwargs, waits))

    def __repr__(self) -> str:
        return f"<handle of {self._host.program.services[self._ref.index].name}>"


class HostProcess:
    """The actor. Ray starts it anew where its process or its machine fails; then it is empty until it is built."""

    program: Program
    peers: dict[str, Any]  # the actors of all hosts
    outbox: Outbox

    def __init__(self, name: str) -> None:
        self.name, self.process, self.life = name, uuid4().hex, 0
        self.call_seconds = 0.0
        self.crew: Crew | None = None
        self._monitors: dict[int, Monitor] = {}  # by their service's index
        self._published: dict[int, dict[str, bool]] = {}  # of other hosts' services
        self._built = threading.Condition()
        self._starts = threading.Lock()
        self._turn = 0
        self._server: Server | None = None
        self._local = threading.local()
        self._addresses: dict[str, Address] = {}  # of other hosts' servers
        self._doubted = set[str]()  # hosts that did not answer there

    @ray.method(concurrency_group=CONTROL)
    def build(self, life: int, plan: bytes, peers: dict[str, Any], call_seconds: float) -> Outcome:
        """Make this host's services, unless this process has done so; `life` counts its processes from 1."""
        return Outcome.of(partial(self._build, life, plan, peers, call_seconds))

    def _build(self, life: int, plan: bytes, peers: dict[str, Any], call_seconds: float) -> None:
        with self._starts:
            if self.life:
                return
            self.life, self.peers, self.call_seconds = life, peers, call_seconds
            paths, self._key, rest = cloudpickle.loads(plan)
            sys.path += [path for path in paths if path not in sys.path]  # for modules named in the program
            self.program = cloudpickle.loads(rest)
            self._server = Server(_own_address(), self._key, self._answer, call_seconds)
            for index, node in enumerate(self.program.services):
                if node.host == self.name:
                    service = build(node, partial(self._handle, may_wait=False))
                    with self._built:
                        self._monitors[index] = Monitor(node.name, service, self._stopped)
                        self._built.notify_all()

    @ray.method(concurrency_group=CONTROL)
    def work(self, workers: Collection[str], states: dict[str, Any]) -> None:
        """Start these workers, with the states they saved last, unless this process has done so."""
        with self._starts:
            if self.crew is None:
                self.outbox = Outbox(states)
                self.crew = Crew(self.outbox, self._wake)
                for copy in self.program.crew:
                    if copy.name in workers:
                        threading.Thread(target=self._play, args=(copy, self.crew), name=copy.name, daemon=True).start()

    def _play(self, copy: Copy, crew: Crew) -> None:
        crew.work(copy, partial(self._handle, may_wait=True), self._stopped, restarts=self.life - 1)
        self.outbox.put(News("end", copy.name))

    def _handle(self, ref: Ref, *, may_wait: bool) -> Handle | Remote:
        if ref.index in self._monitors:
            return self._monitors[ref.index].handle(may_wait=may_wait)
        return Remote(self, ref, may_wait)

    def _stopped(self) -> bool:
        return self.crew is not None and self.crew.stopped

    def _wake(self) -> None:
        self.outbox.free()
        for monitor in self._monitors.values():
            monitor.wake()

    @ray.method(concurrency_group=CONTROL)
    def look(self, turn: int, seen: int, failures: int, due: Collection[str], stop: bool) -> Look:
        """What has happened after the `seen` news and the `failures` that the driver has; what it asks for."""
        crew = self.crew
        if crew is None or turn < self._turn:  # nothing yet; or a look that has been given up and comes late
            return Look(self.process, working=crew is not None)
        self._turn = turn
        if stop and not crew.stopped:
            crew.stop()
        first, news = self.outbox.take(seen, due)
        stopped = crew.stopped  # before the failures: who fails is noted first, and then stops the others
        failed = tuple((where, Outcome.failed(error)) for where, error in crew.failures[failures:])
        return Look(self.process, True, first, news, stopped, failed)

    @ray.method(concurrency_group=CONTROL)
    def door(self) -> Address | None:
        """Where calls of this host's services go to; None until it is built."""
        return self._server.address if self._server else None

    def _answer(self, call: Call, given_up: Callable[[], bool]) -> Any:
        """A call of a service here, from another host."""
        monitor = self._monitor(call.index)
        if call.method is None:
            return monitor.published()
        if call.waits:
            return monitor.call(call.method, call.args, call.kwargs, given_up)
        return monitor.call_at_once(call.method, call.args, call.kwargs)

    def _monitor(self, index: int) -> Monitor:
        with self._built:
            if not self._built.wait_for(lambda: index in self._monitors, timeout=BUILD_SECONDS):
                raise Unreachable(f"host {self.name} has not been built")
            return self._monitors[index]

    def published(self, ref: Ref) -> dict[str, bool]:
        """A service's public methods, and whether a call of each may have to wait. Raises Unreachable."""
        if ref.index not in self._published:
            self._published[ref.index] = self.call_remote(Call(ref.index))
        return self._published[ref.index]

    def call_remote(self, call: Call) -> Any:
        """Call a service on another host.

        Raises what the service raised, Unreachable where that host does not answer, and Stopped where it has to
        wait in a program that is being stopped.
        """
        node = self.program.services[call.index]
        what = f"{node.name}.{call.method or 'methods'}"
        return self._outcome(node.host, call, what).get()

    def _outcome(self, host: str, call: Call, what: str) -> Outcome:
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
                    f"{what}: no answer within {self.call_seconds:g} s, or its host is gone: {reason}"
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
            return Client(self._addresses[host], self._key, self.call_seconds)
        except OSError:
            self._doubted.add(host)
            raise

    def _address(self, host: str) -> Address:
        """Where Ray finds a host's services."""
        answer = self.peers[host].door.remote()
        try:
            address: Address | None = ray.get(answer, timeout=self.call_seconds)
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
                end = min(end, time.monotonic() + self.call_seconds)
            if time.monotonic() > end:
                raise Stopped(f"while waiting for {what}")


def _own_address() -> str:
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return address
