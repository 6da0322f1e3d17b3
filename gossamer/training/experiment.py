"""A training run: what surrounds a program while it learns. What it leaves is listed in `directory`."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from gossamer.algorithms import Algorithm
from gossamer.config.build import check_memory, environment, learning, program, task
from gossamer.config.config import Architecture, Config, Control
from gossamer.config.file import to_dict
from gossamer.config.names import ALGORITHMS, Keywords, name_of
from gossamer.config.resolve import configure
from gossamer.data import Tree
from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.errors import UserError
from gossamer.evaluation.aggregate import aggregate
from gossamer.launch.threads import threads
from gossamer.learner import build
from gossamer.machine import differences, keep_freed_memory, machine, ran, single_threaded
from gossamer.optim import StepRule
from gossamer.program import Program
from gossamer.storage.checkpoint import Store
from gossamer.storage.directory import (
    CONFIG,
    GOSSIP,
    HOSTS,
    LOG,
    PICTURE,
    RESULT,
    load_config,
    logger,
    prepare,
    title,
    write_json,
)
from gossamer.training.display import ProgressDisplay
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
    architecture: str | Architecture,
    *,
    env: str,
    algorithm: str | Algorithm | None = None,
    optimizer: str | StepRule | None = None,
    preset: Literal["tuned", "paper"] = "tuned",
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    stop_at_return: float | None = None,
    max_seconds: float | None = None,
    cluster: str | None = None,
    **options: Unpack[Keywords],
) -> Run:
    """Train from the start: `train("gala", env="pong", learners=4)`, or `train(GALA(learners=4), env="pong")`.

    `architecture`, `algorithm` and `optimizer` are names or their options (`PPO(epochs=3)`); `options` are all others
    that the composition has. What is left open comes from the preset (see `gossamer show`).
    `cluster`: None runs in this process; else on Ray: `local` on processes of this machine, or a cluster's address.
    Raises `UserError` for a value that cannot be used, `NonFiniteLoss` when a loss is NaN (the last good checkpoint
    stays), `OSError` on a full disk."""
    control = Control(stop_at_return=stop_at_return, max_seconds=max_seconds, cluster=cluster)
    config = configure(architecture, env=env, algorithm=algorithm, optimizer=optimizer, preset=preset, **options)
    wired, frames = program(config), probe(config)  # what is wrong shows before anything is written
    with _launcher(cluster, wired) as launch:
        directory = prepare(config, run_dir, overwrite)
        return _run(config, wired, directory, frames, launch, control)


def resume(
    run_dir: str | Path,
    *,
    steps: int | None = None,
    keep: int | None = None,
    checkpoint_every: float | None = None,
    stop_at_return: float | None = None,
    max_seconds: float | None = None,
    cluster: str | None = None,
) -> Run:
    """Go on from the last checkpoint of a run, to `steps` in all. What is left open is as the run was started, but for
    `stop_at_return`, `max_seconds` and `cluster`, which each call has of its own. The learning rate keeps the schedule
    that the run was started with."""
    control = Control(stop_at_return=stop_at_return, max_seconds=max_seconds, cluster=cluster)
    directory = Path(run_dir)
    config = load_config(directory, logger(directory / LOG))
    checkpoint = Store(directory / "checkpoints").get("last")
    if steps is not None and steps <= checkpoint.steps:
        raise UserError(f"--steps {steps}: the run has done {checkpoint.steps} already; give the total to go on to")
    changes = {"steps": steps, "keep": keep, "checkpoint_every": checkpoint_every}
    config = config.with_run(**{name: value for name, value in changes.items() if value is not None})
    saved = checkpoint.load()
    before = (saved, checkpoint.steps)
    wired, frames = program(config), probe(config)
    with _launcher(cluster, wired) as launch:
        write_json(directory / CONFIG, to_dict(config))
        return _run(config, wired, directory, frames, launch, control, before=before)


def _launcher(cluster: str | None, wired: Program) -> AbstractContextManager[Launcher]:
    if cluster is None:
        return nullcontext(threads)
    from gossamer.training.cluster import on_cluster  # only where it is asked for

    return on_cluster(cluster, wired)


def _run(
    config: Config,
    wired: Program,
    directory: Path,
    frames_per_step: int,
    launch: Launcher,
    control: Control,
    *,
    before: tuple[Tree, int] | None = None,
) -> Run:
    """`before`: the checkpoint that is gone on from, and its steps."""
    saved, done = before or ({}, 0)
    keep_freed_memory()
    progress = Progress(config.run.steps, frames_per_step)
    if saved:
        progress.load_state_dict(saved["progress"])
    log = logger(directory / LOG)
    members = learning(wired)
    consensus = _consensus(progress, directory, done) if len(members) > 1 else None
    recorder = Recorder(directory, keep_until=done if saved else None)
    observer = RunObserver(
        progress,
        recorder,
        Store(directory / "checkpoints", config.run.keep),
        ProgressDisplay(progress, _headline(config)),
        log,
        members,
        saved.get("workers", {}),
        control.stop_at_return,
        consensus=consensus,
        kept=lambda: _write_gossip(consensus, directory),
    )
    log(f"{'resumed' if saved else 'started'} at step {done} with gossamer {__version__}; {asdict(control)}")
    hosts = {} if control.cluster else _hosts(config, wired, directory, log)
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
        raise
    finally:
        recorder.close()
    result = _finish(config, observer, directory, hosts)
    log(f"ended at step {progress.steps}: {result['ended']}")
    return Run(directory, result)


def _headline(config: Config) -> str:
    """What is shown above the progress of a run."""
    algorithm = name_of(type(config.algorithm), ALGORITHMS)
    architecture = title(config).removesuffix(f"-{config.env.name}")
    return f"gossamer {architecture} · {algorithm} · {config.env.name} · seed {config.run.seed}"


def _hosts(config: Config, wired: Program, directory: Path, log: Callable[[str], None]) -> dict[str, Any]:
    """What each host of a program in this process computes with: kept in `hosts.json`, and logged where the run before
    was on something else."""
    what = task(config)
    here = asdict(ran(device=what.device, dtype=what.network.dtype, threads=what.threads))
    found = dict.fromkeys(wired.hosts, here)
    file = directory / HOSTS
    before = json.loads(file.read_text()) if file.exists() else {}
    for host, now in found.items():
        log(f"{host} computes with {', '.join(f'{name} {value}' for name, value in now.items())}")
        if changed := differences(before.get(host, {}), now):
            log(f"{host} differs from the run before: {changed}")
    write_json(file, found)
    return found


def _consensus(progress: Progress, directory: Path, done: int) -> ConsensusMonitor:
    """What watches how far members are apart; it goes on from `gossip.json` where the run does, and raises `UserError`
    where that is damaged."""
    consensus = ConsensusMonitor(when=lambda: (progress.steps, progress.elapsed))
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


def _finish(config: Config, observer: RunObserver, directory: Path, hosts: dict[str, Any]) -> dict[str, Any]:
    """`result.json`, and of many members the picture of how far they were apart, and what they play together."""
    result = _result(config, observer, hosts)
    write_json(directory / RESULT, result)
    if (directory / GOSSIP).exists():
        from gossamer.diagnostics.plots import draw  # matplotlib takes a second

        draw(json.loads((directory / GOSSIP).read_text()), directory / PICTURE)
    if len(observer.members) > 1:
        games = not observer.interrupted  # who asks it to end may not wait for whole games
        result |= aggregate(config, observer.store.get("last"), observer.progress.member_returns, games=games)
        write_json(directory / RESULT, result)
    return result


def probe(config: Config) -> int:
    """Make one environment and the network, so that what cannot be shows at once; the environment's frames per step."""
    with closing(environment(config).make(1)) as env:
        check_memory(config, env.spec)
        try:
            with single_threaded():
                build(task(config), env.spec)
        except (ValueError, RuntimeError, TypeError) as error:
            shape = list(env.spec.obs_shape)
            raise UserError(f"--network {config.network.torso}: does not fit observations {shape} ({error})") from error
        return env.spec.frames_per_step


def _result(config: Config, observer: RunObserver, hosts: dict[str, Any]) -> dict[str, Any]:
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
        "checkpoint": observer.store.get("last").path.name,
        "machine": machine(),
        "version": __version__,
        "hosts": hosts,
        "config": to_dict(config),
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
