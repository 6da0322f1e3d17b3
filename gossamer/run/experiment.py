"""A training run and its directory: what surrounds a program while it learns.

config.json       every setting, resolved          metrics.jsonl, tensorboard/   what happened
checkpoints/      the last few and the best        result.json                   how it ended
run.log           notes
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gossamer.data import Tree
from gossamer.launch.threads import threads
from gossamer.learner import build
from gossamer.program import Program
from gossamer.run.checkpoint import Store
from gossamer.run.errors import UserError
from gossamer.run.keeper import Keeper
from gossamer.run.machine import keep_freed_memory, machine, single_threaded
from gossamer.run.metrics import Progress, Recorder
from gossamer.run.panel import Monitor
from gossamer.run.settings import Settings, check_kinds, environment, program, resolve, task
from gossamer.version import __version__

CONFIG, RESULT = "config.json", "result.json"
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
    **given: Any,
) -> Run:
    """Train from the start. `given` are fields of `Settings`; what is left open comes from a preset.

    Raises `UserError` for a value that cannot be used, `NonFiniteLoss` when a loss is NaN (the last good checkpoint
    stays), `OSError` on a full disk."""
    settings = resolve({"architecture": architecture, **{k: v for k, v in given.items() if v is not None}})
    _check_keep(keep)
    wired, frames = program(settings), probe(settings)  # what is wrong shows before anything is written
    directory = _prepare(settings, run_dir, overwrite)
    return _run(settings, wired, directory, frames, keep=keep, stop_at_return=stop_at_return)


def resume(run_dir: str | Path, *, steps: int | None = None, keep: int = 3, stop_at_return: float | None = None) -> Run:
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
    write_json(directory / CONFIG, _config(settings))
    return _run(settings, wired, directory, frames, keep=keep, stop_at_return=stop_at_return, before=before)


def _run(
    settings: Settings,
    wired: Program,
    directory: Path,
    frames_per_step: int,
    *,
    keep: int,
    stop_at_return: float | None,
    before: tuple[Tree, int] | None = None,
) -> Run:
    """`before`: the checkpoint that is gone on from, and its steps."""
    saved, done = before or ({}, 0)
    keep_freed_memory()
    recorder = Recorder(directory, keep_until=done if saved else None)
    progress = Progress(settings.steps, frames_per_step)
    if saved:
        progress.load_state_dict(saved["progress"])
    title = f"gossamer {settings.architecture} · {settings.algorithm} · {settings.env} · seed {settings.seed}"
    monitor = Monitor(progress, title)
    log = _logger(directory / "run.log")
    keeper = Keeper(
        progress,
        recorder,
        Store(directory / "checkpoints", keep),
        monitor,
        log,
        frozenset(member.name for member in wired.crew),
        saved.get("workers", {}),
        stop_at_return,
    )
    log(f"{'resumed' if saved else 'started'} at step {done} with gossamer {__version__}")
    try:
        with monitor, _signals(keeper):
            threads(wired, keeper)
        keeper.keep()
        keeper.write()
    except BaseException as error:
        log(f"ended at step {progress.steps}: {type(error).__name__}: {error}")
        raise
    finally:
        recorder.close()
    result = _result(settings, keeper, directory)
    write_json(directory / RESULT, result)
    log(f"ended at step {progress.steps}: {result['ended']}")
    return Run(directory, result)


def _check_keep(keep: int) -> None:
    if keep < 1:
        raise UserError(f"--keep {keep}: must be at least 1")


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


def _result(settings: Settings, keeper: Keeper, directory: Path) -> dict[str, Any]:
    p = keeper.progress
    ended = keeper.interrupted or ("reached the return asked for" if keeper.solved_steps else "all steps done")
    return {
        "ended": ended,
        "steps": p.steps,
        "frames": p.steps * p.frames_per_step,
        "episodes": p.episodes,
        "seconds": round(p.elapsed, 1),
        "steps_per_second": round(p.steps / p.elapsed, 1),
        "mean_return": p.mean_return,
        "protocol": PROTOCOL,
        "solved_steps": keeper.solved_steps,
        "checkpoint": keeper.store.get("last").path.name,
        "machine": machine(),
        "version": __version__,
        "settings": asdict(settings),
    }


def _prepare(settings: Settings, run_dir: str | Path | None, overwrite: bool) -> Path:
    """An empty run directory with its `config.json`; `UserError` if a run is there already."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    directory = Path(run_dir or f"runs/{settings.architecture}-{settings.env.replace(':', '-')}-{stamp}")
    if directory.exists() and not directory.is_dir():
        raise UserError(f"--run-dir {directory}: is a file; give a directory")
    if directory.is_dir() and any(directory.iterdir()):
        if not overwrite:
            raise UserError(
                f"--run-dir {directory}: exists already; go on with `gossamer resume {directory}`, "
                "add --overwrite, or give another directory"
            )
        if not (directory / CONFIG).is_file():
            raise UserError(f"--overwrite: {directory} is not a run (no {CONFIG}); it is left as it is")
        shutil.rmtree(directory)
    existed = directory.is_dir()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        write_json(directory / CONFIG, _config(settings))
    except OSError:
        if not existed:
            directory.rmdir()
        raise
    return directory


def _config(settings: Settings) -> dict[str, Any]:
    return {"gossamer": __version__, **asdict(settings)}


def load_settings(directory: Path) -> Settings:
    """The settings of a run; `UserError` if there is none."""
    file = directory / CONFIG
    try:
        config = json.loads(file.read_text())
        config.pop("gossamer")
        check_kinds(config)
        return Settings(**config)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{directory}: not a run directory (no {CONFIG})") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{file}: truncated or altered ({error}); restore it or train again") from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all: written beside and renamed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(content, indent=2) + "\n")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _logger(path: Path) -> Callable[[str], None]:
    def log(text: str) -> None:
        with open(path, "a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    return log


@contextmanager
def _signals(keeper: Keeper) -> Iterator[None]:
    """SIGINT and SIGTERM end the run after a checkpoint; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: object) -> None:
        if keeper.interrupted:
            raise KeyboardInterrupt
        keeper.interrupted = signal.Signals(number).name
        keeper.monitor.note(f"{keeper.interrupted}: saving a checkpoint, then ending (once more to end at once)")

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
