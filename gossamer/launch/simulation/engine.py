"""One run of a simulation: the services, the calls to them and their duration, and the crashes of hosts."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import deepcopy
from functools import partial
from math import inf
from typing import Any

from gossamer.launch.base import Crew, Handle, advance, begin, build, restore, serve_checkpoint
from gossamer.launch.simulation.calls import Parked, PendingCall, StartedCall, Steps
from gossamer.launch.simulation.faults import Event, Faults, FaultSchedule
from gossamer.launch.simulation.network import Links, Network
from gossamer.launch.simulation.scheduler import Scheduler
from gossamer.launch.simulation.turns import SimulatedWorker, Turning
from gossamer.launch.snapshots import Snapshots
from gossamer.program import Program, Ref
from gossamer.runtime import Observer, Stopped, Unreachable, WouldBlock


class Engine:
    """Executes calls, in the thread of the calling worker, and faults. It needs no locks: see `Scheduler`."""

    def __init__(
        self, program: Program, observer: Observer, seed: int, network: Network, faults: Faults, patience: float
    ) -> None:
        faults.check(program)
        # `wake` does nothing: the scheduler checks for a stop at every change of turn.
        self.crew = Crew(observer, wake=lambda: None, serve=self.serve_all)
        self.trace: list[tuple[str, str]] = []
        self.crashes: list[tuple[float, str]] = []
        self.links = Links(network, faults.partitions, random.Random(f"{seed} network"))
        self.crash_counts = dict.fromkeys(program.hosts, 0)  # host -> number of crashes
        self.down: set[str] = set()
        self.gone: set[str] = set()  # hosts that never restart
        faults_due = FaultSchedule(faults, program.hosts, seed)
        self._seed, self._rng = seed, random.Random(seed)
        self.scheduler = Scheduler(self.crew, faults_due, self.execute_fault, self._rng, patience, self.reseed)
        self.nodes = program.services
        self.services: list[Any] = []
        self.snapshots = Snapshots(self.nodes)
        for node in self.nodes:
            self.services.append(build(node, partial(self.handle_for_service, node.host)))
            if node.saved:
                restore(self.services[-1], observer.restored(node.name))
        for copy in program.crew:
            self.scheduler.add(SimulatedWorker(self.scheduler, copy, faults.slow.get(copy.name, 1.0)))

    def run(self) -> None:
        self.scheduler.next_turn()
        try:
            self.crew.run((worker.name, partial(self.run_worker, worker)) for worker in self.scheduler.workers)
        finally:
            for service, node in zip(self.services, self.nodes, strict=True):
                if node.saved and node.host not in self.down:
                    self.crew.observer.save(node.name, service.state_dict())

    def reseed(self, position: object) -> None:
        """From now on, derive the order of turns and the network's losses from the seed and a position in the run."""
        self._rng.seed(f"{self._seed} {position}")
        self.links.reset(f"{self._seed} network {position}")

    def serve_all(self) -> None:
        """Do what a checkpoint needs from the services. Called by workers that wait for the checkpoint."""
        for index, node in enumerate(self.nodes):
            if node.saved and node.host not in self.down:
                serve_checkpoint(self.crew.observer, node.name, partial(self.ask, index))

    def ask(self, service: int, method: str) -> Any:
        """Call a method that takes no arguments and never waits. The call takes no virtual time."""
        return getattr(self.services[service], method)()

    def run_worker(self, me: SimulatedWorker) -> None:
        """The thread of a worker: run it, and run it again after each restart of its host."""
        me.turn.acquire()
        while not self.run_once(me):
            if self.crew.stopped or me.host in self.gone:
                break  # the host does not restart
            self.scheduler.wait_for_restart(me)
        try:
            self.crew.observer.ended(me.name)
        except BaseException as error:  # continue, because the other workers wait for their turn
            self.crew.fail(f"worker {me.name}", error)
        self.scheduler.end(me)

    def run_once(self, me: SimulatedWorker) -> bool:
        """Run a worker until it ends or its host crashes. Returns False if its host has crashed."""

        def handle(ref: Ref) -> Handle:
            name, service = self.nodes[ref.index].name, self.services[ref.index]
            return Handle(name, service, partial(self.call, me, ref.index), partial(self.start, me, ref.index))

        try:
            build(me.check_alive().copy.node, handle, me)
        except Stopped:
            pass  # the worker was waiting when the program was stopped: a normal end
        except BaseException as error:  # stops all workers; `Crew.run` raises it again
            if not me.dead:  # else it is Crashed, or an error raised while the worker handled Crashed
                self.crew.fail(f"worker {me.name}", error)
        return not me.dead

    def call(
        self, me: SimulatedWorker, service: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A worker's call to a service."""
        if self.nodes[service].host == me.host:
            self.scheduler.wait_until(me, me.clock)
        me.check_alive()
        with closing(self.steps(me, me.host, service, method, args, kwargs)) as steps:
            while True:
                try:
                    pause = next(steps)
                except StopIteration as end:
                    return end.value
                if isinstance(pause, Parked):
                    self.scheduler.park(me, pause.service, pause.what, pause.resume)
                else:
                    self.scheduler.wait_until(me, pause)

    def start(
        self, me: SimulatedWorker, service: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], Any]:
        """Start a worker's call to a service. Returns a function that waits for its answer. Between hosts the call goes
        on meanwhile."""
        if self.nodes[service].host == me.host:
            answer = self.call(me, service, method, args, kwargs)
            return lambda: answer
        started = StartedCall(self.scheduler, me.check_alive())
        started.steps = self.steps(started, me.host, service, method, args, kwargs)
        self.scheduler.leave_until(started, me.clock)
        return started.answer

    def steps(
        self, me: Turning, source: str, service: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Steps:
        """A call from the host `source`: transmit the request, execute it, transmit the answer."""
        node = self.nodes[service]
        what = f"{node.name}.{method}"
        if node.host == source:
            return (yield from self.execute(me, service, what, method, args, kwargs))
        no_request, no_answer = self.links.draw_loss()
        seconds = self.links.seconds(method, args, kwargs)
        yield from self.transmit(me, source, node.host, seconds, no_request, what)
        yield from self.work(me, service, what, (method, args, kwargs))
        answer = yield from self.execute(me, service, what, method, args, kwargs)
        seconds = 0.0 if answer is None else self.links.seconds(method, (answer,), {})
        yield from self.transmit(me, node.host, source, seconds, no_answer, what)
        return answer

    def transmit(self, me: Turning, source: str, target: str, seconds: float, lost: bool, what: str) -> Steps:
        """Wait until one message of a call has arrived. Raises Unreachable if it does not arrive."""
        sent, links = me.clock, self.links
        head = links.send(source, sent, seconds)
        if lost or links.partitioned(source, target, sent):
            yield from self.time_out(me, sent, what, f"no connection from {source!r} to {target!r}")
        yield head
        if seconds:
            yield links.receive(target, head, seconds)
        if target in self.down:
            yield from self.time_out(me, sent, what, f"host {target!r} is down")

    def work(self, me: Turning, service: int, what: str, call: tuple[str, tuple[Any, ...], dict[str, Any]]) -> Steps:
        """Wait until a service has done the work of a call. Raises Unreachable if its host crashes before."""
        host = self.nodes[service].host
        done, crashes = self.links.work(service, me.clock, call), self.crash_counts[host]
        if done > me.clock:
            yield done
        if self.crash_counts[host] != crashes:
            yield from self.time_out(me, me.clock, what, f"host {host!r} has crashed")

    def time_out(self, me: Turning, since: float, what: str, why: str) -> Steps:
        """Wait until the timeout of a message sent at `since`, then raise Unreachable."""
        yield max(me.clock, since + self.links.network.timeout)
        raise Unreachable(f"{what}: {why}")

    def execute(
        self, me: Turning, service: int, what: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Steps:
        """Execute a call at its service and wait for the answer. Raises Stopped; Unreachable if the host crashes."""
        live, host = self.services[service], self.nodes[service].host
        if (name := self.nodes[service].name) in self.snapshots.due(me.clock):  # nothing has called it since it was due
            self.snapshots.keep(name, deepcopy(live.state_dict()), me.clock)
        waits = getattr(getattr(type(live), method, None), "waits", None) is not None
        if waits:
            self.scheduler.record_progress()
        with closing(begin(live, method, args, kwargs)) as steps:
            call = PendingCall(steps, host, self.crash_counts)
            try:
                if not call.resume():
                    self.scheduler.wake(service)
                    if not self.crew.stopped:
                        yield Parked(service, what, call.resume)
                    if call.crashed:
                        yield from self.time_out(me, me.clock, what, f"host {host!r} has crashed")
                    if not call.ended:
                        raise Stopped(f"while waiting for {what}")
                answer = call.result()
                self.trace.append((me.name, what))
                return answer
            finally:
                if waits:
                    self.scheduler.record_progress()
                self.scheduler.call_ended(service)

    def handle_for_service(self, host: str, ref: Ref) -> Handle:
        """A handle for a service on `host`. Its calls run at once, within the turn of the worker that called first."""
        node = self.nodes[ref.index]

        def call(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            what, now = f"{node.name}.{method}", self.scheduler.now
            if node.host != host and (node.host in self.down or self.links.partitioned(host, node.host, now)):
                raise Unreachable(f"{what}: no connection from {host!r} to {node.host!r}")
            with closing(begin(self.services[ref.index], method, args, kwargs)) as steps:
                try:
                    ended, answer = advance(steps)
                finally:
                    self.scheduler.wake(ref.index)
            if not ended:
                raise WouldBlock(f"{what} would have to wait, so a service must not call it")
            return answer

        return Handle(node.name, self.services[ref.index], call)

    def execute_fault(self, event: Event) -> None:
        if event.restart:
            self.restart(event.host)
        elif event.host not in self.down:
            self.crash(event)

    def crash(self, event: Event) -> None:
        """Crash a host. Its workers get `Crashed` and callers that wait in its services `Unreachable`, both now."""
        host = event.host
        self.crashes.append((event.when, host))
        self.down.add(host)
        self.crew.observer.host(host, None)
        self.crash_counts[host] += 1
        self.scheduler.faults_due.schedule_restart(event)
        if event.down == inf:
            self.gone.add(host)
        for worker in self.scheduler.workers:
            if worker.host == host and not worker.ended:
                self.crew.observer.died(worker.name)
                for each in (worker, *worker.started):
                    each.dead, each.moves = True, 0
                    self.scheduler.make_ready(each)
        here = [i for i, node in enumerate(self.nodes) if node.host == host]
        self.links.crashed(here)
        for i in here:
            self.crew.observer.away(self.nodes[i].name)
        self.scheduler.wake(*here)

    def restart(self, host: str) -> None:
        """Restart a host: build new services and run its unfinished workers from the start."""
        try:
            with ThreadPoolExecutor(1) as own:  # a worker's thread may be inside a `torch.no_grad()`
                own.submit(self.build_services, host).result()
        except BaseException as error:
            self.crew.fail(f"restart of host {host!r}", error)
            return
        self.down.remove(host)
        self.crew.observer.host(host, host)
        ended = frozenset(worker.name for worker in self.scheduler.workers if worker.ended)
        for worker in self.scheduler.workers:
            if worker.host == host and not worker.ended:
                worker.dead, worker.moves = False, 0
                worker.restarts, worker.ended_before = worker.restarts + 1, ended
                self.scheduler.make_ready(worker)

    def build_services(self, host: str) -> None:
        """Build the services of a host in insertion order, because they hold handles to earlier ones."""
        for i, node in enumerate(self.nodes):
            if node.host == host:
                self.services[i] = build(node, partial(self.handle_for_service, host))
                restore(self.services[i], self.snapshots.state(node.name, self.crew.observer.restored))
