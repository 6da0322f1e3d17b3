"""One run of a simulation: services and who can reach them, calls and what they take, hosts that die and come back."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from math import inf
from typing import Any

from gossamer.launch.base import Crew, Handle, advance, begin, build, restore, serve
from gossamer.launch.simulation.faults import Event, Faults, FaultSchedule
from gossamer.launch.simulation.network import Links, Network
from gossamer.launch.simulation.scheduler import Scheduler, SimulatedWorker
from gossamer.program import Observer, Program, Ref, Stopped, Unreachable, WouldBlock


class Engine:
    """Who has the turn has it all; see `Scheduler`. Service code runs in the thread of the worker that called it."""

    def __init__(
        self, program: Program, observer: Observer, seed: int, network: Network, faults: Faults, patience: float
    ) -> None:
        faults.check(program)
        # Nobody has to be woken at a stop: the next to have the turn sees it when passing it on.
        self.crew = Crew(observer, wake=lambda: None, serve=self.serve)
        self.trace: list[tuple[str, str]] = []
        self.crashes: list[tuple[float, str]] = []
        self.links = Links(network, faults.partitions, random.Random(f"{seed} network"))
        self.lives = dict.fromkeys(program.hosts, 0)  # host -> how often it has died
        self.down: set[str] = set()
        self.gone: set[str] = set()  # down for ever
        faults_due = FaultSchedule(faults, program.hosts, seed)
        self._seed, self._rng = seed, random.Random(seed)
        self.scheduler = Scheduler(self.crew, faults_due, self.happen, self._rng, patience, self.reseed)
        self.nodes = program.services
        self.services: list[Any] = []
        for node in self.nodes:
            self.services.append(build(node, partial(self.handle_for_service, node.host)))
            if node.saved:
                restore(self.services[-1], observer.restored(node.name))
        for copy in program.crew:
            self.scheduler.join(SimulatedWorker(self.scheduler, copy, faults.slow.get(copy.name, 1.0)))

    def run(self) -> None:
        self.scheduler.pass_on()
        try:
            self.crew.run((worker.name, partial(self.play, worker)) for worker in self.scheduler.workers)
        finally:
            for service, node in zip(self.services, self.nodes, strict=True):
                if node.saved and node.host not in self.down:
                    self.crew.observer.save(node.name, service.state_dict())

    def reseed(self, position: object) -> None:
        """Let order and network follow from the seed and a position in the run from now on."""
        self._rng.seed(f"{self._seed} {position}")
        self.links.reset(f"{self._seed} network {position}")

    def serve(self) -> None:
        """Do what a checkpoint wants of the services, in the turn of a worker that waits for it."""
        for index, node in enumerate(self.nodes):
            if node.saved and node.host not in self.down:
                serve(self.crew.observer, node.name, partial(self.ask, index))

    def ask(self, service: int, method: str) -> Any:
        """Call a method of a service that takes no arguments and never waits, from nowhere."""
        return getattr(self.services[service], method)()

    def play(self, me: SimulatedWorker) -> None:
        """The thread of a worker: its lives, one after another."""
        me.turn.acquire()
        while not self.live(me):
            if self.crew.stopped or me.host in self.gone:
                break  # no other life
            self.scheduler.absent(me)
        try:
            self.crew.observer.ended(me.name)
        except BaseException as error:  # the turn is passed on all the same
            self.crew.fail(f"worker {me.name}", error)
        self.scheduler.leave(me)

    def live(self, me: SimulatedWorker) -> bool:
        """One life of a worker. Whether it has come to its end; False where its host has died."""

        def handle(ref: Ref) -> Handle:
            return Handle(self.nodes[ref.index].name, self.services[ref.index], partial(self.call, me, ref.index))

        try:
            build(me.live().copy.node, handle, me)
        except Stopped:
            pass  # it would have waited in a program that was stopped: an end like any other
        except BaseException as error:  # a fault in one thread is everybody's: kept, and raised again by `run`
            if not me.dead:  # Crashed, or what came of clearing up after it
                self.crew.fail(f"worker {me.name}", error)
        return not me.dead

    def call(
        self, me: SimulatedWorker, service: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A worker's call to a service: there, through it, and back."""
        node = self.nodes[service]
        what = f"{node.name}.{method}"
        if node.host == me.host:
            self.scheduler.until(me, me.clock)
            return self.attend(me, service, what, method, args, kwargs)
        me.live()
        no_request, no_answer = self.links.lost()
        self.carry(me, me.host, node.host, self.links.seconds(method, args, kwargs), no_request, what)
        answer = self.attend(me, service, what, method, args, kwargs)
        seconds = 0.0 if answer is None else self.links.seconds(method, (answer,), {})
        self.carry(me, node.host, me.host, seconds, no_answer, what)
        return answer

    def carry(self, me: SimulatedWorker, source: str, target: str, seconds: float, lost: bool, what: str) -> None:
        """One message of a call: the caller goes on when it has arrived. Raises Unreachable where it does not."""
        sent, links = me.clock, self.links
        head = links.leave(source, sent, seconds)
        if lost or links.cut(source, target, sent):
            self.unreachable(me, sent, what, f"no connection from {source!r} to {target!r}")
        self.scheduler.until(me, head)
        if seconds:
            self.scheduler.until(me, links.arrive(target, head, seconds))
        if target in self.down:
            self.unreachable(me, sent, what, f"host {target!r} is down")

    def unreachable(self, me: SimulatedWorker, since: float, what: str, why: str) -> None:
        """Let the caller find out."""
        self.scheduler.until(me, max(me.clock, since + self.links.network.timeout))
        raise Unreachable(f"{what}: {why}")

    def attend(
        self, me: SimulatedWorker, service: int, what: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call that has come to its service, until its answer."""
        live, host = self.services[service], self.nodes[service].host
        life = self.lives[host]
        waits = getattr(getattr(type(live), method, None), "waits", None) is not None
        again = False
        if waits:
            self.scheduler.gain()
        with closing(begin(live, method, args, kwargs)) as steps:
            try:
                ended, answer = advance(steps)
                if not ended:
                    self.scheduler.wake(service)
                while not ended:
                    if self.crew.stopped:
                        raise Stopped(f"while waiting for {what}")
                    self.scheduler.park(me, service, what, again=again)
                    again = True
                    if self.lives[host] != life:
                        self.unreachable(me, me.clock, what, f"host {host!r} has died")
                    ended, answer = advance(steps)
                self.trace.append((me.name, what))
                return answer
            finally:
                if waits:
                    self.scheduler.gain()
                self.scheduler.changed(service)

    def handle_for_service(self, host: str, ref: Ref) -> Handle:
        """For calls between services: they go on at once, in the turn of whoever called the first."""
        node = self.nodes[ref.index]

        def call(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            what = f"{node.name}.{method}"
            if node.host != host and (node.host in self.down or self.links.cut(host, node.host, self.scheduler.now)):
                raise Unreachable(f"{what}: no connection from {host!r} to {node.host!r}")
            with closing(begin(self.services[ref.index], method, args, kwargs)) as steps:
                try:
                    ended, answer = advance(steps)
                finally:
                    self.scheduler.wake(ref.index)
            if not ended:
                raise WouldBlock(f"{what} has to wait, and a service that called it must not")
            return answer

        return Handle(node.name, self.services[ref.index], call)

    def happen(self, event: Event) -> None:
        if event.back:
            self.come_back(event.host)
        elif event.host not in self.down:
            self.crash(event)

    def crash(self, event: Event) -> None:
        """A host dies: its workers at their next turn, which is now; those who wait in its services find out."""
        host = event.host
        self.crashes.append((event.when, host))
        self.down.add(host)
        self.crew.observer.host(host, None)
        self.lives[host] += 1
        self.scheduler.faults_due.down(event)
        if event.down == inf:
            self.gone.add(host)
        for worker in self.scheduler.workers:
            if worker.host == host and not worker.ended:
                self.crew.observer.died(worker.name)
                worker.dead, worker.moves = True, 0
                self.scheduler.rouse(worker)
        here = [i for i, node in enumerate(self.nodes) if node.host == host]
        for i in here:
            self.crew.observer.away(self.nodes[i].name)
        self.scheduler.wake(*here)

    def come_back(self, host: str) -> None:
        """A host starts again: new services, and its workers from the start."""
        try:
            with ThreadPoolExecutor(1) as own:  # not in a worker's thread, which may be in a mode (`torch.no_grad`)
                own.submit(self.make, host).result()
        except BaseException as error:
            self.crew.fail(f"host {host!r}, started again", error)
            return
        self.down.remove(host)
        self.crew.observer.host(host, host)
        for worker in self.scheduler.workers:
            if worker.host == host and not worker.ended:
                worker.dead, worker.moves = False, 0
                worker.restarts += 1
                self.scheduler.rouse(worker)

    def make(self, host: str) -> None:
        """Make the services of a host, in the order of wiring: they hold handles to earlier ones."""
        for i, node in enumerate(self.nodes):
            if node.host == host:
                self.services[i] = build(node, partial(self.handle_for_service, host))
