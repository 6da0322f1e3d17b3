"""The observer of a training run: it counts, records and shows what workers report, and says when to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.envs.watchdog import Silence
from gossamer.launch.base import EndWithout
from gossamer.runtime import Answer, Stage
from gossamer.storage.events import EventLog
from gossamer.system.errors import EnvironmentFailed
from gossamer.system.machine import HostInfo
from gossamer.system.usage import Usage
from gossamer.task import (
    Activity,
    Event,
    Left,
    Note,
    Recovered,
    Spent,
    WorkerReport,
)
from gossamer.training.budget import Budget
from gossamer.training.callbacks import Callbacks
from gossamer.training.checkpoints import Checkpoints
from gossamer.training.display import ProgressDisplay
from gossamer.training.evaluator import Evaluator
from gossamer.training.progress import Progress
from gossamer.training.recorder import Recorder
from gossamer.training.writer import Writer

FENCE_SECONDS = 10.0  # that a worker must be away until others may take the steps that it has leased


@dataclass
class RunObserver:
    """The observer of a training run: it owns the budget of steps, counts, records and shows what workers report, and
    says when to save states and when to end."""

    progress: Progress
    recorder: Recorder
    checkpoints: Checkpoints
    display: ProgressDisplay
    log: Callable[[str], None]
    events: EventLog = field(default_factory=EventLog)
    stop_at_return: float | None = None
    stop_at_eval: float | None = None
    max_seconds: float | None = None  # of this session
    consensus: ConsensusMonitor | None = None  # of members that gossip
    evaluator: Evaluator | None = None
    callbacks: Callbacks = field(default_factory=Callbacks)
    now: Callable[[], float] = time.monotonic
    usage: Usage | None = None  # of this machine

    def __post_init__(self) -> None:
        self.interrupted: str | None = None  # the signal's name
        self.solved_steps: int | None = None  # when the mean return of episodes reached `stop_at_return`
        self.eval_solved_steps: int | None = None  # of the evaluation that reached `stop_at_eval`
        self.members = self.checkpoints.members
        self.budget = Budget(self.progress.total, self.progress.steps)
        self.writer = Writer(
            self.progress, self.recorder, self.log, self.consensus, self.evaluator, self.now, self.usage
        )
        self._began = self.now()
        self._ended: float | None = None  # when training ended: evaluations and callbacks may follow
        self._lock = threading.Lock()  # workers are threads
        self._away: dict[str, float] = {}  # worker -> since when
        self._versions: dict[str, int] = {}  # learner -> of its parameters, as reported last
        # Evaluations that need not be compared with `stop_at_eval` any more, as those of earlier calls
        self._judged = 0 if self.evaluator is None else len(self.evaluator.rows)
        self._hanging: dict[str, Silence] = {}  # member -> its environment that does not answer

    def restored(self, name: str) -> Any | None:
        with self._lock:
            return self.checkpoints.restored(name)

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, Note):
            self.note(record.text)
        elif isinstance(record, Recovered):
            with self._lock:
                lost = max(0, self._versions.get(worker, record.version) - record.version)
                self._versions[worker] = record.version
            self.note(record.told(lost))
            self.events.add("learner_restarted", steps=self.progress.steps, **asdict(record), lost=lost)
        elif isinstance(record, Event):
            self.note(f"{worker}: {record.text}")
            self.events.add(record.event, steps=self.progress.steps, worker=worker, **asdict(record))
        elif isinstance(record, Silence):
            self._take_silence(worker, record)
        elif isinstance(record, HostInfo):
            with self._lock:
                self.progress.hosts.computes_with(worker, record)
        elif isinstance(record, Left):
            with self._lock:
                self.progress.outcomes.left(record.rollouts)
        elif isinstance(record, Spent):
            self.progress.spend(worker, record.seconds)
        elif isinstance(record, Activity):
            with self._lock:
                self.progress.enter(record.text)
                self.display.tick()
        elif isinstance(record, WorkerReport):
            with self._lock:
                self._away.pop(worker, None)
                self.checkpoints.acted(worker, record.steps)
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
                self.writer.reported()
                self._look_for_success()
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
        if self.stop_at_return is not None and self.solved_steps is None and p.recent.full:
            if p.mean_return is not None and p.mean_return >= self.stop_at_return:
                self.solved_steps = p.steps
        rows = [] if self.evaluator is None else self.evaluator.rows
        for row in rows[self._judged :] if self.stop_at_eval is not None else ():
            if self.eval_solved_steps is None and row["mean_return"] >= self.stop_at_eval:
                self.eval_solved_steps = row["steps"]
        self._judged = len(rows)

    def look_for_success(self) -> None:
        """Compare what there is by now with the returns that the run was to end at."""
        with self._lock:
            self._look_for_success()

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        with self._saving():
            self._away.pop(worker, None)
            if (answer := self.checkpoints.claim(worker, idle=idle)) is not None:
                return answer
            if not idle and steps and self.budget.near_end(worker, steps, max(1, len(self.members))):
                return Answer.WAIT if self.budget.granted < self.budget.total else Answer.END
            position = self.budget.lease(worker, steps)
            if position is None and self._fence():
                position = self.budget.lease(worker, steps)
            if position is None:
                return Answer.WAIT if any(self.budget.holds(each) for each in self._away) else Answer.END
            return position

    def _fence(self) -> bool:
        """Take back leases of workers that have been away for long: whether there were any. What such a worker reports
        for them when it comes back does not count."""
        late = [worker for worker, since in self._away.items() if self.now() - since >= FENCE_SECONDS]
        released = {worker: steps for worker in late if (steps := self.budget.release(worker))}
        for worker, steps in released.items():
            self.log(f"{worker} is away; {steps:,} steps that it has not reported are acted by others")
        return bool(released)

    def save(self, name: str, state: Any) -> None:
        with self._saving():
            self.checkpoints.save(name, state)

    def due(self, service: str) -> Stage | None:
        with self._saving():
            return self.checkpoints.due(service)

    def settled(self, service: str) -> None:
        with self._saving():
            self.checkpoints.settled(service)

    def away(self, name: str) -> None:
        with self._saving():
            if name in self.members or self.budget.holds(name):
                self._away.setdefault(name, self.now())
            self.checkpoints.away(name)

    def died(self, worker: str) -> None:
        with self._saving():
            self._hanging.pop(worker, None)
            if steps := self.budget.release(worker):
                self.events.add("worker_died", steps=self.progress.steps, worker=worker, unreported=steps)
                self.log(f"{worker} died; {steps:,} steps that it had not reported are acted again")
            if lost := self.progress.replayed.died(worker):
                self.log(f"{worker} died, and with it {lost:,} steps that it kept to learn from again")
            self.progress.outcomes.died(worker)
            self.checkpoints.died(worker)

    def ended(self, worker: str) -> None:
        with self._saving():
            self._hanging.pop(worker, None)
            self._away.pop(worker, None)
            self.budget.release(worker)  # an actor that cannot reach its learner ends before it has acted all of it
            self.checkpoints.away(worker)

    def host(self, name: str, where: str | None) -> None:
        with self._lock:
            self.progress.hosts.update(name, where)
            self.writer.write_status()

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """Hold the lock, and then write the checkpoint that was completed meanwhile, if there is one."""
        with self._lock:
            yield
            complete = self.checkpoints.take()
        if complete is not None:
            try:
                self.checkpoints.write(complete)
            except BaseException:
                with self._lock:
                    self.checkpoints.failed()
                raise
            with self._lock:
                self.checkpoints.written(complete)

    def ask_for_checkpoint(self) -> threading.Event:
        """See `Checkpoints.ask`."""
        there = threading.Event()
        with self._lock:
            self.checkpoints.ask(there)
        return there

    def end(self) -> None:
        """See `Checkpoints.end`."""
        with self._lock:
            self.checkpoints.end()

    def keep(self) -> None:
        """Write a checkpoint of the states that were saved last."""
        with self._saving():
            self.checkpoints.keep()

    def keep_last(self) -> None:
        """Write a last checkpoint where `Checkpoints.keep_last` completes one."""
        with self._saving():
            self.checkpoints.keep_last()

    def stopping(self) -> bool:
        """Raises `EndWithout` in the main thread, which launchers wait in, where the run is asked to end and an
        environment hangs: its worker would not end."""
        if self.interrupted and self._hanging and threading.current_thread() is threading.main_thread():
            worker, silence = next(iter(self._hanging.items()))
            raise EndWithout(f"{worker}: {silence}", self._hanging)
        asked = self.interrupted is not None or self.solved or self.callbacks.ending
        return asked or self.out_of_time

    @property
    def solved(self) -> bool:
        """Whether a return that the run was to end at was reached."""
        return self.solved_steps is not None or self.eval_solved_steps is not None

    @property
    def out_of_time(self) -> bool:
        """Whether this session has taken the seconds that it was given."""
        now = self.now() if self._ended is None else self._ended
        return self.max_seconds is not None and now - self._began >= self.max_seconds

    def trained(self) -> None:
        """Training has ended, and its time with it."""
        self._ended = self.now()
