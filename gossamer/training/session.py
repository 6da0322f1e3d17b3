"""One session of a training run: from its start or a checkpoint until it ends, and what it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gossamer.config.build import device, gpus, groups_of_learners
from gossamer.config.config import Config, Control
from gossamer.config.file import flat
from gossamer.config.games import unscaled
from gossamer.config.names import ALGORITHMS, name_of
from gossamer.data import Tree
from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.envs.interface import Interface
from gossamer.evaluation.aggregate import aggregate
from gossamer.evaluation.members import equal
from gossamer.page.server import serving
from gossamer.program import Program
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS, EARLIER, GOSSIP, HOSTS, LOG, PICTURE, RESULT
from gossamer.storage.directory import logger, title
from gossamer.storage.events import EventLog, earlier
from gossamer.storage.files import write_json
from gossamer.storage.lock import RunLock
from gossamer.system.errors import EnvironmentFailed, UserError
from gossamer.system.installation import commit
from gossamer.system.kwargs import titled
from gossamer.system.paths import shown
from gossamer.system.usage import Usage, descendants, environments, open_gpu
from gossamer.system.version import __version__
from gossamer.training.callbacks import END_SECONDS, Callback, Callbacks, LiveRun
from gossamer.training.checkpoints import Checkpoints
from gossamer.training.display import ProgressDisplay, evaluation
from gossamer.training.early_end import ended_early
from gossamer.training.evaluator import evaluator
from gossamer.training.hosts import Hosts
from gossamer.training.launcher_log import launcher_log
from gossamer.training.observer import RunObserver
from gossamer.training.place import Launcher
from gossamer.training.progress import Progress
from gossamer.training.rates import rates
from gossamer.training.recorder import Recorder
from gossamer.training.result import judged, result, why_ended
from gossamer.training.signals import Abandoned, Signals, naming
from gossamer.training.sinks.base import RunEnding, run_info
from gossamer.training.sinks.choice import Sinks
from gossamer.training.states import initial, restored, unlearned


@dataclass(frozen=True)
class Run:
    """A finished run. It stands for its directory, as in `gossamer.evaluate(run)`."""

    directory: Path
    result: dict[str, Any]

    def __fspath__(self) -> str:
        return str(self.directory)

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last 100 training episodes; None if no episode, or not one of each game, has ended."""
        mean: float | None = self.result["mean_return"]
        return mean


class Session:
    """One session of a run: it puts together the run's files, progress, checkpoints, evaluations and sinks, trains, and
    writes the result."""

    def __init__(
        self,
        config: Config,
        control: Control,
        wired: Program,
        lock: RunLock,
        interface: Interface,
        saved: Tree | None = None,
        callbacks: Mapping[str, Callback] | None = None,
    ) -> None:
        """`saved`: the content of the checkpoint that the session goes on from, None at the start of a run.
        `callbacks`: by name."""
        self.config, self.control, self.wired, self.directory = config, control, wired, lock.directory
        self.log = logger(self.directory / LOG)
        members = wired.saved_workers
        host_of = {copy.name: copy.node.host for copy in wired.crew}
        hosts = Hosts(host_of, members, file=self.directory / HOSTS, log=self.log)
        progress = Progress(
            config.run.steps,
            interface.frames_per_step,
            groups=groups_of_learners(wired),
            hosts=hosts,
            games=len(interface.games),
        )
        if saved:
            progress.load_state_dict(saved["progress"])
            own, rollouts = unlearned(saved, members)
            progress.outcomes.found(own, rollouts)
            if lost := progress.give_back(sum(own.values()) + sum(rollout.steps for rollout in rollouts)):
                self.log(f"{lost:,} steps that were in the queue, or acted since the checkpoint, are acted again")
        self.progress, self.done = progress, progress.steps
        self.events = earlier(self.directory) if saved else EventLog()
        self.consensus = _consensus(progress, self.directory, self.done) if len(members) > 1 else None
        states = restored(saved, config, members, self.log) if saved else initial(config, members)
        self.sinks = Sinks(config.run.log, self._sink_failed)
        self.callbacks = Callbacks(callbacks, self.log)
        self.recorder = Recorder(self.directory, self.sinks, self.callbacks, keep_until=self.done if saved else None)
        if self.recorder.kept is not None:
            progress.recount(self.recorder.kept, self.recorder.dropped)
        store = Store(self.directory / CHECKPOINTS, config.run.keep, lock.check)
        self.evaluator = evaluator(config, self.directory, store, progress, self._evaluation_failed)
        self.checkpoints = Checkpoints(
            store,
            progress,
            self.recorder,
            self.log,
            members,
            wired.saved_services,
            states,
            seconds=config.run.checkpoint_every,
            consensus=self.consensus,
            evaluator=self.evaluator,
            together=saved is not None and control.cluster is None,  # as all are after a checkpoint
        )
        usage, why_no_gpu = _usage(config.run.device, control.cluster, wired)
        self.observer = RunObserver(
            progress,
            self.recorder,
            self.checkpoints,
            ProgressDisplay(progress, _headline(config)),
            self.log,
            self.events,
            control.stop_at_return,
            control.stop_at_eval,
            control.max_seconds,
            self.consensus,
            self.evaluator,
            self.callbacks,
            usage=usage,
        )
        if why_no_gpu:
            self.observer.note(why_no_gpu)
        self.began = "resumed" if saved else "started"
        self._notes = tuple(interface.notes)

    def run(self, launch: Launcher) -> Run:
        """Train until the end. Raises what the program raised, after a checkpoint of what had been learned."""
        try:
            with serving(self.directory, self.control.page, self.observer.display.note):
                return self._run(launch)
        except Exception:
            self.observer.end()
            self.callbacks.end(None)
            self.callbacks.wait(END_SECONDS)
            raise
        finally:
            self.evaluator.stop()
            self.recorder.close("failed")  # where it was not closed as planned

    def _run(self, launch: Launcher) -> Run:
        what = {name: value for name, value in asdict(self.control).items() if value is not None}
        source = commit()
        version = f"{__version__} (commit {source})" if source else __version__
        self.log(f"{self.began} at step {self.done} with gossamer {version}" + (f"; {what}" if what else ""))
        if self.began == "resumed":
            self.observer.note(rates(self.config, self.done))
        if told := unscaled(self.config):
            self.observer.note(told)
        for told in self._notes:
            self.observer.note(told)
        info = run_info(self.directory, self.config)
        self.sinks.start(info)
        self.evaluator.take_up()
        self.callbacks.start(partial(self._live, info.options))
        signals = Signals(self._end)
        with signals.handled(), naming(self.checkpoints.store.last, lambda: self.observer.interrupted):
            self._set_result_aside()
            self._train(launch)
            outcome = self._finish(signals)
        losses = self.progress.outcomes.told()
        self.log(f"ended at step {self.progress.steps}: {outcome['ended']}" + (f"; {losses}" if losses else ""))
        return Run(self.directory, outcome)

    def _set_result_aside(self) -> None:
        """Rename the result of the session before: a run that fails or is killed from now on has not ended."""
        if self.done < self.config.run.steps:
            with suppress(FileNotFoundError):
                (self.directory / RESULT).replace(self.directory / EARLIER)

    def _train(self, launch: Launcher) -> None:
        observer = self.observer
        try:
            with observer.display, launcher_log(observer.note):
                with observer.status_kept():
                    launch(self.wired, observer)
                observer.trained()
                if observer.interrupted:
                    self.evaluator.stop()
                if self.consensus is not None:
                    self.consensus.close()
                observer.writer.write_row()  # before the checkpoint: a resumed run continues at a later second
            observer.keep()
            self._check_callbacks()
        except BaseException as error:
            what = str(error)
            self._failed(error)
            if observer.interrupted and isinstance(error, EnvironmentFailed):  # its own processes get the signal, too
                raise KeyboardInterrupt(f"ended by {observer.interrupted}; meanwhile: {what}") from error
            raise

    def _live(self, options: Mapping[str, Any], stop: Callable[[str], None]) -> LiveRun:
        return LiveRun(
            self.directory,
            options,
            progress=self.progress,
            store=self.checkpoints.store,
            checkpoint=self.observer.ask_for_checkpoint,
            stop=stop,
        )

    def _check_callbacks(self) -> None:
        """Raise `UserError` if a callback has failed."""
        if error := self.callbacks.error:
            raise UserError(f"{error}; traceback in {shown(self.directory / LOG)}; {self.checkpoints.store.last()}")

    def _end_callbacks(self, signals: Signals, content: Mapping[str, Any]) -> None:
        """Tell callbacks that the run has ended, and wait until they have taken everything; a signal ends the wait."""
        self.observer.end()
        self.callbacks.end(content)
        try:
            with signals.may_be_left_out():
                if not self.callbacks.wait(1.0):
                    self.observer.note("training is done and saved; waiting for callbacks (Ctrl-C leaves them out)")
                self.callbacks.wait(END_SECONDS if self.observer.interrupted else None)
        except Abandoned:
            self.observer.note("callbacks were left out: a signal came while they were behind")
        self._check_callbacks()

    def _failed(self, error: BaseException) -> None:
        """Keep what the members had learned, and say in the log what went wrong."""
        if self.consensus is not None:
            self.consensus.abandon()
        with suppress(OSError):  # the disk may be full, the directory gone: the first error is what is told
            self.log(f"ended at step {self.progress.steps}: {type(error).__name__}: {error}")
        ended_early(error, self.observer, self.directory)

    def _end(self, name: str) -> None:
        """A signal asks the run to end."""
        self.observer.interrupted = name
        self.events.add("signal", steps=self.progress.steps, name=name)
        self.observer.display.note(f"{name}: saving a checkpoint, then ending (Ctrl-C again: at once)")

    def _sink_failed(self, name: str, why: str) -> None:
        self.events.add("log_failed", steps=self.progress.steps, sink=name, error=why)
        self.observer.note(f"--log {name}: {why}; training goes on, metrics may be missing there")

    def _evaluation_failed(self, why: str) -> None:
        self.events.add("evaluation_failed", steps=self.progress.steps, error=why)
        self.observer.note(f"{why}; training goes on")

    def _await_evaluation(self, signals: Signals, seconds: float) -> None:
        """Wait for the evaluations that are due after so many seconds of training; a signal ends them."""
        if not self.evaluator.running and not self.evaluator.due(self.progress.steps):
            self.observer.writer.record_evaluations()  # one may have ended since the last row
            return
        left = self.evaluator.left + self.evaluator.wanted(self.progress.steps)
        what = "the evaluation (Ctrl-C leaves it out)" if left == 1 else f"{left} evaluations (Ctrl-C leaves them out)"
        try:
            with signals.may_be_left_out():
                self.observer.note(f"training is done and saved; waiting for {what}")
                self.evaluator.finish(self.checkpoints.store.get("last"), seconds)
            self.checkpoints.store.prune()
        except Abandoned:
            self.observer.note("the last evaluation was left out: a signal came during it")
            self.evaluator.left_out = True
            self.evaluator.stop()
        if self.observer.writer.record_evaluations():
            self.observer.display.note(f"evaluated {evaluation(self.progress)}")

    def _outcome(self) -> RunEnding:
        _, short = why_ended(self.observer)
        return "failed" if short else "interrupted" if self.observer.interrupted else "finished"

    def _finish(self, signals: Signals) -> dict[str, Any]:
        """`result.json`, and of members that differ the picture of how far they were apart, and what they play
        together."""
        self.progress.hosts.close()
        content = result(self.config, self.progress, self.observer, self.consensus, done=self.done)
        content |= {**self.events.to_dict(), "hosts": self.progress.hosts.info}
        write_json(self.directory / RESULT, content)
        (self.directory / EARLIER).unlink(missing_ok=True)
        self._await_evaluation(signals, content["seconds"])
        content |= judged(self.observer)  # the last evaluation may have reached the return asked for
        failures = self.recorder.close(self._outcome())
        evaluations = self.evaluator.to_dict() if self.config.run.eval_every else None
        content |= {"evaluations": evaluations, "log_failures": failures, "callbacks_missed": self.callbacks.missed}
        content |= self.events.to_dict()
        write_json(self.directory / RESULT, content)
        if (self.directory / GOSSIP).exists():
            from gossamer.diagnostics.plots import draw  # matplotlib takes a second

            draw(json.loads((self.directory / GOSSIP).read_text()), self.directory / PICTURE)
        if len(self.observer.members) > 1 and not equal(self.checkpoints.store.get("last").load()["workers"]):
            content |= self._aggregated(signals)
            write_json(self.directory / RESULT, content)
        self._end_callbacks(signals, content)
        return content

    def _aggregated(self, signals: Signals) -> dict[str, Any]:
        """The results of the members together; without whole games if a signal asks the run to end, even in them."""
        last, returns = self.checkpoints.store.get("last"), self.progress.member_returns
        if self.observer.interrupted is None:
            try:
                with signals.may_be_left_out():
                    return aggregate(self.config, last, returns, games=True, note=self.observer.note)
            except Abandoned:
                self.observer.note("the final games were left out: a signal came during them")
            except EnvironmentFailed as error:
                where = f"training is done and saved in {shown(self.directory)}"
                error.advice = f"{where}; this was in the games that its members play"
                raise
        return aggregate(self.config, last, returns, games=False, note=self.observer.note)


def _headline(config: Config) -> str:
    """The line above the progress of a run."""
    algorithm = name_of(type(config.algorithm), ALGORITHMS)
    architecture = title(config).removesuffix(f"-{config.env.name}")
    env = titled(config.env.name, flat(config).get("env_kwargs"))
    return f"gossamer {architecture} · {algorithm} · {env} · seed {config.run.seed}"


def _usage(name: str, cluster: str | None, wired: Program) -> tuple[Usage | None, str]:
    """What measures the use of this machine, and why that leaves out a GPU; None where workers are elsewhere. `name`:
    of the device."""
    if cluster not in (None, "local"):
        return None, ""
    gpu, why = open_gpu(device(name))
    return Usage(gpu, environments if cluster is None else descendants, alone=gpus(wired, cluster) <= 1), why


def _consensus(progress: Progress, directory: Path, done: int) -> ConsensusMonitor:
    """The monitor of how far members are apart. It goes on from `gossip.json` where the run does; raises `UserError` if
    that is damaged."""
    consensus = ConsensusMonitor(when=lambda: (progress.steps, progress.elapsed))
    file = directory / GOSSIP
    if file.exists():
        try:
            consensus.load(json.loads(file.read_text()), done)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{file}: truncated or altered ({error}); restore or remove it") from error
    return consensus
