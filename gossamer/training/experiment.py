"""A training run: what surrounds a program while it learns. What it leaves is listed in `directory`."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer.config.settings import Settings, resolve
from gossamer.config.wiring import environment, program, task
from gossamer.data import Tree
from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.envs.base import Watchable
from gossamer.envs.watchdog import Watchdog, complain
from gossamer.errors import EnvironmentFailed, UserError
from gossamer.evaluation.aggregate import aggregate
from gossamer.launch.threads import threads
from gossamer.learner import build
from gossamer.machine import keep_freed_memory, machine, single_threaded
from gossamer.program import Program
from gossamer.storage.checkpoint import Store
from gossamer.storage.directory import (
    CONFIG,
    GOSSIP,
    LOG,
    PICTURE,
    RESULT,
    config,
    load_settings,
    logger,
    prepare,
    write_json,
)
from gossamer.task import Task
from gossamer.training.display import ProgressDisplay
from gossamer.training.ends import ended_early
from gossamer.training.metrics import Progress, Recorder
from gossamer.training.observer import RunObserver, launcher_log
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
    stays), `OSError` on a full disk."""
    settings = resolve({"architecture": architecture, **{k: v for k, v in given.items() if v is not None}})
    _check_keep(keep)
    wired, frames = program(settings), probe(settings)  # what is wrong shows before anything is written
    with _launcher(cluster, wired) as launch:
        directory = prepare(settings, run_dir, overwrite)
        return _run(settings, wired, directory, frames, launch, keep=keep, stop_at_return=stop_at_return)


def resume(
    run_dir: str | Path,
    *,
    steps: int | None = None,
    keep: int = 3,
    stop_at_return: float | None = None,
    cluster: str | None = None,
) -> Run:
    """Go on from the last checkpoint of a run, to `steps` in all (default: what it was started with)."""
    directory = Path(run_dir)
    settings = load_settings(directory)
    checkpoint = Store(directory / "checkpoints").get("last")
    if steps is not None and steps <= checkpoint.steps:
        raise UserError(f"--steps {steps}: the run has done {checkpoint.steps} already; give the total to go on to")
    settings = replace(settings, steps=steps or settings.steps)
    _check_keep(keep)
    saved = checkpoint.load()
    before = (saved, checkpoint.steps)
    wired, frames = program(settings), probe(settings)
    with _launcher(cluster, wired) as launch:
        write_json(directory / CONFIG, config(settings))
        return _run(settings, wired, directory, frames, launch, keep=keep, stop_at_return=stop_at_return, before=before)


def _launcher(cluster: str | None, wired: Program) -> AbstractContextManager[Launcher]:
    if cluster is None:
        return nullcontext(threads)
    from gossamer.training.cluster import on_cluster  # only where it is asked for

    return on_cluster(cluster, wired)


def _run(
    settings: Settings,
    wired: Program,
    directory: Path,
    frames_per_step: int,
    launch: Launcher,
    *,
    keep: int,
    stop_at_return: float | None,
    before: tuple[Tree, int] | None = None,
) -> Run:
    """`before`: the checkpoint that is gone on from, and its steps."""
    saved, done = before or ({}, 0)
    keep_freed_memory()
    progress = Progress(settings.steps, frames_per_step)
    if saved:
        progress.load_state_dict(saved["progress"])
    title = f"gossamer {settings.architecture} · {settings.algorithm} · {settings.env} · seed {settings.seed}"
    log = logger(directory / LOG)
    members = learning(wired)
    consensus = _consensus(settings, progress, directory, done) if len(members) > 1 else None
    recorder = Recorder(directory, keep_until=done if saved else None)
    observer = RunObserver(
        progress,
        recorder,
        Store(directory / "checkpoints", keep),
        ProgressDisplay(progress, title),
        log,
        members,
        saved.get("workers", {}),
        stop_at_return,
        consensus=consensus,
        kept=lambda: _write_gossip(consensus, directory),
    )
    log(f"{'resumed' if saved else 'started'} at step {done} with gossamer {__version__}")
    try:
        with observer.display, _signals(observer), launcher_log(observer):
            launch(wired, observer)
        if consensus is not None:
            consensus.close()
        observer.keep()
        observer.write()
    except BaseException as error:
        if consensus is not None:
            consensus.abandon()
        log(f"ended at step {progress.steps}: {type(error).__name__}: {error}")
        ended_early(error, observer, directory)
        raise
    finally:
        recorder.close()
    result = _finish(settings, observer, directory)
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


def _finish(settings: Settings, observer: RunObserver, directory: Path) -> dict[str, Any]:
    """`result.json`, and of many members the picture of how far they were apart, and what they play together."""
    result = _result(settings, observer)
    write_json(directory / RESULT, result)
    if (directory / GOSSIP).exists():
        from gossamer.diagnostics.plots import draw  # matplotlib takes a second

        draw(json.loads((directory / GOSSIP).read_text()), directory / PICTURE)
    if len(observer.members) > 1:
        games = not observer.interrupted  # who asks it to end may not wait for whole games
        returns, last = observer.progress.member_returns, observer.store.get("last")
        try:
            result |= aggregate(settings, last, returns, games=games, note=observer.note)
        except EnvironmentFailed as error:
            error.advice = f"training is done and saved in {directory}; this was in the games that its members play"
            raise
        write_json(directory / RESULT, result)
    return result


def _check_keep(keep: int) -> None:
    if keep < 1:
        raise UserError(f"--keep {keep}: must be at least 1")


def probe(settings: Settings) -> int:
    """Make one environment and the network, so that what cannot be shows at once; the environment's frames per step.
    One that is written in Python is stepped once, for its answers are checked."""
    factory = environment(settings)
    with Watchdog(factory.name, complain) as watchdog, closing(watchdog.watch(factory.make(1))) as env:
        if isinstance(env, Watchable):
            env.reset(task(settings).stream("probe"))
            env.step(np.zeros(1, np.int64))
        try:
            with single_threaded():
                build(task(settings), env.spec)
        except (ValueError, RuntimeError, TypeError) as error:
            shape = list(env.spec.obs_shape)
            raise UserError(f"--network {settings.network}: does not fit observations {shape} ({error})") from error
        return env.spec.frames_per_step


def _result(settings: Settings, observer: RunObserver) -> dict[str, Any]:
    p = observer.progress
    ended = observer.interrupted or ("reached the return asked for" if observer.solved_steps else "all steps done")
    return {
        "ended": ended,
        "steps": p.steps,
        "frames": p.steps * p.frames_per_step,
        "episodes": p.episodes,
        "seconds": round(p.elapsed, 1),
        "steps_per_second": round(p.steps / p.elapsed, 1),
        "mean_return": p.mean_return,
        "protocol": PROTOCOL,
        "stop_at_return": observer.stop_at_return,
        "solved_steps": observer.solved_steps,
        "environment_restarts": p.restarts,
        "checkpoint": observer.store.get("last").path.name,
        "machine": machine(),
        "version": __version__,
        "settings": asdict(settings),
    }


@contextmanager
def _signals(observer: RunObserver) -> Iterator[None]:
    """SIGINT and SIGTERM end the run after a checkpoint; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: object) -> None:
        if observer.interrupted:
            raise KeyboardInterrupt
        observer.interrupted = signal.Signals(number).name
        observer.display.note(f"{observer.interrupted}: saving a checkpoint, then ending (once more to end at once)")

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
