"""Callbacks: a user's code that watches a run from beside it, and may end it."""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from gossamer.config.names import load
from gossamer.envs.single import named, place
from gossamer.storage.checkpoint import Store
from gossamer.system.errors import UserError
from gossamer.task import Episode
from gossamer.training.progress import Progress

if TYPE_CHECKING:
    from gossamer.export.policy import TrainedPolicy

CAPACITY = 10_000  # reports and episodes that may wait for a callback
END_SECONDS = 30.0  # that `on_end` may take after a run that failed


class Callback:
    """Watches a run. Derive from it, override what is needed, and give it to `gossamer.train(callbacks=[...])` or
    `--callback module:Name`.

    The methods of a callback are called one at a time on a thread of its own, in the process that started the run, so
    training does not wait for them. While `CAPACITY` calls wait, more reports and episodes are left out. An error that
    a method raises ends the run."""

    def on_start(self, run: LiveRun) -> None:
        """Training begins or, in a resumed run, goes on."""

    def on_report(self, run: LiveRun, metrics: Mapping[str, Any]) -> None:
        """A row of `metrics.jsonl` was written: about every two seconds, and at the end."""

    def on_episode(self, run: LiveRun, episode: Episode) -> None:
        """An episode has ended."""

    def on_evaluation(self, run: LiveRun, evaluation: Mapping[str, Any]) -> None:
        """An evaluation of `--eval-every` has ended; `evaluation` is its line of `evaluations.jsonl`."""

    def on_checkpoint(self, run: LiveRun, path: Path) -> None:
        """A checkpoint was written. Later ones may replace it."""

    def on_end(self, run: LiveRun, result: Mapping[str, Any] | None) -> None:
        """The run has ended. `result`: the content of `result.json`; None if the run failed."""


Watching: TypeAlias = str | Callback | type[Callback]  # an instance, a class, or `module:Name`


class LiveRun:
    """A run that goes on, as its callbacks see it. Any thread may use it."""

    def __init__(
        self,
        directory: Path,
        options: Mapping[str, Any],
        *,
        progress: Progress,
        store: Store,
        checkpoint: Callable[[], threading.Event],
        stop: Callable[[str], None],
    ) -> None:
        """`checkpoint` asks for a checkpoint, `stop` for the run's end, and says why."""
        self.directory = directory
        self.options = options  # every choice and option by its name on the command line
        self._progress, self._store, self._checkpoint, self._stop = progress, store, checkpoint, stop

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return self._progress.steps

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last 100 episodes; None before the first, of several games before the first of each."""
        return self._progress.mean_return

    @property
    def metrics(self) -> dict[str, Any]:
        """What a row of `metrics.jsonl` would have now."""
        return self._progress.current()

    def record(self, name: str, value: float) -> None:
        """Add `own/NAME` to the rows from now on, with this value until another one is recorded."""
        self._progress.record(name, value)

    def policy(self, *, member: str | int = "average", greedy: bool = False) -> TrainedPolicy:
        """The newest parameters as a policy on the CPU, see `gossamer.load`. Has the run write a checkpoint, and waits
        for it. Raises `UserError` if the run ends before its first one."""
        from gossamer.export.load import load as policy_of

        self._checkpoint().wait()
        with self._store.holding("last") as newest:
            return policy_of(self.directory, checkpoint=newest.path.name, member=member, greedy=greedy, device="cpu")

    def stop(self, why: str = "") -> None:
        """End the run after a checkpoint. `why` is added to `ended` of `result.json`."""
        self._stop(why)


class Callbacks:
    """The callbacks of a run, each on a thread of its own."""

    def __init__(
        self, callbacks: Mapping[str, Callback] | None = None, log: Callable[[str], None] = lambda text: None
    ) -> None:
        """`callbacks`: by name. `log` is told of errors and of what is left out, by other threads."""
        self._beside = [_Beside(name, each, self._failed, log) for name, each in (callbacks or {}).items()]
        self._log, self._lock = log, threading.Lock()
        self.error = ""  # of the first callback that failed
        self.stopped = ""  # which callback ended the run, and why

    def start(self, run: Callable[[Callable[[str], None]], LiveRun]) -> None:
        """Start the threads. `run` makes what a callback sees of the run, from the function that ends it."""
        for each in self._beside:
            each.start(run(partial(self._stop, each.name)))

    @property
    def ending(self) -> bool:
        """Whether the run should end."""
        return bool(self.error or self.stopped)

    def report(self, row: Mapping[str, Any]) -> None:
        """See `Callback.on_report`."""
        for each in self._beside:
            each.offer("on_report", row)

    def episodes(self, episodes: Sequence[Episode]) -> None:
        """See `Callback.on_episode`."""
        for each in self._beside:
            for episode in episodes:
                each.offer("on_episode", episode)

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """See `Callback.on_evaluation`."""
        for each in self._beside:
            each.tell("on_evaluation", row)

    def checkpoint(self, path: Path) -> None:
        """See `Callback.on_checkpoint`."""
        for each in self._beside:
            each.tell("on_checkpoint", path)

    def end(self, result: Mapping[str, Any] | None) -> None:
        """Tell all that the run has ended, after all else that they are told."""
        for each in self._beside:
            each.tell("on_end", result)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until they have taken everything, for at most so many seconds each. Returns whether they have."""
        return all(each.ended.wait(seconds) for each in self._beside)

    @property
    def missed(self) -> dict[str, int]:
        """Reports and episodes that were left out, by callback; only of those that missed some."""
        return {each.name: each.missed for each in self._beside if each.missed}

    def _stop(self, name: str, why: str) -> None:
        with self._lock:
            self.stopped = self.stopped or f"ended by the callback {name}{f': {why}' if why else ''}"

    def _failed(self, name: str, method: str, error: BaseException) -> None:
        with self._lock:
            self.error = self.error or f"--callback {name}: {method} raised {named(error)}{place(error)}"
        with suppress(OSError):  # a full disk
            self._log("".join(traceback.format_exception(error)))


class _Beside:
    """One callback and its thread."""

    def __init__(
        self,
        name: str,
        callback: Callback,
        failed: Callable[[str, str, BaseException], None],
        log: Callable[[str], None],
    ) -> None:
        self.name, self.missed = name, 0
        self.ended = threading.Event()  # set while no thread runs; in place of `Thread.join`: see `JoinableThread`
        self.ended.set()
        self._callback, self._failed, self._log = callback, failed, log
        self._waiting = SimpleQueue[tuple[str, Any]]()  # (method, argument)

    def start(self, run: LiveRun) -> None:
        self.ended.clear()
        threading.Thread(target=self._serve, args=(run,), name=f"callback {self.name}", daemon=True).start()

    def tell(self, method: str, what: Any) -> None:
        """Have a method called."""
        if not self.ended.is_set():
            self._waiting.put((method, what))

    def offer(self, method: str, what: Any) -> None:
        """The same, unless too many calls wait."""
        if self._waiting.qsize() < CAPACITY:
            self.tell(method, what)
            return
        self.missed += 1
        if self.missed == 1:
            self._log(f"callback {self.name} is too slow: reports and episodes are left out")

    def _serve(self, run: LiveRun) -> None:
        method = "on_start"
        try:
            self._callback.on_start(run)
            while method != "on_end":
                method, what = self._waiting.get()
                getattr(self._callback, method)(run, what)
        except (Exception, SystemExit) as error:
            self._failed(self.name, method, error)
        finally:
            self.ended.set()


def by_names(names: str | None) -> dict[str, Callback]:
    """`chosen`, of names with commas between them."""
    return chosen([name.strip() for name in names.split(",")]) if names else {}


def chosen(given: Watching | Sequence[Watching]) -> dict[str, Callback]:
    """The callbacks that were given, by their names; of a class, an instance. Raises `UserError` for what is none."""
    found, counts = dict[str, Callback](), Counter[str]()
    for each in [given] if isinstance(given, str | Callback | type) else given:
        if isinstance(each, str):
            if ":" not in each:
                raise UserError(f"--callback {each}: must be module:Name")
            name, made = each, load("--callback", each, {})
        else:
            name, made = (each if isinstance(each, type) else type(each)).__name__, each
        if isinstance(made, type) and issubclass(made, Callback):
            try:
                made = made()
            except Exception as error:
                raise UserError(f"--callback {name}: making it raised {named(error)}{place(error)}") from error
        if not isinstance(made, Callback):
            raise UserError(f"--callback {name}: must be a class that derives from gossamer.Callback, or an instance")
        counts[name] += 1
        found[name if counts[name] == 1 else f"{name} {counts[name]}"] = made
    return found
