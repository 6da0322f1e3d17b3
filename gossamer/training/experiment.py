"""Start a training run, or go on with one. What a run leaves is listed in `storage.directory`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Unpack

from gossamer.algorithms import Algorithm
from gossamer.config.checks import check_changes
from gossamer.config.config import Architecture, Config, Control
from gossamer.config.file import flat, to_dict
from gossamer.config.keywords import Keywords
from gossamer.config.resolve import Choices, Composition
from gossamer.envs.own import EnvMaker, env_name
from gossamer.launch.threads import threads
from gossamer.nn.optim import StepRule
from gossamer.presets.layers import Preset
from gossamer.program import Program
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS, CONFIG, LOG, SPEC
from gossamer.storage.directory import load_config, logger, prepared
from gossamer.storage.files import write_json
from gossamer.storage.lock import RunLock, held
from gossamer.system.errors import UserError
from gossamer.system.machine import keep_freed_memory
from gossamer.system.options import declared
from gossamer.system.scripts import check_guard
from gossamer.training.call import call
from gossamer.training.callbacks import Callback, Watching, chosen
from gossamer.training.dry_run import check_goal, dry_run
from gossamer.training.place import Place
from gossamer.training.rates import check_rate
from gossamer.training.session import Run, Session
from gossamer.training.signals import EXIT_CODES, Interrupted

__all__ = ["Run", "resume", "train"]


def train(
    architecture: str | Architecture,
    *,
    env: str | EnvMaker,
    algorithm: str | Algorithm | None = None,
    optimizer: str | StepRule | None = None,
    preset: Preset = "tuned",
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    stop_at_return: float | None = None,
    stop_at_eval: float | None = None,
    max_seconds: float | None = None,
    cluster: str | None = None,
    page: int | None = None,
    callbacks: Watching | Sequence[Watching] = (),
    **options: Unpack[Keywords],
) -> Run:
    """Train from the start: `train("gala", env="pong", learners=4)`, or `train(GALA(learners=4), env="pong")`.

    `env` is a name, as `--env` takes it, or a class or function that makes one of your environments. It must be defined
    at the top level of a file, since the run and other processes import it by its name.
    `architecture`, `algorithm` and `optimizer` are names or their options (`PPO(epochs=3)`); `options` are all others
    that the composition has, and win over those of a part. What is left open comes from the preset (`gossamer show`).
    `cluster`: None runs in this process; else on Ray: `local` on processes of this machine, or a cluster's address.
    `page`: serve the live page of the run at this port of this machine.
    `callbacks`: code of yours that watches the run and may end it, see `Callback`: instances, classes or `module:Name`,
    one or several.
    Raises `UserError` for a value that cannot be used, `NonFinite` when a loss is NaN (the last good checkpoint
    stays), `OSError` on a full disk, `KeyboardInterrupt` after the checkpoint of a run that a signal ended."""
    asked = call(train, locals())
    control = Control(
        stop_at_return=stop_at_return, stop_at_eval=stop_at_eval, max_seconds=max_seconds, cluster=cluster, page=page
    )
    choices = Choices(architecture, env_name(env), algorithm, optimizer, preset, options)
    return _whole(start(choices, control, run_dir, overwrite=overwrite, asked=asked, callbacks=chosen(callbacks)))


def start(
    choices: Choices,
    control: Control,
    run_dir: str | Path | None,
    *,
    overwrite: bool,
    asked: str,
    callbacks: Mapping[str, Callback] | None = None,
) -> Run:
    """`train`, with the arguments as data. `asked`: the command or call that asks for the run, for its log."""
    check_guard()
    keep_freed_memory()
    directory = None if run_dir is None else Path(run_dir).absolute()  # environments may change the current directory
    composition = Composition(choices)
    config = composition.config()
    check_goal(config, control)
    _check_kept(config, run_dir)
    wired, interface = dry_run(config, control.cluster)  # what is wrong shows before anything is written
    spec = interface.to_dict()
    with _place(control.cluster, wired, config) as place, prepared(config, directory, overwrite) as lock:
        write_json(lock.directory / SPEC, spec)
        logger(lock.directory / LOG)(asked)
        session = Session(config, control, wired, lock, interface, None, callbacks)
        if sizes := composition.sizes():
            session.observer.note(sizes)
        return _run(session, place)


def resume(
    run_dir: str | PathLike[str],
    *,
    steps: int | None = None,
    learning_rate: float | None = None,
    anneal_steps: int | None = None,
    final_fraction: float | None = None,
    keep: int | None = None,
    checkpoint_every: float | None = None,
    stop_at_return: float | None = None,
    stop_at_eval: float | None = None,
    max_seconds: float | None = None,
    cluster: str | None = None,
    log: str | None = None,
    eval_every: int | None = None,
    eval_exact: bool | None = None,
    eval_episodes: int | None = None,
    eval_protocol: Literal["noop", "sticky"] | None = None,
    page: int | None = None,
    callbacks: Watching | Sequence[Watching] = (),
) -> Run:
    """Continue a run from its last checkpoint, to `steps` steps in total. Arguments that are None keep the run's
    values, except `stop_at_return`, `stop_at_eval`, `max_seconds`, `cluster`, `page` and `callbacks`, which apply only
    to this call.

    The learning rate keeps its schedule, which may have ended before `steps`; `learning_rate`, `anneal_steps` and
    `final_fraction` change the schedule of the whole run. Raises `UserError` if the rate would stay 0, and else what
    `train` raises."""
    asked = call(resume, locals())
    check_guard()
    control = Control(
        stop_at_return=stop_at_return, stop_at_eval=stop_at_eval, max_seconds=max_seconds, cluster=cluster, page=page
    )
    changes = {
        "steps": steps,
        "learning_rate": learning_rate,
        "anneal_steps": anneal_steps,
        "final_fraction": final_fraction,
        "keep": keep,
        "checkpoint_every": checkpoint_every,
        "log": log,
        "eval_every": eval_every,
        "eval_exact": eval_exact,
        "eval_episodes": eval_episodes,
        "eval_protocol": eval_protocol,
    }
    return _whole(go_on(Path(run_dir), control, changes, asked=asked, callbacks=chosen(callbacks)))


def go_on(
    run_dir: Path,
    control: Control,
    changes: Mapping[str, Any],
    *,
    asked: str,
    callbacks: Mapping[str, Callback] | None = None,
) -> Run:
    """Continue a run from its last checkpoint, with these options changed unless they are None. `asked`: as in
    `start`."""
    keep_freed_memory()
    load_config(run_dir)  # before the lock: this may be no run at all
    with held(run_dir.absolute()) as lock:  # environments may change the current directory
        return _go_on(lock, control, changes, asked=asked, callbacks=callbacks)


def _go_on(
    lock: RunLock,
    control: Control,
    changes: Mapping[str, Any],
    *,
    asked: str,
    callbacks: Mapping[str, Callback] | None,
) -> Run:
    directory = lock.directory
    config = load_config(directory, logger(directory / LOG))
    store = Store(directory / CHECKPOINTS)
    store.recover()
    checkpoint = store.get("last")
    steps = changes.get("steps")
    if steps is not None and steps <= checkpoint.steps:
        raise UserError(f"--steps {steps}: the run has done {checkpoint.steps} already; give the total to go on to")
    config = config.changed(changes)
    check_changes(changes, flat(config))
    check_rate(config, checkpoint.steps)
    check_goal(config, control)
    saved = checkpoint.load()
    wired, interface = dry_run(config, control.cluster, saved=saved)
    with _place(control.cluster, wired, config) as place:
        write_json(directory / CONFIG, to_dict(config))
        write_json(directory / SPEC, interface.to_dict())
        logger(directory / LOG)(asked)
        return _run(Session(config, control, wired, lock, interface, saved, callbacks), place)


def _whole(run: Run) -> Run:
    """The run. Raises `Interrupted` if a signal has ended it: a script is to end, too."""
    ended = run.result["ended"]
    if ended in EXIT_CODES:
        told = f"{ended}: the run ended after a checkpoint; gossamer.resume({str(run.directory)!r}) goes on with it"
        raise Interrupted(told, EXIT_CODES[ended])
    return run


def _check_kept(config: Config, run_dir: str | Path | None) -> None:
    """Raise `UserError` for a run directory whose parameters the run is to start with: they would be removed."""
    source = config.run.init_from
    if source and run_dir and Path(source).resolve() == Path(run_dir).resolve():
        raise UserError(f"--init-from {source}: is the run directory itself, which begins empty; use another --run-dir")


def _run(session: Session, place: Place) -> Run:
    if place.note is not None:
        session.log(place.note)
    return session.run(place.launch)


def _place(cluster: str | None, wired: Program, config: Config) -> AbstractContextManager[Place]:
    if cluster is None:
        return nullcontext(Place(threads))
    from gossamer.training.cluster import on_cluster  # only where it is asked for

    return on_cluster(cluster, wired, declared(type(config.architecture)))
