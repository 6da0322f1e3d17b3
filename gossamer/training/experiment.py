"""A training run: what surrounds a program while it learns. What it leaves is listed in `directory`."""

from __future__ import annotations

import json
import math
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.config.settings import Settings, resolve
from gossamer.config.wiring import environment, program, task
from gossamer.data import Tree
from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.errors import UserError
from gossamer.evaluation.aggregate import aggregate
from gossamer.launch.threads import threads
from gossamer.learner import build
from gossamer.machine import keep_freed_memory, machine, single_threaded
from gossamer.program import Program
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS, CONFIG, GOSSIP, LOG, PICTURE, RESULT
from gossamer.storage.directory import config, load_settings, logger, prepared
from gossamer.storage.events import EventLog, earlier
from gossamer.storage.files import write_json
from gossamer.storage.lock import RunLock, held
from gossamer.task import Task
from gossamer.training.display import ProgressDisplay
from gossamer.training.metrics import Progress, Recorder
from gossamer.training.observer import RunObserver, launcher_log
from gossamer.training.signals import Abandoned, Signals, naming
from gossamer.version import __version__

if TYPE_CHECKING:
    from gossamer.training.cluster import Launcher

PROTOCOL = "training: mean of the last 100 training episodes, sampled actions, whole games, unclipped scores"


@dataclass(frozen=True)
class Run:
    """A finished run."""

    directory: Path
    result: dict[str, Any]


def train(
    architecture: str,
    *,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    keep: int = 3,
    stop_at_return: float | None = None,
    cluster: str | None = None,
    **given: Any,
) -> Run:
    """Train from the start. `given` are fields of `Settings`; what is left open comes from a preset.

    `cluster`: None runs in this process; else on Ray: `local` on processes of this machine, or a cluster's address.
    Raises `UserError` for a value that cannot be used, `NonFiniteLoss` when a loss is NaN (the last good checkpoint
    stays), `OSError` on a full disk, `KeyboardInterrupt` on a second Ctrl-C."""
    settings = resolve({"architecture": architecture, **{k: v for k, v in given.items() if v is not None}})
    _check(keep, stop_at_return)
    wired, frames = program(settings), probe(settings)  # what is wrong shows before anything is written
    with _launcher(cluster, wired) as launch, prepared(settings, run_dir, overwrite) as lock:
        return _run(settings, wired, lock, frames, launch, keep=keep, stop_at_return=stop_at_return)


def resume(
    run_dir: str | Path,
    *,
    steps: int | None = None,
    keep: int = 3,
    stop_at_return: float | None = None,
    cluster: str | None = None,
) -> Run:
    """Go on from the last checkpoint of a run, to `steps` in all (default: what it was started with)."""
    load_settings(Path(run_dir))  # before the lock: this may be no run at all
    with held(Path(run_dir)) as lock:
        return _resume(lock, steps=steps, keep=keep, stop_at_return=stop_at_return, cluster=cluster)


def _resume(lock: RunLock, *, steps: int | None, keep: int, stop_at_return: float | None, cluster: str | None) -> Run:
    directory = lock.directory
    settings = load_settings(directory)
    checkpoint = Store(directory / CHECKPOINTS).get("last")
    if steps is not None and steps <= checkpoint.steps:
        raise UserError(f"--steps {steps}: the run has done {checkpoint.steps} already; give the total to go on to")
    settings = replace(settings, steps=steps or settings.steps)
    _check(keep, stop_at_return)
    saved = checkpoint.load()
    before = (saved, checkpoint.steps)
    wired, frames = program(settings), probe(settings)
    with _launcher(cluster, wired) as launch:
        write_json(directory / CONFIG, config(settings))
        return _run(settings, wired, lock, frames, launch, keep=keep, stop_at_return=stop_at_return, before=before)


def _launcher(cluster: str | None, wired: Program) -> AbstractContextManager[Launcher]:
    if cluster is None:
        return nullcontext(threads)
    from gossamer.training.cluster import on_cluster  # only where it is asked for

    return on_cluster(cluster, wired)


def _run(
    settings: Settings,
    wired: Program,
    lock: RunLock,
    frames_per_step: int,
    launch: Launcher,
    *,
    keep: int,
    stop_at_return: float | None,
    before: tuple[Tree, int] | None = None,
) -> Run:
    """`before`: the checkpoint that is gone on from, and its steps."""
    directory = lock.directory
    saved, done = before or ({}, 0)
    keep_freed_memory()
    progress = Progress(settings.steps, frames_per_step)
    if saved:
        progress.load_state_dict(saved["progress"])
    title = f"gossamer {settings.architecture} · {settings.algorithm} · {settings.env} · seed {settings.seed}"
    log = logger(directory / LOG)
    members = learning(wired)
    consensus = _consensus(settings, progress, directory, done) if len(members) > 1 else None
    settings_text = (directory / CONFIG).read_text()
    recorder = Recorder(directory, keep_until=done if saved else None, settings=settings_text)
    observer = RunObserver(
        progress,
        recorder,
        Store(directory / CHECKPOINTS, keep, lock.check),
        ProgressDisplay(progress, title),
        log,
        members,
        saved.get("workers", {}),
        stop_at_return,
        consensus=consensus,
        kept=lambda: _write_gossip(consensus, directory),
    )
    log(f"{'resumed' if saved else 'started'} at step {done} with gossamer {__version__}")
    events = earlier(directory / RESULT) if saved else EventLog()

    def end(name: str) -> None:
        observer.interrupted = name
        events.add("signal", steps=progress.steps, name=name)
        observer.display.note(
            f"{name}: saving a checkpoint, then ending (a second Ctrl-C, a second later, ends at once)"
        )

    signals = Signals(end)
    with signals.handled(), naming(observer.store.last):
        try:
            with observer.display, launcher_log(observer):
                launch(wired, observer)
            if consensus is not None:
                consensus.close()
            observer.keep()
            observer.write()
        except BaseException as error:
            if consensus is not None:
                consensus.abandon()
            with suppress(OSError):  # the disk may be full, the directory gone: the error is what is told
                log(f"ended at step {progress.steps}: {type(error).__name__}: {error}")
            raise
        finally:
            recorder.close()
        result = _finish(settings, observer, events, signals, directory)
    log(f"ended at step {progress.steps}: {result['ended']}")
    return Run(directory, result)


def learning(wired: Program) -> frozenset[str]:
    """The workers that learn, and so have a state to save: those that were wired with the task."""
    given = {copy.name: (*copy.node.args, *copy.node.kwargs.values()) for copy in wired.crew}
    return frozenset(name for name, arguments in given.items() if any(isinstance(each, Task) for each in arguments))


def _consensus(settings: Settings, progress: Progress, directory: Path, done: int) -> ConsensusMonitor:
    """What watches how far members are apart; it goes on from `gossip.json` where the run does, and raises `UserError`
    where that is damaged."""
    consensus = ConsensusMonitor(task(settings), settings.num_envs, when=lambda: (progress.steps, progress.elapsed))
    file = directory / GOSSIP
    if file.exists():
        try:
            consensus.load(json.loads(file.read_text()), done)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{file}: truncated or altered ({error}); restore or remove it") from error
    return consensus


def _write_gossip(consensus: ConsensusMonitor | None, directory: Path) -> None:
    if consensus is not None and (found := consensus.to_dict()):
        write_json(directory / GOSSIP, found)


def _finish(
    settings: Settings, observer: RunObserver, events: EventLog, signals: Signals, directory: Path
) -> dict[str, Any]:
    """`result.json`, and of many members the picture of how far they were apart, and what they play together."""
    result = _result(settings, observer, events)
    write_json(directory / RESULT, result)
    if (directory / GOSSIP).exists():
        from gossamer.diagnostics.plots import draw  # matplotlib takes a second

        draw(json.loads((directory / GOSSIP).read_text()), directory / PICTURE)
    if len(observer.members) > 1:
        result |= _aggregated(settings, observer, signals)
        write_json(directory / RESULT, result)
    return result


def _aggregated(settings: Settings, observer: RunObserver, signals: Signals) -> dict[str, Any]:
    """What the members play together; without whole games where a signal asks the run to end, also during them."""
    last, returns = observer.store.get("last"), observer.progress.member_returns
    if observer.interrupted is None:
        try:
            with signals.may_be_left_out():
                return aggregate(settings, last, returns, games=True)
        except Abandoned:
            observer.log("the final games were left out: a signal came during them")
    return aggregate(settings, last, returns, games=False)


def _check(keep: int, stop_at_return: float | None) -> None:
    if keep < 1:
        raise UserError(f"--keep {keep}: must be at least 1")
    if stop_at_return is not None and not math.isfinite(stop_at_return):
        raise UserError(f"--stop-at-return {stop_at_return}: must be a finite number; leave it out to never stop early")


def probe(settings: Settings) -> int:
    """Make one environment and the network, so that what cannot be shows at once; the environment's frames per step."""
    with closing(environment(settings).make(1)) as env:
        try:
            with single_threaded():
                build(task(settings), env.spec)
        except (ValueError, RuntimeError, TypeError) as error:
            shape = list(env.spec.obs_shape)
            raise UserError(f"--network {settings.network}: does not fit observations {shape} ({error})") from error
        return env.spec.frames_per_step


def _result(settings: Settings, observer: RunObserver, events: EventLog) -> dict[str, Any]:
    p = observer.progress
    short = 0 if observer.stopping() else max(0, p.total + p.repeated - p.steps)
    done = f"{short:,} steps short" if short else "all steps done"
    return {
        "ended": observer.interrupted or ("reached the return asked for" if observer.solved_steps else done),
        "steps": p.steps,
        "short": short,
        "frames": p.steps * p.frames_per_step,
        "episodes": p.episodes,
        "seconds": round(p.elapsed, 1),
        "steps_per_second": round(p.steps / p.elapsed, 1),
        "mean_return": p.mean_return,
        "protocol": PROTOCOL,
        "stop_at_return": observer.stop_at_return,
        "solved_steps": observer.solved_steps,
        "checkpoint": observer.store.get("last").path.name,
        "machine": machine(),
        "version": __version__,
        **events.to_dict(),
        "settings": asdict(settings),
    }
