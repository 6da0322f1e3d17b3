"""The driver's part of a program on Ray: a thread for every host that starts it, listens to it, and starts it again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from gossamer.launch.base import POLL, Crew
from gossamer.launch.ray.errors import HostFailed
from gossamer.launch.ray.faults import describe
from gossamer.launch.ray.leases import Granted
from gossamer.launch.ray.messages import (
    GONE,
    LOOK_BYTES,
    PATIENCE,
    PIECE_BYTES,
    HostState,
    Outcome,
    Pieces,
    WorkerMessage,
)

PAUSE_IDLE = 0.005  # seconds between two looks at a host where a worker waits for an answer
PAUSE = 0.1  # seconds between two looks at a host that always has news: each costs both sides about a millisecond
FAILURE_SECONDS = 600.0  # for which a failure of a host counts
START_SECONDS = 120.0  # that a host has to be there for the first time

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """How long the driver waits, in seconds, and how often it tries."""

    call_seconds: float
    restarts: int
    gone_seconds: float
    stop_seconds: float


class Deployment:
    """One run of a program: what the supervisors of its hosts share."""

    def __init__(self, crew: Crew, plan: Any, actors: dict[str, Any], limits: Limits) -> None:
        """`plan`: an object reference of what hosts are built from, see `HostProcess.build`."""
        self.crew, self.plan, self.actors, self.limits = crew, plan, actors, limits
        self.supervisors: list[Supervisor] = []
        self._built = set[str]()
        self._changed = threading.Condition()

    def over(self) -> bool:
        """Whether no worker runs any more, or will again."""
        return not any(supervisor.running for supervisor in self.supervisors)

    def all_built(self, host: str) -> bool:
        """Say that a host's services are there, and wait until all hosts' are; False where the program is stopped."""
        with self._changed:
            self._built.add(host)
            self._changed.notify_all()
            while len(self._built) < len(self.supervisors) and not self.crew.stopped:
                self._changed.wait(timeout=POLL)
            return not self.crew.stopped

    def account(self) -> None:
        """Raises HostFailed where hosts that did not come back took all workers with them; else the others did it."""
        if lost := sorted(name for supervisor in self.supervisors for name in supervisor.lost):
            text = f"never came back within {self.limits.gone_seconds:g} s: {', '.join(lost)}"
            if not any(supervisor.ended for supervisor in self.supervisors):
                raise HostFailed(text)
            log.error("ended without workers whose hosts %s", text)


class Supervisor:
    """Looks after one host. Everything here belongs to its thread, but for `running` and `lost`, which others read."""

    def __init__(self, run: Deployment, host: str, workers: Collection[str], services: Collection[str] = ()) -> None:
        """`workers` of the host, and its saved `services`."""
        self.host, self.running, self.lost = host, set(workers), frozenset[str]()
        self._services = tuple(services)
        self.ended = set[str]()  # workers that came to their own end
        self._deployment, self._crew, self._actor = run, run.crew, run.actors[host]
        self._process, self._life, self._turn, self._seen, self._failures = "", 0, 0, 0, 0
        self._most, self._pieces = LOOK_BYTES, Pieces()
        self._saved: dict[str, Any] = {}  # worker -> what it saved last in this run
        self._fell: list[float] = []  # when the host failed, since it last reported something
        self._gone_since = self._stopped_since = float("inf")
        self._up = False  # whether its workers run, as far as is known
        self._begun = False  # whether its workers have been started at all
        self._granted: dict[str, Granted] = {}  # by worker, in this process of the host
        self._hurry = False  # whether a worker there waits for an answer

    def watch(self) -> None:
        """Until no worker of the whole program runs: others may need this host's services."""
        self._gone_since = time.monotonic()
        try:
            while not self._deployment.over():
                try:
                    self._look()
                except GONE as error:
                    self._missing(error)
                self._give_up()
                time.sleep(PAUSE_IDLE if self._hurry else PAUSE)
            self._last_states()
        except BaseException as error:
            self.running.clear()
            self._crew.fail(f"host {self.host}", error)

    def _ask(self, answer: Any, seconds: float | None = None) -> Any:
        """Wait for an answer of the actor: for so long; without a limit, until the program is stopped."""
        end = float("inf") if seconds is None else time.monotonic() + seconds
        while not ray.wait([answer], timeout=min(POLL, max(0.0, end - time.monotonic())))[0]:
            if self._crew.stopped and seconds is None:
                end, seconds = time.monotonic() + self._deployment.limits.stop_seconds, 0.0
            if time.monotonic() >= end:
                ray.cancel(answer)
                raise GetTimeoutError(f"no answer from host {self.host}")
        return ray.get(answer)

    def _look(self) -> None:
        self._turn += 1
        crew, observer = self._crew, self._crew.observer
        grants = {worker: granted.grant() for worker, granted in self._granted.items() if worker in self.running}
        here = self._services if self._up else ()  # a checkpoint does not wait for services that are away
        stages = {name: stage for name in here if (stage := observer.due(name)) is not None}
        look = self._actor.look.remote(self._turn, self._seen, self._failures, crew.stopped, grants, stages, self._most)
        try:
            found: HostState = self._ask(look, self._deployment.limits.call_seconds + PATIENCE)
        except GetTimeoutError:  # it may have had too much to carry: ask for less until it comes
            self._most = max(PIECE_BYTES, self._most // 2)
            raise
        self._most = min(LOOK_BYTES, self._most + PIECE_BYTES)
        if self._life and self._gone_since < float("inf"):
            log.warning("host %s is back after %.1f s", self.host, time.monotonic() - self._gone_since)
        self._gone_since = float("inf")
        if found.working:
            if not self._up:
                self._up = True
                observer.host(self.host, found.address)
            self._hear(found)
            self._lease(found)
        elif self._crew.stopped:
            self.running.clear()  # what died, or has not begun, is not started for an end
        else:
            self._start(found.process)

    def _lease(self, found: HostState) -> None:
        """Answer what workers want of the budget, and say which services have settled."""
        observer = self._crew.observer
        for name in found.settled:
            observer.settled(name)
        demands = {worker: demand for worker, demand in found.demands.items() if worker in self.running}
        for worker, demand in demands.items():
            self._granted.setdefault(worker, Granted()).meet(worker, demand, observer)
        self._hurry = any(demand.idle for demand in demands.values())

    def _last_states(self) -> None:
        """Save the services of this host as they are after the run."""
        if self._services and self._begun and self._gone_since == float("inf"):
            try:
                states = self._ask(self._actor.states.remote(self._services), self._deployment.limits.call_seconds)
            except GONE as error:
                self._missing(error)
                return
            for name, state in states.items():
                self._crew.observer.save(name, state)

    def _start(self, process: str) -> None:
        if process != self._process:
            if self._process:
                self._failed()
                self._died()
            self._process, self._life, self._seen, self._failures = process, self._life + 1, 0, 0
            self._pieces = Pieces()
        run = self._deployment
        seconds = run.limits.call_seconds
        first = self._life == 1  # afterwards services start empty: others know more than what was saved
        states = {name: self._crew.observer.restored(name) for name in self._services if first}
        outcome: Outcome = self._ask(self._actor.build.remote(self._life, run.plan, run.actors, seconds, states))
        outcome.get()
        if run.all_built(self.host):
            restored = self._crew.observer.restored
            states = {name: self._saved[name] if name in self._saved else restored(name) for name in self.running}
            self._ask(self._actor.work.remote(frozenset(self.running), states))
            self._begun = True

    def _died(self) -> None:
        """The process of this host is gone, with all that it had not reported."""
        self._away()
        self._granted.clear()
        for worker in self.running:
            self._crew.observer.died(worker)

    def _failed(self) -> None:
        now, limits = time.monotonic(), self._deployment.limits
        self._fell = [then for then in self._fell if now - then < FAILURE_SECONDS] + [now]
        if len(self._fell) > limits.restarts:
            raise HostFailed(
                f"host {self.host} has failed {len(self._fell)} times within {FAILURE_SECONDS / 60:g} minutes and "
                f"reported nothing in between (restarts={limits.restarts}): see the logs of Ray on its machine"
            )
        log.warning("host %s has failed and is started again (start %d)", self.host, self._life + 1)

    def _hear(self, found: HostState) -> None:
        for news in found.news[max(0, self._seen - found.first) :]:
            self._tell(news)
            self._seen += 1
        for where, outcome in found.failures:
            self._failures += 1
            if outcome.error is not None:
                self._crew.fail(where, outcome.raisable(outcome.error))
        if found.stopped:
            self._crew.stop()

    def _tell(self, news: WorkerMessage) -> None:
        """Hand it to the observer. What that raises is the worker's failure, as it is where both share a process."""
        observer, worker = self._crew.observer, news.worker
        try:
            if news.kind == "report" and self._pieces.add(news):
                self._fell.clear()
                observer.report(worker, self._pieces.take())
            elif news.kind == "save" and self._pieces.add(news):
                state = self._pieces.take()
                if worker not in self._services:
                    self._saved[worker] = state
                observer.save(worker, state)
            elif news.kind == "end":
                self.ended.add(worker)
                self.running.discard(worker)
                observer.ended(worker)
        except BaseException as error:
            self._crew.fail(f"worker {worker}", error)

    def _missing(self, error: BaseException) -> None:
        now = time.monotonic()
        if self._gone_since == float("inf"):
            self._gone_since = now
            log.warning("host %s does not answer: %s", self.host, describe(error))
            self._away()
        self._crew.sleep(POLL)

    def _away(self) -> None:
        """Say once that this host is away, until its workers run again."""
        if self._up:
            self._up = False
            self._crew.observer.host(self.host, None)
            for name in (*self.running, *self._services):
                self._crew.observer.away(name)

    def _give_up(self) -> None:
        """Let go of workers that nobody can expect to go on."""
        now, limits = time.monotonic(), self._deployment.limits
        if self._crew.stopped:
            self._stopped_since = min(self._stopped_since, now)
            if now - max(self._stopped_since, self._gone_since) > limits.stop_seconds:
                self.running.clear()
        elif not self._begun:
            if now - self._gone_since > START_SECONDS:
                raise HostFailed(
                    f"host {self.host} could not be started within {START_SECONDS:g} s: "
                    "the cluster may be busy with other programs (ray status)"
                )
        elif now - self._gone_since > limits.gone_seconds:
            if not any(other.running for other in self._deployment.supervisors if other is not self):
                self.lost = frozenset(self.running)
                self._died()
                self.running.clear()
