"""What surrounds a training program: it counts, records, shows, keeps checkpoints, and says when to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from gossamer.data import Tree
from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.envs.watchdog import Silence
from gossamer.errors import EnvironmentFailed
from gossamer.launch.base import EndWithout
from gossamer.machine import HostInfo
from gossamer.runtime import Answer, Stage
from gossamer.storage.checkpoint import Store
from gossamer.task import Activity, Note, Recovered, Report, Spent
from gossamer.training import barrier
from gossamer.training.barrier import PATIENCE_SECONDS, Barrier
from gossamer.training.budget import Budget
from gossamer.training.display import ProgressDisplay
from gossamer.training.evaluator import Evaluator
from gossamer.training.hosts import Hosts
from gossamer.training.progress import HostStatus, Progress
from gossamer.training.recorder import Recorder
from gossamer.training.states import is_whole
from gossamer.training.writer import Writer

CHECKPOINT_SECONDS = 60.0  # between two checkpoints
FENCE_SECONDS = 10.0  # that a worker must be away until others may take the steps that it has leased


@dataclass
class RunObserver:
    """The program's observer: it owns the budget of steps, counts, records, shows, and keeps checkpoints.

    A checkpoint holds the state of every saved worker and service. A worker that has ended keeps the last state it
    gave; so does one that cannot be reached."""

    progress: Progress
    recorder: Recorder
    store: Store
    display: ProgressDisplay
    log: Callable[[str], None]
    members: frozenset[str] = frozenset()  # the workers whose states make a checkpoint
    services: frozenset[str] = frozenset()  # the services whose states are part of it
    saved: dict[str, Tree] = field(default_factory=dict)  # worker or service -> the state that it starts from
    stop_at_return: float | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    checkpoint_steps: int | None = None  # a checkpoint each time so many steps have been acted, besides
    max_seconds: float | None = None  # of this session
    consensus: ConsensusMonitor | None = None  # of members that gossip
    evaluator: Evaluator | None = None  # asks for checkpoints besides, and plays with them
    kept: Callable[[], None] = lambda: None  # called after each checkpoint
    host_info: Callable[[str, HostInfo], None] = lambda worker, info: None  # called once by each worker that starts
    recovered: Callable[[Recovered, int], None] = lambda record, lost: None  # called where updates were lost
    returned: Callable[[str, int], None] = lambda worker, steps: None  # called with the lease of a dead worker
    together: bool = False  # whether all members wait for each other before their first steps (for exact simulations)
    host_workers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # host -> its saved workers
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.interrupted: str | None = None  # the signal's name
        self.solved_steps: int | None = None
        self.budget = Budget(self.progress.total, self.progress.steps)
        self.hosts = Hosts(self.now)
        self._barrier = Barrier(self.members, self.services, self.now)
        if self.together:
            self._barrier.begin(save=False)
        self.writer = Writer(
            self.progress, self.recorder, self.hosts, self.log, self.consensus, self.evaluator, self.now
        )
        self._began = self._kept = self.now()
        self._kept_steps = self.progress.steps
        self._lock = threading.Lock()  # workers are threads
        self._away: dict[str, float] = {}  # worker -> since when
        self._states: dict[str, Tree] = {}
        self._fresh: set[str] = set()  # members that have reported nothing since they saved a state
        self._versions: dict[str, int] = {}  # learner -> of its parameters, as reported last
        self._hanging: dict[str, Silence] = {}  # member -> its environment that does not answer

    def restored(self, name: str) -> Any | None:
        with self._lock:
            return self._states.get(name, self.saved.get(name))

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, Note):
            self.note(record.text)
        elif isinstance(record, Recovered):
            with self._lock:
                lost = max(0, self._versions.get(worker, record.version) - record.version)
                self._versions[worker] = record.version
            self.note(record.told(lost))
            self.recovered(record, lost)
        elif isinstance(record, Silence):
            self._take_silence(worker, record)
        elif isinstance(record, HostInfo):
            self.host_info(worker, record)
        elif isinstance(record, Spent):
            self.progress.spend(worker, record.seconds)
        elif isinstance(record, Activity):
            with self._lock:
                self.progress.enter(record.text)
                self.display.tick()
        elif isinstance(record, Report):
            with self._lock:
                self._away.pop(worker, None)
                self._fresh.discard(worker)
                self._barrier.acted(worker, record.steps)
                if record.version is not None:
                    self._versions[worker] = record.version
                before = self.progress.restarts
                self.progress.update(worker, record, self.budget.report(worker, record.steps))
                p = self.progress
                self.recorder.add(worker, record.episodes, steps=p.steps, seconds=p.elapsed)
                self._take_failures(worker, record.failures, before)
                if self.consensus is not None:
                    for each in record.exchange:
                        self.consensus.take(worker, each)
                self._look_for_success()
                self.writer.reported()
                self.display.tick()

    def status_kept(self) -> AbstractContextManager[None]:
        """See `Writer.status_kept`."""
        return self.writer.status_kept(self._lock)

    def note(self, text: str) -> None:
        """Write a message to the log and to the display."""
        self.log(text)
        self.display.note(text)

    def _take_silence(self, worker: str, silence: Silence) -> None:
        if silence.over:
            self._hanging.pop(worker, None)
            self.note(f"{worker}: {silence}")
        else:
            self._hanging[worker] = silence
            self.note(f"{worker}: {silence}; Ctrl-C ends the run without it")

    def _take_failures(self, worker: str, failures: tuple[EnvironmentFailed, ...], before: int) -> None:
        """Log and display the 1st, 2nd, 4th, 8th, ... failure of the run. `before`: failures before these."""
        for number, failure in enumerate(failures, start=before + 1):
            if number & (number - 1) == 0:
                self.log(f"{worker}: {failure}\n{failure.trace}")
                self.display.note(f"{worker}: {failure}; restarted (restart {number} of this run)")

    def _look_for_success(self) -> None:
        p = self.progress
        full = len(p.recent) == p.recent.maxlen
        if self.stop_at_return is not None and self.solved_steps is None and full and p.mean_return is not None:
            if p.mean_return >= self.stop_at_return:
                self.solved_steps = p.steps

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        with self._lock:
            self._away.pop(worker, None)
            if self._due() and worker in self.members:
                self._barrier.begin()
            if worker in self.members and (answer := self._barrier.claim(worker, idle)) is not None:
                self._advance()
                return answer
            if not idle and steps and self.budget.near_end(worker, steps, max(1, len(self.members))):
                return Answer.WAIT if self.budget.granted < self.budget.total else Answer.END
            position = self.budget.lease(worker, steps)
            if position is None and self._fence():
                position = self.budget.lease(worker, steps)
            return Answer.END if position is None else position

    def _due(self) -> bool:
        """Whether it is time to begin a checkpoint."""
        if self._barrier.phase is not barrier.Phase.OPEN:
            return False
        if self.progress.steps == self._kept_steps:
            return False  # nothing has been acted since the last one
        steps = self.checkpoint_steps is not None and self.progress.steps - self._kept_steps >= self.checkpoint_steps
        evaluated = self.evaluator is not None and self.evaluator.due(self.progress.steps)
        return steps or evaluated or self.now() - self._kept >= self.checkpoint_seconds

    def _fence(self) -> bool:
        """Take back leases of workers that have been away for long: whether there were any. What such a worker reports
        for them when it comes back does not count."""
        late = [worker for worker, since in self._away.items() if self.now() - since >= FENCE_SECONDS]
        released = {worker: steps for worker in late if (steps := self.budget.release(worker))}
        for worker, steps in released.items():
            self.log(f"{worker} is away; {steps:,} steps that it has not reported are acted by others")
        return bool(released)

    def save(self, name: str, state: Any) -> None:
        with self._lock:
            self._states[name] = state
            self._fresh.add(name)
            self._barrier.saved(name)
            self._advance()

    def due(self, service: str) -> Stage | None:
        with self._lock:
            stage = self._barrier.due(service)
            self._advance()
            return stage

    def settled(self, service: str) -> None:
        with self._lock:
            self._barrier.settled(service)
            self._advance()

    def _advance(self) -> None:
        if not self._barrier.advance():
            return
        if self.members and not self.members & self._fresh:
            self.log("no checkpoint: no member could be reached to save its state")
            return
        self.keep()
        if self._barrier.missing:
            names = ", ".join(sorted(self._barrier.missing))
            why = f"away, or still acting after {PATIENCE_SECONDS:g} s"
            self.log(f"checkpoint lacks the newest state of {names}: {why}")

    def away(self, name: str) -> None:
        with self._lock:
            if name in self.members or self.budget.holds(name):
                self._away.setdefault(name, self.now())
            self._barrier.away(name)
            self._advance()

    def died(self, worker: str) -> None:
        with self._lock:
            if steps := self.budget.release(worker):
                self.returned(worker, steps)
            self._barrier.died(worker)
            self._advance()

    def ended(self, worker: str) -> None:
        with self._lock:
            self._away.pop(worker, None)
            self.budget.release(worker)  # an actor that cannot reach its learner ends before it has acted all of it
            self._barrier.away(worker)
            self._advance()

    def host(self, name: str, where: str | None) -> None:
        with self._lock:
            self.hosts.update(name, where)
            address = self.hosts.addresses.get(name, "")
            workers = self.host_workers.get(name, ())
            self.progress.hosts[name] = HostStatus(name, address, where is not None, workers)
            self.writer.write_status()

    def keep(self) -> None:
        """Write a checkpoint of the states that were saved last."""
        before = {name: state for name, state in self.saved.items() if name in self.services or is_whole(state)}
        states = {**before, **self._states}
        tree = {
            "workers": {name: state for name, state in states.items() if name in self.members},
            "services": {name: state for name, state in states.items() if name in self.services},
            "progress": self.progress.state_dict(),
        }
        self.recorder.flush()  # a run that is killed now has the episodes that the checkpoint counts
        self.store.save(tree, steps=self.progress.steps, score=self.progress.mean_return)
        self.kept()
        if self.evaluator is not None:
            self.evaluator.offer(self.store.get("last"), self.progress.elapsed)
        self._kept, self._kept_steps = self.now(), self.progress.steps

    def keep_last(self) -> None:
        """A checkpoint at an end that was not planned, if there is something to keep and the states of all members are
        as new as their reports."""
        with self._lock:
            if self.progress.steps and self.members <= self._fresh:
                self.keep()

    def stopping(self) -> bool:
        """Raises `EndWithout` in the main thread, which launchers wait in, where the run is asked to end and an
        environment hangs: its worker would not end."""
        if self.interrupted and self._hanging and threading.current_thread() is threading.main_thread():
            worker, silence = next(iter(self._hanging.items()))
            raise EndWithout(f"{worker}: {silence}", self._hanging)
        return self.interrupted is not None or self.solved_steps is not None or self.out_of_time

    @property
    def out_of_time(self) -> bool:
        """Whether this session has taken the seconds that it was given."""
        return self.max_seconds is not None and self.now() - self._began >= self.max_seconds
