"""A dry run: the checks of a configuration before anything is written, with one environment and the network."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from torch import nn

from gossamer.algorithms.base import initial_state
from gossamer.algorithms.target import PREFIX as TARGET
from gossamer.algorithms.traces import STATE as TRACES
from gossamer.config.build import (
    check_effect,
    check_server,
    check_shared,
    check_workers,
    environment,
    program,
    task,
)
from gossamer.config.config import Config, Control
from gossamer.config.games import check_games
from gossamer.config.memory import check_batch, check_draws, check_memory
from gossamer.data import Tree
from gossamer.envs.base import Forgetful, VectorEnv, Watchable, one_of_each
from gossamer.envs.gym import IN_A_FILE
from gossamer.envs.interface import Interface, describe
from gossamer.envs.once import remember
from gossamer.envs.random_play import random_actions
from gossamer.envs.watchdog import Watchdog, complain
from gossamer.evaluation.members import newcomer
from gossamer.policy import build
from gossamer.program import Program
from gossamer.spaces.observations import GAME
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS, CONFIG, SPEC, is_run
from gossamer.system.errors import UserError
from gossamer.system.paths import staying
from gossamer.training.evaluator import check_protocol
from gossamer.training.sinks.choice import chosen


def dry_run(config: Config, cluster: str | None = None, *, saved: Tree | None = None) -> tuple[Program, Interface]:
    """The program of this configuration, and the interface of its environment. `saved`: see `try_network`.

    Raises `UserError` for what would keep the run from starting."""
    check_run(config, cluster)
    wired = program(config, cluster=cluster)
    return wired, try_network(config, wired, cluster, saved=saved)


def check_goal(config: Config, control: Control) -> None:
    """Raise `UserError` where the run is to end at an evaluation and has none."""
    if control.stop_at_eval is not None and not config.run.eval_every:
        raise UserError(f"--stop-at-eval {control.stop_at_eval:g}: no evaluations without --eval-every STEPS")


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


@staying()
def try_network(config: Config, wired: Program, cluster: str | None = None, *, saved: Tree | None = None) -> Interface:
    """Make one environment and the network here, so that errors show at once; the environment's interface.

    An environment written in Python is stepped once, which checks what it returns. With a `cluster` the network is
    made on the CPU: the machine that starts a run may have no GPU. `saved`: the content of the checkpoint that a run is
    resumed from, which the network must fit; the run that `--init-from` names is not needed any more."""
    check_games(config, wired)
    what = task(config.with_run(device="cpu") if cluster else config, wired)
    count = one_of_each(what.env)
    with (
        Watchdog(what.env.name, complain) as watchdog,
        closing(watchdog.watch(what.env.make(count))) as env,
    ):
        remember(what.env, env.spec)
        _check_made(what.env.name, env)
        if not (saved is not None or env.spec.games) and GAME in {part.name for part in env.spec.parts}:
            raise UserError(
                f"--env {what.env.name}: the key {GAME} of observations is kept for several games; rename it"
            )
        check_batch(config, wired)
        check_draws(config, wired)
        check_memory(config, wired, env.spec, cluster)
        check_workers(config, wired)
        check_effect(config, env.spec)
        if isinstance(env, Watchable):
            obs = env.reset(what.stream("probe"))
            env.step(random_actions(env.spec, np.random.default_rng(0), obs))
        try:
            model = build(what, env.spec)
        except Exception as error:  # of the user's network, too
            why = error if isinstance(error, ValueError | RuntimeError | TypeError) else repr(error)
            raise UserError(
                f"--network {config.network.torso}: does not fit observations {env.spec.shapes} ({why})"
            ) from error
        check_shared(config, wired)
        check_server(config, wired, model)
        interface = describe(environment(config), env)
        if config.run.init_from is not None and saved is None:
            _check_same_games(Path(config.run.init_from), interface)
        _check_network(config, model, saved)
        return interface


def _check_made(name: str, env: VectorEnv) -> None:
    """Raise `UserError` if making the environment has changed torch's default type. Print a note if it has statistics
    that no checkpoint has."""
    if torch.get_default_dtype() != torch.float32:
        raise UserError(
            f"--env {name}: has set torch's default type to {torch.get_default_dtype()}, and networks are float32; "
            "give its own tensors a dtype instead"
        )
    if isinstance(env, Forgetful) and env.statistics:
        print(
            f"--env {name}: no checkpoint has the statistics of {' and '.join(env.statistics)}, so elsewhere the "
            "policy and its returns differ; use --normalize-observations and --normalize-returns instead",
            file=sys.stderr,
        )


def _check_same_games(source: Path, interface: Interface) -> None:
    """Raise `UserError` if the run that this one starts from has other games: values, their statistics and actions are
    those of a game's number."""
    try:
        before = Interface.from_dict(json.loads((source / SPEC).read_text()))
    except (OSError, KeyError, TypeError, ValueError):  # of an earlier version, which had one game
        return
    there, here = [[game.name for game in each.games] or [each.name] for each in (before, interface)]
    if there != here and (before.games or interface.games):
        raise UserError(
            f"--init-from {source}: its values and actions are those of {','.join(there)}; --env must name the same "
            "games in the same order"
        )


def _parameters(source: Path) -> Tree:
    """The parameters that a run starts with."""
    if not is_run(source):
        what = "an export" if (source / CONFIG).is_file() else "not a run directory"
        raise UserError(f"--init-from {source}: is {what}; give the directory of a run, which has its checkpoints")
    parameters: Tree = newcomer(Store(source / CHECKPOINTS).get("last").load()["workers"])["parameters"]
    return parameters


def _check_network(config: Config, model: nn.Module, saved: Tree | None) -> None:
    """Raise `UserError` if the network lacks the memory that was asked for, or differs from that of the checkpoint or
    run that it starts from."""
    memory = config.network.memory
    if memory != "none" and not initial_state(model, 1):
        raise UserError(f"--memory {memory}: the network of {type(config.algorithm).__name__} has no memory")
    source = config.run.init_from
    if saved is not None:
        states = [state["learner"] for state in saved["workers"].values() if "learner" in state]
        given = states[0]["model"] if states else None
    else:
        given = source and _parameters(Path(source))
    if not given:
        return
    shapes, wanted = [
        {name: tensor.shape for name, tensor in each.items() if not name.startswith((TARGET, TRACES))}
        for each in (given, model.state_dict())
    ]
    different = shapes.items() ^ wanted.items()
    if different and saved is not None:
        raise UserError(
            f"the run's parameters do not fit its network ({min(different)[0]}): the code of {config.env.name} or "
            "of the network has changed since; resume with what it was"
        )
    if different:
        raise UserError(f"--init-from {source}: its network differs in {min(different)[0]}; use its network options")
