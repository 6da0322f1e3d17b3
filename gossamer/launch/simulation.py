"""Run a program one worker at a time, in an order that a seed decides: every run of a seed is the same.

What depends on the order of events (a deadlock at shutdown, a lost update) shows up in some seed and stays there.
"""

from __future__ import annotations

import random
import threading
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gossamer.launch.base import Crew, Handle, advance, begin, build
from gossamer.program import SILENT, Copy, Observer, Program, Ref, Stopped, WouldBlock

Trace = list[tuple[str, str]]


class Deadlock(RuntimeError):
    """Every worker that has not ended waits. `waiting` says for what: worker -> service.method."""

    def __init__(self, waiting: dict[str, str]) -> None:
        super().__init__("nobody can go on: " + ", ".join(f"{who} waits for {what}" for who, what in waiting.items()))
        self.waiting = waiting


@dataclass
class Simulation:
    """A launcher: `Simulation(seed)(program)`.

    At every call to a service, and every look at `Context.stopped`, the seed decides who goes on.
    """

    seed: int = 0
    trace: Trace = field(default_factory=list)  # (worker, service.method) of the last run, as the calls ended

    def __call__(self, program: Program, observer: Observer = SILENT) -> None:
        """Raises what the first failing worker raised, or Deadlock, after all workers have ended."""
        stage = _Stage(program, observer, random.Random(self.seed))
        self.trace = stage.trace
        stage.run()


@dataclass(eq=False)
class _Player:
    """A worker on the stage: it runs from when its turn is released to when it gives the turn away."""

    copy: Copy
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waits_for: str = ""


class _Stage:
    """One run. All of it belongs to whoever has the turn, so nothing needs a lock."""

    def __init__(self, program: Program, observer: Observer, rng: random.Random) -> None:
        self.rng = rng
        self.trace: Trace = []
        self.crew = Crew(observer, wake=lambda: None)  # whoever has the turn sees it when passing it on
        self.names = [node.name for node in program.services]
        self.services: list[Any] = []
        for node in program.services:
            self.services.append(build(node, self.handle_for_service))
        self.players = [_Player(copy) for copy in program.crew]
        self.ready = list(self.players)
        self.parked: dict[int, list[_Player]] = {}  # by the service they wait for
        self.news = True  # whether a call has ended since everybody who waits last looked

    def run(self) -> None:
        self.pass_on()
        self.crew.run((player.copy.name, partial(self.play, player)) for player in self.players)

    def play(self, me: _Player) -> None:
        me.turn.acquire()

        def handle(ref: Ref) -> Handle:
            return Handle(self.names[ref.index], self.services[ref.index], partial(self.call, me, ref.index))

        def stopped() -> bool:
            self.give_way(me)  # or a loop that only waits for the end would never let the end come
            return self.crew.stopped

        self.crew.work(me.copy, handle, stopped)
        self.pass_on()

    def choose(self) -> _Player:
        """Who goes on: the only decision there is."""
        return self.ready.pop(self.rng.randrange(len(self.ready)))

    def pass_on(self) -> None:
        """Give the turn to somebody who can use it; to nobody when all have ended."""
        if self.crew.stopped:
            self.wake(*self.parked)
        elif not self.ready and self.parked:
            if not self.news:
                waiting = {p.copy.name: p.waits_for for players in self.parked.values() for p in players}
                self.crew.fail("the simulation", Deadlock(dict(sorted(waiting.items()))))
            self.news = False
            self.wake(*self.parked)  # a last look: a change between two waits wakes nobody (see `waits`)
        if self.ready:
            self.choose().turn.release()

    def give_way(self, me: _Player) -> None:
        self.ready.append(me)
        self.pass_on()
        me.turn.acquire()

    def park(self, me: _Player, service: int, what: str) -> None:
        me.waits_for = what
        self.parked.setdefault(service, []).append(me)
        self.pass_on()
        me.turn.acquire()

    def wake(self, *services: int) -> None:
        for service in services:
            self.ready += self.parked.pop(service, [])

    def call(self, me: _Player, service: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.give_way(me)
        what = f"{self.names[service]}.{method}"
        with closing(begin(self.services[service], method, args, kwargs)) as steps:
            try:
                ended, answer = advance(steps)
                if not ended:
                    self.wake(service)
                while not ended:
                    if self.crew.stopped:
                        raise Stopped(f"while waiting for {what}")
                    self.park(me, service, what)
                    ended, answer = advance(steps)
                self.trace.append((me.copy.name, what))
                return answer
            finally:
                self.news = True
                self.wake(service)

    def handle_for_service(self, ref: Ref) -> Handle:
        """For calls between services: they go on at once, in the turn of whoever called the first."""

        def call(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            with closing(begin(self.services[ref.index], method, args, kwargs)) as steps:
                try:
                    ended, answer = advance(steps)
                finally:
                    self.wake(ref.index)
            if not ended:
                name = self.names[ref.index]
                raise WouldBlock(f"{name}.{method} has to wait, and a service that called it must not")
            return answer

        return Handle(self.names[ref.index], self.services[ref.index], call)
