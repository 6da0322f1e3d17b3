"""The driver's part of a program on Ray: one thread per host starts it, polls it, and restarts it after a failure."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from gossamer.launch.base import POLL, Crew
from gossamer.launch.ray.errors import HostFailed
from gossamer.launch.ray.faults import describe
from gossamer.launch.ray.leases import Granted
from gossamer.launch.ray.messages import (
    PIECE_BYTES,
    POLL_BYTES,
    POLL_WAIT,
    UNAVAILABLE,
    CallOutcome,
    HostState,
    Pieces,
    WorkerMessage,
)
from gossamer.launch.snapshots import Snapshots
from gossamer.program import Node

PAUSE_IDLE = 0.005  # seconds between two polls of a host where a worker waits for an answer
PAUSE = 0.1  # seconds between two polls otherwise: each poll costs both sides about a millisecond
FAILURE_SECONDS = 600.0  # failures of a host within this time are counted together
STEADY_SECONDS = 60.0  # that a host must have worked for its earlier failures not to count
STATES_SECONDS = 120.0  # timeout for the states of services, which may be large
START_SECONDS = 120.0  # timeout for the first start of a host

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Timeouts in seconds and the number of allowed restarts; see `Ray`."""

    call_seconds: float
    restarts: int
    gone_seconds: float
    stop_seconds: float


class Deployment:
    """One run of a program: the state that the supervisors of its hosts share."""

    def __init__(self, crew: Crew, plan: Any, actors: dict[str, Any], limits: Limits) -> None:
        """`plan`: a Ray object reference to the pickle that hosts are built from, see `HostProcess.build`."""
        self.crew, self.plan, self.actors, self.limits = crew, plan, actors, limits
        self.supervisors: list[Supervisor] = []
        self._built = set[str]()
        self._changed = threading.Condition()

    def finished(self) -> bool:
        """Whether all workers have ended and none will be restarted."""
        return not any(supervisor.running for supervisor in self.supervisors)

    def ended(self) -> frozenset[str]:
        """The workers that have ended."""
        return frozenset(name for supervisor in self.supervisors for name in tuple(supervisor.ended))

    def wait_until_built(self, host: str) -> bool:
        """Mark a host as built and wait until all hosts are built. Returns False if the program is stopped."""
        with self._changed:
            self._built.add(host)
            self._changed.notify_all()
            while len(self._built) < len(self.supervisors) and not self.crew.stopped:
                self._changed.wait(timeout=POLL)
            return not self.crew.stopped

    def check_lost(self) -> None:
        """Raises HostFailed if all workers were lost with their hosts. Logs an error if only some were lost."""
        if lost := sorted(name for supervisor in self.supervisors for name in supervisor.lost):
            text = f"did not come back within {self.limits.gone_seconds:g} s: {', '.join(lost)}"
            if not any(supervisor.ended for supervisor in self.supervisors):
                raise HostFailed(f"all workers were lost: their hosts {text}")
            log.error("ended without workers whose hosts %s", text)


class Supervisor:
    """Supervises one host, in one thread. Other threads only read `running`, `ended` and `lost`."""

    def __init__(self, run: Deployment, host: str, workers: Collection[str], services: Collection[Node] = ()) -> None:
        """`workers`: names of the host's workers; `services`: its saved services."""
        self.host, self.running, self.lost = host, set(workers), frozenset[str]()
        self._services, self._snapshots = tuple(node.name for node in services), Snapshots(services)
        self.ended = set[str]()  # workers that have finished
        self._deployment, self._crew, self._actor = run, run.crew, run.actors[host]
        self._process, self._life, self._turn, self._seen, self._failures = "", 0, 0, 0, 0
        self._max_bytes, self._pieces = POLL_BYTES, Pieces()
        self._reading: tuple[Any, float] | None = None  # answer with states of services, and when it was asked for
        self._saved: dict[str, Any] = {}  # worker -> its last saved state in this run
        self._failed_at: list[float] = []  # times of the host's failures since it was last steady
        self._worked_since = float("inf")  # when the workers of its current process were started
        self._gone_since = self._stopped_since = float("inf")
        self._watched_since = 0.0
        self._up = False  # whether its workers were running at the last poll
        self._missed = False  # whether it has been said that it does not answer
        self._begun = False  # whether its workers have ever been started
        self._granted: dict[str, Granted] = {}  # by worker, for the host's current process
        self._idle = False  # whether a worker there waits for an answer

    def watch(self) -> None:
        """Supervise the host until all workers of the program have ended: others may need this host's services."""
        self._gone_since = self._watched_since = time.monotonic()
        try:
            while not self._deployment.finished():
                try:
                    self._poll()
                    self._read_snapshots()
                except UNAVAILABLE as error:
                    self._no_answer(error)
                self._check_timeouts()
                time.sleep(PAUSE_IDLE if self._idle else PAUSE)
            self._save_final_states()
        except BaseException as error:
            self.running.clear()
            self._crew.fail(f"host {self.host}", error)

    def _ask(self, answer: Any, seconds: float | None = None) -> Any:
        """Wait for the actor's answer. Raises GetTimeoutError after `seconds`; if None, `stop_seconds` after a stop."""
        end = float("inf") if seconds is None else time.monotonic() + seconds
        while not ray.wait([answer], timeout=min(POLL, max(0.0, end - time.monotonic())))[0]:
            if self._crew.stopped and seconds is None:
                end, seconds = time.monotonic() + self._deployment.limits.stop_seconds, 0.0
            if time.monotonic() >= end:
                ray.cancel(answer)
                raise GetTimeoutError(f"no answer from host {self.host}")
        return ray.get(answer)

    def _poll(self) -> None:
        self._turn += 1
        crew, observer = self._crew, self._crew.observer
        grants = {worker: granted.grant() for worker, granted in self._granted.items() if worker in self.running}
        reachable = self._services if self._up else ()  # a checkpoint does not wait for unreachable services
        stages = {name: stage for name in reachable if (stage := observer.due(name)) is not None}
        ended = self._deployment.ended() if self._life > 1 else frozenset[str]()
        request = self._turn, self._seen, self._failures, crew.stopped, grants, stages, self._max_bytes, ended
        poll = self._actor.poll.remote(*request)
        try:
            found: HostState = self._ask(poll, self._deployment.limits.call_seconds + POLL_WAIT)
        except GetTimeoutError:  # the answer may have been too large for the network: ask for less
            self._max_bytes = max(PIECE_BYTES, self._max_bytes // 2)
            raise
        self._max_bytes = min(POLL_BYTES, self._max_bytes + PIECE_BYTES)
        if self._missed:
            log.warning("host %s is back after %.1f s", self.host, time.monotonic() - self._gone_since)
        self._gone_since, self._missed = float("inf"), False
        if found.working:
            self._begun = True
            if time.monotonic() - self._worked_since >= STEADY_SECONDS:
                self._failed_at.clear()
            if not self._up:
                self._up = True
                observer.host(self.host, found.address)
            self._receive(found)
            self._lease(found)
        elif self._crew.stopped:
            self._mark_away()  # its services are not built
            self.running.clear()  # workers that do not run now are not started any more
        else:
            self._start(found.process)

    def _lease(self, found: HostState) -> None:
        """Lease steps for the host's workers, and tell the observer which services have settled."""
        observer = self._crew.observer
        for name in found.settled:
            observer.settled(name)
        demands = {worker: demand for worker, demand in found.demands.items() if worker in self.running}
        for worker, demand in demands.items():
            self._granted.setdefault(worker, Granted()).satisfy(worker, demand, observer)
        self._idle = any(demand.idle for demand in demands.values())

    def _read_snapshots(self) -> None:
        """Ask for the states of this host's services that are due, and keep them when they have arrived. Large ones
        take long: polls go on meanwhile."""
        now = time.monotonic() - self._watched_since
        if self._reading is None:
            if self._up and (due := self._snapshots.due(now)):
                self._reading = self._actor.states.remote(due), now
            return
        answer, asked = self._reading
        if ray.wait([answer], timeout=0)[0]:
            self._reading = None
            with suppress(*UNAVAILABLE):  # the next poll finds out
                for name, state in ray.get(answer).items():
                    self._snapshots.keep(name, state, now)
        elif now - asked > STATES_SECONDS:
            self._reading = None
            ray.cancel(answer)
            log.warning("host %s: its services' states did not arrive within %g s", self.host, STATES_SECONDS)

    def _save_final_states(self) -> None:
        """Save the states of this host's services after the run."""
        if self._services and self._up and self._gone_since == float("inf"):
            try:
                states = self._ask(self._actor.states.remote(self._services), STATES_SECONDS)
            except UNAVAILABLE as error:
                self._no_answer(error)
                return
            for name, state in states.items():
                self._crew.observer.save(name, state)

    def _start(self, process: str) -> None:
        """Build the host's services and start its workers. Raises HostFailed after too many restarts."""
        if process != self._process:
            if self._process:
                self._count_failure()
                self._died()
            self._process, self._life, self._seen, self._failures = process, self._life + 1, 0, 0
            self._pieces, self._reading = Pieces(), None
        run = self._deployment
        seconds = run.limits.call_seconds
        restored = self._crew.observer.restored
        if not self._begun:  # what the run begins with, or goes on from
            states = {name: restored(name) for name in self._services}
        else:
            states = {name: self._snapshots.state(name, restored) for name in self._services}
        outcome: CallOutcome = self._ask(self._actor.build.remote(self._life, run.plan, run.actors, seconds, states))
        outcome.get()
        if run.wait_until_built(self.host):
            states = {name: self._saved[name] if name in self._saved else restored(name) for name in self.running}
            self._worked_since = time.monotonic()
            work = self._actor.work.remote(frozenset(self.running), states, run.ended())
            self._begun |= bool(self._ask(work))  # a process that Ray has started since then is built first

    def _died(self) -> None:
        """The host's process has died: tell the observer."""
        self._mark_away()
        self._granted.clear()
        for worker in self.running:
            self._crew.observer.died(worker)

    def _count_failure(self) -> None:
        now, limits = time.monotonic(), self._deployment.limits
        self._failed_at = [then for then in self._failed_at if now - then < FAILURE_SECONDS] + [now]
        if len(self._failed_at) > limits.restarts:
            raise HostFailed(
                f"host {self.host} has failed {len(self._failed_at)} times within {FAILURE_SECONDS / 60:g} minutes "
                f"without running for a minute in between (restarts={limits.restarts}): see Ray's logs on its machine"
            )
        log.warning("host %s has failed and is restarted (start %d)", self.host, self._life + 1)

    def _receive(self, found: HostState) -> None:
        for message in found.messages[max(0, self._seen - found.first) :]:
            self._forward(message)
            self._seen += 1
        for where, outcome in found.failures:
            self._failures += 1
            if outcome.error is not None:
                self._crew.fail(where, outcome.raisable(outcome.error))
        if found.stopped:
            self._crew.stop()

    def _forward(self, message: WorkerMessage) -> None:
        """Pass a message to the observer. An error of the observer fails the worker, as in the launcher `threads`."""
        observer, worker = self._crew.observer, message.worker
        try:
            if message.kind == "report" and self._pieces.add(message):
                observer.report(worker, self._pieces.take())
            elif message.kind == "save" and self._pieces.add(message):
                state = self._pieces.take()
                if worker not in self._services:
                    self._saved[worker] = state
                observer.save(worker, state)
            elif message.kind == "end":
                self.ended.add(worker)
                self.running.discard(worker)
                observer.ended(worker)
        except BaseException as error:
            self._crew.fail(f"worker {worker}", error)

    def _no_answer(self, error: BaseException) -> None:
        now = time.monotonic()
        if self._gone_since == float("inf"):
            self._gone_since = now
            if self._up:  # one that starts is slow to answer: it imports and makes environments
                log.warning("host %s does not answer: %s", self.host, describe(error))
                self._missed = True
            self._mark_away()
        self._crew.sleep(POLL)

    def overdue(self, now: float) -> bool:
        """Whether it has been away for so long that the program does not wait for it any more."""
        return self._begun and now - self._gone_since > self._deployment.limits.gone_seconds

    def _mark_away(self) -> None:
        """Tell the observer that this host is unreachable, once for each outage."""
        if self._up:
            self._up = False
            self._crew.observer.host(self.host, None)
            for name in (*self.running, *self._services):
                self._crew.observer.away(name)

    def _check_timeouts(self) -> None:
        """Stop waiting for the host's workers after a timeout. Raises HostFailed if the host was never started."""
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
        elif self.overdue(now):
            others = [each for each in self._deployment.supervisors if each is not self]
            if not any(each.running and not each.overdue(now) for each in others):
                self.lost = frozenset(self.running)
                self._died()
                self.running.clear()
