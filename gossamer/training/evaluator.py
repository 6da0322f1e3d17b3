"""Evaluates checkpoints while a run trains (`--eval-every`): one at a time, each in a process of its own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from gossamer.config.build import environment
from gossamer.config.config import Config
from gossamer.envs.atari import Atari
from gossamer.envs.games import rules_of
from gossamer.storage.checkpoint import Checkpoint, Store
from gossamer.storage.contents import EVALUATIONS
from gossamer.system.errors import UserError
from gossamer.system.processes import module_path, python
from gossamer.training.progress import Progress

Row: TypeAlias = dict[str, Any]  # a line of `evaluations.jsonl`
KEPT = (
    "steps", "protocol", "episodes", "mean_return", "std_return", "returns", "greedy", "member", "cut_off", "max_steps",
    "checkpoint", "epsilon", "metrics", "games",
)  # fmt: skip
ONE_THREAD = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}  # cores and GPUs are for training


def check_protocol(config: Config) -> None:
    """Raise `UserError` for a protocol of evaluations in an environment that has none."""
    protocol = config.run.eval_protocol
    if protocol is not None and not isinstance(rules_of(environment(config)), Atari):
        raise UserError(f"--eval-protocol {protocol}: {config.env.name} is not an Atari game; leave it out")


def evaluator(
    config: Config, directory: Path, store: Store, progress: Progress, failed: Callable[[str], None]
) -> Evaluator:
    """The evaluator of a run. `failed` is called with the error of an evaluation, by another thread."""
    given = {"run_dir": str(directory), "episodes": config.run.eval_episodes, "protocol": config.run.eval_protocol}
    words = python("gossamer.evaluation.background")
    rows = earlier(directory / EVALUATIONS)
    made = Evaluator(
        lambda checkpoint: [*words, json.dumps({**given, "checkpoint": checkpoint.path.name})],
        store,
        every=config.run.eval_every,
        exact=config.run.eval_exact,
        done=rows[-1]["steps"] if rows else 0,  # one that was lost with its process is made up for
        failed=failed,
    )
    made.rows = rows
    progress.evaluation = rows[-1] if rows else None
    return made


def earlier(file: Path) -> list[Row]:
    """The evaluations of the sessions before a resume."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _seconds(checkpoint: Checkpoint) -> float:
    """Of training, when it was written; 0 for a damaged one, whose evaluation will fail."""
    try:
        return float(checkpoint.load()["progress"]["elapsed"])
    except UserError:
        return 0.0


def _without_returns(row: Row) -> Row:
    """A row without the return of each of its games."""
    kept = {name: value for name, value in row.items() if name != "returns"}
    if "games" in row:
        kept["games"] = {game: _without_returns(found) for game, found in row["games"].items()}
    return kept


class Evaluator:
    """Plays with a checkpoint whenever the run has passed a multiple of `every` steps and no evaluation is running, or
    with `exact` at each multiple: checkpoints then wait for their turn. Failures are told and counted. The caller takes
    the results."""

    def __init__(
        self,
        command: Callable[[Checkpoint], Sequence[str]],
        store: Store,
        *,
        every: int,
        done: int,
        exact: bool = False,
        failed: Callable[[str], None],
    ) -> None:
        """`command`: the words of a process that prints an `Evaluation` as JSON. `every`: 0 for never. `done`: steps
        of the last evaluation. `failed` is called with the error of an evaluation, by another thread."""
        self.rows, self.failures = list[Row](), 0
        self.left_out = False  # whether the last one is missing, as a signal came during it
        self._command, self._store, self._every, self._told = command, store, every, failed
        self._next = _multiple_after(done, every) if every else math.inf
        self._exact = exact
        self._waiting = deque[tuple[Checkpoint, float]]()  # checkpoints, and seconds of training
        self._finished = SimpleQueue[Row]()
        self._thread: threading.Thread | None = None
        self._busy = False  # whether the thread takes what waits
        self._process: subprocess.Popen[str] | None = None
        self._lock, self._ended = threading.Lock(), False

    def due(self, steps: int) -> bool:
        """Whether a checkpoint at this step would be evaluated."""
        return self.wanted(steps) and (self._exact or not self.running)

    def wanted(self, steps: int) -> bool:
        """Whether `finish` would evaluate a last checkpoint at this step."""
        return steps >= self._next and not self._ended

    @property
    def running(self) -> bool:
        """Whether an evaluation is running."""
        return self._busy

    @property
    def left(self) -> int:
        """Evaluations that are running or wait."""
        return len(self._waiting) + self._busy

    def offer(self, checkpoint: Checkpoint, seconds: float) -> None:
        """Have this checkpoint evaluated, of so many `seconds` of training, if it is due. The store keeps it
        meanwhile."""
        if not self.due(checkpoint.steps):
            return
        self._next = _multiple_after(checkpoint.steps, self._every)
        self._store.hold(checkpoint.path.name)
        with self._lock:
            self._waiting.append((checkpoint, seconds))
            if self._busy:
                return
            self._busy = True
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def take_up(self) -> None:
        """Have checkpoints evaluated that an interrupted session had no time for."""
        for checkpoint in self._store.all() if self._exact else ():
            if self.due(checkpoint.steps):
                self.offer(checkpoint, _seconds(checkpoint))

    def take(self) -> list[Row]:
        """The results since the last call."""
        rows = list[Row]()
        while True:
            try:
                rows.append(self._finished.get_nowait())
            except Empty:
                self.rows += rows
                return rows

    def finish(self, last: Checkpoint, seconds: float) -> None:
        """Wait for the evaluations that are running or wait, and for that of the last checkpoint if it is due."""
        for _ in range(2):
            if self._thread is not None:
                self._thread.join()
            self.offer(last, seconds)

    def stop(self) -> None:
        """End the evaluation that is running, and start no more. The store keeps the checkpoints of those that have not
        ended: a resumed run plays them."""
        with self._lock:
            self._ended = True
            if self._process is not None:
                self._process.kill()
        if self._thread is not None:
            self._thread.join()

    def to_dict(self) -> dict[str, Any]:
        """For `result.json`: the last evaluation, the best one, how many failed, and whether the last was left out."""
        rows = [_without_returns(row) for row in self.rows]
        best = max(rows, key=lambda row: float(row["mean_return"]), default=None)
        last = rows[-1] if rows else None
        return {"last": last, "best": best, "failures": self.failures, "left_out": self.left_out}

    def _work(self) -> None:
        """Evaluate what waits, until nothing does."""
        while True:
            with self._lock:
                if not self._waiting or self._ended:
                    self._busy = False
                    return
                checkpoint, seconds = self._waiting.popleft()
            self._evaluate(checkpoint, seconds)
            if not self._ended:
                self._store.release(checkpoint)

    def _evaluate(self, checkpoint: Checkpoint, seconds: float) -> None:
        try:
            result = self._play(checkpoint)
            row = {name: result[name] for name in KEPT if name in result}
            self._finished.put({"seconds": round(seconds, 3), **row})
        except Exception as error:  # whatever fails here, training goes on
            if not self._ended:
                self.failures += 1
                self._told(f"evaluation at step {checkpoint.steps:,} failed: {error}")

    def _play(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """The result of the process. Raises `RuntimeError` with the last line of its errors."""
        reader, writer = os.pipe()  # closes if this process ends, however it does; then the other one ends, too
        try:
            process = self._start(self._command(checkpoint), reader)
            out, err = process.communicate()
        finally:
            os.close(reader)
            os.close(writer)
        if process.returncode:
            lines = err.strip().splitlines() or [f"exit code {process.returncode}"]
            raise RuntimeError(lines[-1])
        result: dict[str, Any] = json.loads(out.splitlines()[-1])
        return result

    def _start(self, command: Sequence[str], stdin: int) -> subprocess.Popen[str]:
        with self._lock:
            if self._ended:
                raise RuntimeError("the run has ended")
            self._process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **ONE_THREAD, **module_path()},
                process_group=0,  # Ctrl-C is not for it; in a session of its own its priority would count for nothing
            )
            return self._process


def _multiple_after(steps: int, every: int) -> int:
    return (steps // every + 1) * every
