"""Start a training run, or go on with one. What a run leaves is listed in `storage.directory`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
from torch import nn

from gossamer.algorithms import Algorithm
from gossamer.algorithms.base import initial_state
from gossamer.algorithms.target import PREFIX as TARGET
from gossamer.config.build import check_batch, check_effect, check_memory, check_workers, environment, program, task
from gossamer.config.config import Architecture, Config, Control
from gossamer.config.file import to_dict
from gossamer.config.names import Keywords
from gossamer.config.resolve import configure
from gossamer.envs.base import Watchable
from gossamer.envs.gym import IN_A_FILE
from gossamer.envs.interface import Interface, describe
from gossamer.envs.own import EnvMaker
from gossamer.envs.watchdog import Watchdog, complain
from gossamer.errors import UserError
from gossamer.evaluation.members import newcomer
from gossamer.launch.threads import threads
from gossamer.learner import build
from gossamer.machine import keep_freed_memory, single_threaded
from gossamer.optim import StepRule
from gossamer.program import Program
from gossamer.random_play import random_actions
from gossamer.scripts import check_guard
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS, CONFIG, LOG, SPEC
from gossamer.storage.directory import load_config, logger, prepared
from gossamer.storage.files import write_json
from gossamer.storage.lock import RunLock, held
from gossamer.training.call import call
from gossamer.training.evaluator import check_protocol
from gossamer.training.rates import check_rate
from gossamer.training.session import Run, Session
from gossamer.training.sinks.choice import chosen

if TYPE_CHECKING:
    from gossamer.training.cluster import Launcher

__all__ = ["Run", "check_run", "go_on", "probe", "resume", "start", "train"]


def train(
    architecture: str | Architecture,
    *,
    env: str | EnvMaker,
    algorithm: str | Algorithm | None = None,
    optimizer: str | StepRule | None = None,
    preset: Literal["tuned", "paper"] = "tuned",
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    stop_at_return: float | None = None,
    max_seconds: float | None = None,
    cluster: str | None = None,
    page: int | None = None,
    **options: Unpack[Keywords],
) -> Run:
    """Train from the start: `train("gala", env="pong", learners=4)`, or `train(GALA(learners=4), env="pong")`.

    `env` is a name, as `--env` takes it, or a class or function that makes one of your environments. It must be defined
    at the top level of a file, since the run and other processes import it by its name.
    `architecture`, `algorithm` and `optimizer` are names or their options (`PPO(epochs=3)`); `options` are all others
    that the composition has. What is left open comes from the preset (see `gossamer show`).
    `cluster`: None runs in this process; else on Ray: `local` on processes of this machine, or a cluster's address.
    `page`: serve the live page of the run at this port of this machine.
    Raises `UserError` for a value that cannot be used, `NonFinite` when a loss is NaN (the last good checkpoint
    stays), `OSError` on a full disk."""
    asked = call(train, locals())
    check_guard()
    keep_freed_memory()
    control = Control(stop_at_return=stop_at_return, max_seconds=max_seconds, cluster=cluster, page=page)
    config = configure(architecture, env=env, algorithm=algorithm, optimizer=optimizer, preset=preset, **options)
    return start(config, control, run_dir, overwrite=overwrite, asked=asked)


def start(config: Config, control: Control, run_dir: str | Path | None, *, overwrite: bool, asked: str) -> Run:
    """Train with this configuration. `asked`: the command or call that asks for it, for the log."""
    cluster = control.cluster
    check_run(config, cluster)
    wired = program(config, cluster=cluster)
    interface = probe(config, cluster)  # what is wrong shows before anything is written
    spec = interface.to_dict()
    with _launcher(cluster, wired) as launch, prepared(config, run_dir, overwrite) as lock:
        write_json(lock.directory / SPEC, spec)
        logger(lock.directory / LOG)(asked)
        return Session(config, control, wired, lock, interface.frames_per_step).run(launch)


def resume(
    run_dir: str | Path,
    *,
    steps: int | None = None,
    learning_rate: float | None = None,
    anneal_steps: int | None = None,
    final_fraction: float | None = None,
    keep: int | None = None,
    checkpoint_every: float | None = None,
    stop_at_return: float | None = None,
    max_seconds: float | None = None,
    cluster: str | None = None,
    log: str | None = None,
    eval_every: int | None = None,
    eval_episodes: int | None = None,
    eval_protocol: Literal["noop", "sticky"] | None = None,
    page: int | None = None,
) -> Run:
    """Continue a run from its last checkpoint, to `steps` steps in total. Arguments that are None keep the run's
    values, except `stop_at_return`, `max_seconds`, `cluster` and `page`, which apply only to this call.

    The learning rate keeps its schedule, which may have ended before `steps`; `learning_rate`, `anneal_steps` and
    `final_fraction` change the schedule of the whole run. Raises `UserError` if the rate would stay 0."""
    asked = call(resume, locals())
    check_guard()
    control = Control(stop_at_return=stop_at_return, max_seconds=max_seconds, cluster=cluster, page=page)
    changes = {
        "steps": steps,
        "learning_rate": learning_rate,
        "anneal_steps": anneal_steps,
        "final_fraction": final_fraction,
        "keep": keep,
        "checkpoint_every": checkpoint_every,
        "log": log,
        "eval_every": eval_every,
        "eval_episodes": eval_episodes,
        "eval_protocol": eval_protocol,
    }
    return go_on(Path(run_dir), control, changes, asked=asked)


def go_on(run_dir: Path, control: Control, changes: Mapping[str, Any], *, asked: str) -> Run:
    """Continue a run from its last checkpoint, with these options changed unless they are None. `asked`: as in
    `start`."""
    keep_freed_memory()
    load_config(run_dir)  # before the lock: this may be no run at all
    with held(run_dir) as lock:
        return _go_on(lock, control, changes, asked=asked)


def _go_on(lock: RunLock, control: Control, changes: Mapping[str, Any], *, asked: str) -> Run:
    directory = lock.directory
    config = load_config(directory, logger(directory / LOG))
    checkpoint = Store(directory / CHECKPOINTS).get("last")
    steps = changes.get("steps")
    if steps is not None and steps <= checkpoint.steps:
        raise UserError(f"--steps {steps}: the run has done {checkpoint.steps} already; give the total to go on to")
    config = config.changed(changes)
    check_rate(config, checkpoint.steps)
    check_run(config, control.cluster)
    saved = checkpoint.load()
    wired, interface = program(config, cluster=control.cluster), probe(config, control.cluster, resumed=True)
    with _launcher(control.cluster, wired) as launch:
        write_json(directory / CONFIG, to_dict(config))
        write_json(directory / SPEC, interface.to_dict())
        logger(directory / LOG)(asked)
        return Session(config, control, wired, lock, interface.frames_per_step, saved).run(launch)


def check_run(config: Config, cluster: str | None) -> None:
    """Raise `UserError` for sinks, a protocol of evaluations or an address of a cluster that cannot be used, and for an
    environment that other processes need but cannot import."""
    chosen(config.run.log)
    _check_importable(config, cluster)
    check_protocol(config)
    if cluster is not None:
        from gossamer.training.cluster import launcher

        launcher(cluster)


def _check_importable(config: Config, cluster: str | None) -> None:
    """An environment of a script or notebook: only worker processes can load it, and only from a script's file."""
    is_script = Path(getattr(sys.modules["__main__"], "__file__", None) or "").is_file()
    in_workers = getattr(config.architecture, "env_workers", 0) > 1
    apart = cluster is not None or config.run.eval_every or (in_workers and not is_script)
    if config.env.name.startswith("__main__:") and apart:
        raise UserError(f"--env {config.env.name}: {IN_A_FILE}")


def _launcher(cluster: str | None, wired: Program) -> AbstractContextManager[Launcher]:
    if cluster is None:
        return nullcontext(threads)
    from gossamer.training.cluster import on_cluster  # only where it is asked for

    return on_cluster(cluster, wired)


def probe(config: Config, cluster: str | None = None, *, resumed: bool = False) -> Interface:
    """Make one environment and the network here, so that errors show at once; the environment's interface.

    An environment written in Python is stepped once, which checks what it returns. With a `cluster` the network is
    made on the CPU: the machine that starts a run may have no GPU. `resumed`: the run that `--init-from` names is not
    needed any more."""
    what = task(config.with_run(device="cpu") if cluster else config)
    with Watchdog(what.env.name, complain) as watchdog, closing(watchdog.watch(what.env.make(1))) as env:
        check_batch(config)
        check_memory(config, env.spec)
        check_workers(config)
        check_effect(config, env.spec)
        if isinstance(env, Watchable):
            obs = env.reset(what.stream("probe"))
            env.step(random_actions(env.spec, np.random.default_rng(0), obs))
        try:
            with single_threaded():
                model = build(what, env.spec)
        except Exception as error:  # of the user's network, too
            why = error if isinstance(error, ValueError | RuntimeError | TypeError) else repr(error)
            raise UserError(
                f"--network {config.network.torso}: does not fit observations {env.spec.shapes} ({why})"
            ) from error
        _check_network(config, model, None if resumed else config.run.init_from)
        return describe(environment(config), env)


def _check_network(config: Config, model: nn.Module, source: str | None) -> None:
    """Raise `UserError` if the network lacks the memory that was asked for, or differs from the run `source`."""
    memory = config.network.memory
    if memory != "none" and not initial_state(model, 1):
        raise UserError(f"--memory {memory}: the network of {type(config.algorithm).__name__} has no memory")
    if source is None:
        return
    given = newcomer(Store(Path(source) / CHECKPOINTS).get("last").load()["workers"])["parameters"]
    shapes, wanted = [
        {name: tensor.shape for name, tensor in each.items() if not name.startswith(TARGET)}
        for each in (given, model.state_dict())
    ]
    different = shapes.items() ^ wanted.items()
    if different:
        raise UserError(f"--init-from {source}: its network differs in {min(different)[0]}; use its network options")
