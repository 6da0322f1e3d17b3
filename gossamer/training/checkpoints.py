"""The checkpoints of a run: when one is taken, which states are in it, and how workers wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gossamer.data import Tree
from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.runtime import Answer, Stage
from gossamer.storage.checkpoint import Store
from gossamer.training.barrier import PATIENCE_SECONDS, Barrier, Phase
from gossamer.training.evaluator import Evaluator
from gossamer.training.progress import Progress
from gossamer.training.recorder import Recorder
from gossamer.training.states import is_whole

CHECKPOINT_SECONDS = 60.0  # between two checkpoints


@dataclass(frozen=True)
class Unwritten:
    """A checkpoint that is complete, and not on disk yet. Its states are not modified any more."""

    tree: Tree
    steps: int
    score: float | None  # mean return
    seconds: float  # of training
    gossip: dict[str, Any]  # content of `gossip.json`; empty: none


@dataclass
class Checkpoints:
    """Keeps checkpoints of the state of every saved worker and service. A worker that has ended keeps the last state it
    gave; so does one that cannot be reached.

    The caller locks. Only `write`, which takes long, is called without its lock, with what `take` returned under it."""

    store: Store
    progress: Progress
    recorder: Recorder
    log: Callable[[str], None]
    members: frozenset[str] = frozenset()  # the workers whose states make a checkpoint
    services: frozenset[str] = frozenset()  # the services whose states are part of it
    saved: dict[str, Tree] = field(default_factory=dict)  # worker or service -> the state that it starts from
    seconds: float = CHECKPOINT_SECONDS  # between two checkpoints
    steps: int | None = None  # a checkpoint each time so many steps have been acted, besides
    consensus: ConsensusMonitor | None = None  # of members that gossip; `gossip.json` is written with each checkpoint
    evaluator: Evaluator | None = None  # asks for checkpoints besides, and plays with them
    together: bool = False  # whether all members wait for each other before their first steps (for exact simulations)
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._barrier = Barrier(self.members, self.services, self.now)
        if self.together:
            self._barrier.begin(save=False)
        self._kept, self._kept_steps = self.now(), self.progress.steps
        self._states: dict[str, Tree] = {}
        self._fresh: set[str] = set()  # members that have reported nothing since they saved a state
        self._asked, self._ended = list[threading.Event](), False
        self._answered_next = list[threading.Event]()  # those that asked before the checkpoint that is written now
        self._complete: Unwritten | None = None
        self._unwritten = 0  # checkpoints that are complete, and not on disk yet
        self._writing = threading.Lock()  # one at a time: the end of a run may come while one is written

    def restored(self, name: str) -> Any | None:
        """The newest state of a worker or service; None if it has none."""
        return self._states.get(name, self.saved.get(name))

    def claim(self, worker: str, *, idle: bool) -> Answer | None:
        """The answer to a worker's claim while a checkpoint is taken; None where the claim may be granted."""
        if worker not in self.members:
            return None
        if self._is_time():
            self._barrier.begin()
        answer = self._barrier.claim(worker, idle)
        if answer is not None:
            self._advance()
        return answer

    def _is_time(self) -> bool:
        """Whether it is time to begin a checkpoint."""
        if self._barrier.phase is not Phase.OPEN or self._unwritten:
            return False
        acted = self.progress.steps - self._kept_steps
        if not acted:
            return False
        evaluated = self.evaluator is not None and self.evaluator.due(self.progress.steps)
        by_steps = self.steps is not None and acted >= self.steps
        return by_steps or evaluated or bool(self._asked) or self.now() - self._kept >= self.seconds

    def ask(self, there: threading.Event) -> None:
        """Have a checkpoint written soon, beside those that are due. `there` is set once the newest parameters are on
        disk, or the run has ended without."""
        newest = self.progress.steps == self._kept_steps and not self._unwritten and self.store.all()
        if newest or self._ended:
            there.set()
        else:
            self._asked.append(there)

    def end(self) -> None:
        """No checkpoint will be written any more."""
        self._ended = True
        self._answer(self._answered_next)
        self._answer(self._asked)

    def _answer(self, asked: list[threading.Event]) -> None:
        for there in asked:
            there.set()
        asked.clear()

    def acted(self, worker: str, steps: int) -> None:
        """A worker has acted so many steps more: its saved state is older than that."""
        self._fresh.discard(worker)
        self._barrier.acted(worker, steps)

    def save(self, name: str, state: Any) -> None:
        """Take the state of a worker or service."""
        self._states[name] = state
        self._fresh.add(name)
        self._barrier.saved(name)
        self._advance()

    def due(self, service: str) -> Stage | None:
        """The stage of a checkpoint that a service must carry out now, or None."""
        stage = self._barrier.due(service)
        self._advance()
        return stage

    def settled(self, service: str) -> None:
        """No message to this service is in transit any more."""
        self._barrier.settled(service)
        self._advance()

    def away(self, name: str) -> None:
        """A worker has ended or is unreachable, or a service is unreachable."""
        self._barrier.away(name)
        self._advance()

    def died(self, worker: str) -> None:
        """The worker's process is gone."""
        self._barrier.died(worker)
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

    def keep(self) -> None:
        """Complete a checkpoint of the states that were saved last."""
        before = {name: state for name, state in self.saved.items() if name in self.services or is_whole(state)}
        states = {**before, **self._states}
        tree = {
            "workers": {name: state for name, state in states.items() if name in self.members},
            "services": {name: state for name, state in states.items() if name in self.services},
            "progress": self.progress.state_dict(),
        }
        self.recorder.flush()  # a run that is killed now has the episodes that the checkpoint counts
        p, gossip = self.progress, self.consensus.to_dict() if self.consensus is not None else {}
        self._complete = Unwritten(tree, p.steps, p.mean_return, p.elapsed, gossip)
        self._answered_next += self._asked
        self._asked.clear()
        self._unwritten += 1
        self._kept, self._kept_steps = self.now(), p.steps

    def take(self) -> Unwritten | None:
        """The checkpoint that has been completed since the last call, for `write`."""
        complete, self._complete = self._complete, None
        return complete

    def write(self, checkpoint: Unwritten) -> None:
        """Write a checkpoint. Workers go on meanwhile."""
        with self._writing:
            self.store.save(checkpoint.tree, steps=checkpoint.steps, score=checkpoint.score)
            if checkpoint.gossip:
                self.recorder.write_gossip(checkpoint.gossip)

    def failed(self) -> None:
        """The checkpoint could not be written: another one may begin."""
        self._unwritten -= 1

    def written(self, checkpoint: Unwritten) -> None:
        """The checkpoint is on disk: it may be evaluated, and another one may begin."""
        self._unwritten -= 1
        self._answer(self._answered_next)
        self.recorder.checkpointed(self.store.get("last").path)
        if self.evaluator is not None:
            self.evaluator.offer(self.store.get("last"), checkpoint.seconds)

    def keep_last(self) -> None:
        """Complete a checkpoint at an end that was not planned, if there is something to keep and all members' states
        are as new as their reports."""
        if self.progress.steps and self.members <= self._fresh:
            self.keep()
