"""One host of a program as a Ray actor: its services, and its workers as threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Any
from uuid import uuid4

import ray
from ray import cloudpickle

from gossamer.launch.base import Crew, Handle, build, restore
from gossamer.launch.ray.calls import Calls, Remote, RemoteCall
from gossamer.launch.ray.errors import HostFailed
from gossamer.launch.ray.leases import Grant
from gossamer.launch.ray.messages import CallOutcome, HostObserver, HostState
from gossamer.launch.ray.rpc import Address, Server, key_of
from gossamer.launch.threads import Monitor
from gossamer.program import Copy, Program, Ref
from gossamer.runtime import Stage, Unreachable

CONTROL = "control"  # concurrency group with its own threads, so that long calls do not block the driver's polls
CONTROL_THREADS = 4
BUILD_SECONDS = 60.0  # how long a call waits for a service that is not built yet


class HostProcess:
    """The actor. Ray restarts it after a failure of its process or machine; it is empty until `build` is called."""

    program: Program
    calls: Calls  # to services on other hosts
    observer: HostObserver

    def __init__(self, name: str) -> None:
        self.name, self.process, self.life = name, uuid4().hex, 0
        self.crew: Crew | None = None
        self._monitors: dict[int, Monitor] = {}  # by their service's index
        self._built = threading.Condition()
        self._starts = threading.Lock()
        self._turn = 0
        self._ended = frozenset[str]()  # see `Context.ended_before`
        self._server: Server | None = None

    @ray.method(concurrency_group=CONTROL)
    def build(
        self, life: int, plan: bytes, peers: dict[str, Any], call_seconds: float, states: dict[str, Any]
    ) -> CallOutcome:
        """Build this host's services, unless this process has done so. `life`: the number of this process, from 1;
        `states`: the states that saved services continue from."""
        return CallOutcome.of(partial(self._build, life, plan, peers, call_seconds, states))

    def _build(
        self, life: int, plan: bytes, peers: dict[str, Any], call_seconds: float, states: dict[str, Any]
    ) -> None:
        with self._starts:
            if self.life:
                return
            self.life = life
            paths, key, rest = cloudpickle.loads(plan)
            sys.path += [path for path in paths if path not in sys.path]  # unpickling imports the program's modules
            self.program = cloudpickle.loads(rest)
            self.calls = Calls(self.program, peers, key, call_seconds, self._stopped)
            self._server = self._open(key, call_seconds)
            for index, node in enumerate(self.program.services):
                if node.host == self.name:
                    service = build(node, partial(self._handle, may_wait=False))
                    restore(service, states.get(node.name))
                    with self._built:
                        self._monitors[index] = Monitor(node.name, service, self._stopped)
                        self._built.notify_all()

    def _open(self, key: bytes, seconds: float) -> Server:
        here: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        try:
            return Server(here, key_of(self.name, key), self._answer, seconds)
        except (OSError, ValueError) as error:
            raise HostFailed(f"host {self.name} on {here} cannot listen for calls: {error}") from error

    @ray.method(concurrency_group=CONTROL)
    def work(self, workers: Collection[str], states: dict[str, Any], ended: frozenset[str]) -> bool:
        """Start these workers from their last saved states, unless this process has done so. `ended`: workers of all
        hosts that have ended. Returns False in a process that is not built yet."""
        with self._starts:
            if not self.life:
                return False
            if self.crew is None:
                self._ended = ended
                self.observer = HostObserver(states)
                self.crew = Crew(self.observer, self._wake)
                for copy in self.program.crew:
                    if copy.name in workers:
                        given = (copy, self.crew)
                        threading.Thread(target=self._run, args=given, name=copy.name, daemon=True).start()
            return True

    def _run(self, copy: Copy, crew: Crew) -> None:
        handle, again = partial(self._handle, may_wait=True), self.life - 1
        crew.work(copy, handle, self._stopped, restarts=again, ended_before=lambda: self._ended)

    def _handle(self, ref: Ref, *, may_wait: bool) -> Handle | Remote:
        if ref.index in self._monitors:
            return self._monitors[ref.index].handle(may_wait=may_wait)
        return Remote(self.calls, ref, may_wait)

    def _stopped(self) -> bool:
        return self.crew is not None and self.crew.stopped

    def _wake(self) -> None:
        self.observer.unblock()
        for monitor in self._monitors.values():
            monitor.wake()

    @ray.method(concurrency_group=CONTROL)
    def poll(
        self,
        turn: int,
        seen: int,
        failures: int,
        stop: bool,
        grants: dict[str, Grant],
        stages: dict[str, Stage],
        max_bytes: int,
        ended: frozenset[str] = frozenset(),
    ) -> HostState:
        """New messages and failures, in at most `max_bytes` bytes. `turn`: the number of this poll; `seen`, `failures`:
        how many of each the driver has; `stop`: whether to stop the workers; `grants`: leases for the workers;
        `stages`: what a checkpoint needs from saved services; `ended`: workers of all hosts that have ended, if this
        host has been restarted."""
        crew = self.crew
        if crew is None or turn < self._turn:  # not started yet; or an old poll that the driver has given up
            return HostState(self.process, working=crew is not None)
        self._turn, self._ended = turn, self._ended | ended
        if stop and not crew.stopped:
            crew.stop()
        self.observer.grant(grants, seen)
        settled = tuple(name for name, stage in stages.items() if self._serve(name, stage))
        first, messages = self.observer.fetch(seen, max_bytes)
        stopped = crew.stopped  # read before the failures: a failure is recorded before it stops the crew
        failed = tuple((where, CallOutcome.failed(error)) for where, error in crew.failures[failures:])
        address, demands = self._server.address[0] if self._server else "", self.observer.demands()
        return HostState(self.process, True, first, messages, stopped, failed, demands, address, settled)

    def _serve(self, name: str, stage: Stage) -> bool:
        """Do what a checkpoint needs from a service. Returns whether the service has settled."""
        monitor = self._by_name(name)
        if stage is Stage.SETTLE:
            return bool(monitor.ask("settled"))
        if not self.observer.saving(name):
            self.observer.save(name, monitor.ask("state_dict"))
        return False

    def _by_name(self, name: str) -> Monitor:
        return next(monitor for monitor in self._monitors.values() if monitor.name == name)

    @ray.method(concurrency_group=CONTROL)
    def states(self, services: Collection[str]) -> dict[str, Any]:
        """The states of these services, now, as far as they are built."""
        built = {monitor.name for monitor in self._monitors.values()}
        return {name: self._by_name(name).ask("state_dict") for name in services if name in built}

    @ray.method(concurrency_group=CONTROL)
    def server_address(self) -> Address | None:
        """The address of this host's server; None until it is built."""
        return self._server.address if self._server else None

    def _answer(self, call: RemoteCall, given_up: Callable[[], bool]) -> Any:
        """Execute a call from another host. `given_up`: whether the caller has closed its connection."""
        monitor = self._monitor(call.index)
        if call.method is None:
            return monitor.published()
        if call.waits:
            return monitor.call(call.method, call.args, call.kwargs, given_up)
        return monitor.call_at_once(call.method, call.args, call.kwargs)

    def _monitor(self, index: int) -> Monitor:
        with self._built:
            if not self._built.wait_for(lambda: index in self._monitors, timeout=BUILD_SECONDS):
                raise Unreachable(f"service not built on host {self.name} within {BUILD_SECONDS:g} s")
            return self._monitors[index]
