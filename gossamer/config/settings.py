"""Every knob of a run, flat, as the command line, `config.json` and Python know it; and which values will do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_type_hints

from gossamer.config.presets import preset
from gossamer.config.wiring import ARCHITECTURES, GRAPHS, NETWORKS, device, graph
from gossamer.envs import catalogue
from gossamer.envs.atari import Atari
from gossamer.envs.base import EnvFactory
from gossamer.envs.gym import Custom, Gym
from gossamer.envs.watchdog import Watchdog, complain
from gossamer.errors import UserError, near
from gossamer.exchange import room
from gossamer.exchange.gossip import graphs
from gossamer.options import check_ranges, flag, option


@dataclass(frozen=True)
class Settings:
    """One run, completely. What the user leaves open comes from a preset (see `gossamer show`)."""

    architecture: str = option("Parallel architecture (gossamer list).")
    env: str = option(
        "Environment: an Atari game (pong), a Gymnasium id (CartPole-v1), module:factory, or a toy (catch)."
    )
    preset: Literal["tuned", "paper"] = option("Where settings not given come from: ours, or the architecture's paper.")
    algorithm: Literal["a2c", "ppo"] = option("What is learned.")
    steps: int = option("Agent steps until the end, of all environments together.", least=1)
    seed: int = option("All random streams follow from it.", least=0, most=2**31 - 1)
    device: str = option("auto, cpu, cuda or cuda:N; auto takes a GPU where there is one.")
    precision: Literal["auto", "fp32", "bf16"] = option("auto takes bf16 where the processor computes in it.")
    hosts: int = option("pala: hosts, each one process.", least=1)
    learners: int = option("gala: learners; pala: learners of each host.", least=1)
    graph: str = option(f"gala, pala: who sends to whom: {', '.join(GRAPHS)}, or edges (0>1,1>2,2>0).")
    mixing: Literal["uniform", "push-sum"] = option("gala, pala: how messages are weighted.")
    sync: Literal["never", "bounded", "lock-step"] = option("gala, pala: when a learner waits for its neighbours.")
    staleness: int = option("gala, pala: tau of --sync bounded, in optimiser steps.", least=0)
    interval: int = option("gala, pala: optimiser steps from one average with the neighbours to the next.", least=1)
    message_format: Literal["fp32", "bf16", "int8"] = option("pala: numbers on their way between hosts.")
    num_envs: int = option("n_e: environments side by side, of each learner.", least=1)
    env_workers: int = option(
        "n_w: threads (Atari; 0: one a core) or processes (Gymnasium; 0: none) that step.", least=0
    )
    threads: int = option("torch threads on the CPU; 0: one for each core.", least=0)
    rollout_length: int = option("t_max: steps of each environment between two updates.", least=1)
    preprocessing: Literal["paac", "gala", "impala", "machado", "gymnasium"] = option("Atari preprocessing preset.")
    screen_size: int = option("Height and width of Atari pictures, in pixels.", least=16, most=210)
    network: str = option("Torso: nips, nature, small, mlp, or module:factory (obs shape -> torch module).")
    input: Literal["background", "unit", "raw"] = option("Pictures: centred on their background / 64, / 255, or as is.")
    initialization: Literal["orthogonal", "uniform"] = option("Of weights; uniform is +-1/sqrt(fan_in).")
    gamma: float = option("gamma, per step.", least=0, most=1)
    gae_lambda: float = option("lambda of returns and advantages; 1: n-step returns.", least=0, most=1)
    value_coef: float = option("Weight of the value loss.", least=0)
    entropy_coef: float = option("Weight of the entropy bonus.", least=0)
    loss_scale: float = option("a2c: factor on the whole loss (PAAC: 5).", above=0)
    clip_range: float = option("ppo: the ratio stays within 1 +- clip.", above=0)
    epochs: int = option("ppo: passes over each rollout.", least=1)
    num_minibatches: int = option("ppo: minibatches to a pass.", least=1)
    normalize_advantage: bool = option("ppo: to mean 0, deviation 1, in each minibatch.")
    optimizer: Literal["adam", "rmsprop-a3c", "rmsprop-tf", "rmsprop-torch", "rmsprop-dqn"] = option("Step rule.")
    learning_rate: float = option("At the start; a preset's grows with the square root of the learners.", above=0)
    anneal_steps: int = option("Agent steps over which the learning rate falls linearly; 0: constant.", least=0)
    final_fraction: float = option("Of the learning rate, once annealed.", least=0, most=1)
    decay: float = option("rmsprop: of the mean square.", least=0, below=1)
    epsilon: float = option("Of the optimiser.", above=0)
    max_grad_norm: float = option("Global norm that gradients are clipped to.", above=0)

    @property
    def members(self) -> int:
        """Learners on all hosts."""
        return self.hosts * self.learners


KNOBS = {f.name: f for f in fields(Settings)}
KINDS = get_type_hints(Settings)
ONLY_FOR = {
    "loss_scale": "a2c",
    "clip_range": "ppo",
    "epochs": "ppo",
    "num_minibatches": "ppo",
    "normalize_advantage": "ppo",
}
ONLY_IN = {
    "hosts": ("pala",),
    "learners": ("gala", "pala"),
    "graph": ("gala", "pala"),
    "mixing": ("gala", "pala"),
    "sync": ("gala", "pala"),
    "staleness": ("gala", "pala"),
    "interval": ("gala", "pala"),
    "message_format": ("pala",),
}


def resolve(given: Mapping[str, Any]) -> Settings:
    """Complete settings from what the user gave. `UserError` names the option, the value and what would do."""
    for name in given:
        if name not in KNOBS:
            raise UserError(f"unknown option {flag(name)}{near(name, KNOBS)}")
    check_kinds(given)
    check_architecture(given["architecture"])
    env = catalogue.resolve(given["env"], preset=given.get("preprocessing") or "paac")
    picture = isinstance(env, Atari) or _pixels(env)
    name = given["architecture"]
    defaults = preset(name, given.get("preset", "tuned"), given.get("algorithm"), picture, given)
    if name != "paac" and not isinstance(env, Atari):
        defaults.values["env_workers"] = 0  # of processes: small environments are stepped in place
    if "staleness" in given and "sync" not in given:
        defaults.values["sync"] = "bounded"
    if given["env"].startswith(catalogue.ALE):
        if given.get("preprocessing", "gymnasium") != "gymnasium":
            what = f"--preprocessing {given['preprocessing']}"
            raise UserError(f"{what}: {given['env']} has its own, gymnasium; give --env {env.name} for another")
        defaults.values["preprocessing"] = "gymnasium"
    settings = Settings(**{**defaults.values, **given})
    if "interval" not in given and settings.sync != "never":  # in lock-step nobody expects to be alone for a step
        most = 1 if settings.sync == "lock-step" else room(settings.staleness)
        settings = replace(settings, interval=int(min(settings.interval, most)))
    _check(settings, given, env)
    return settings


def _pixels(env: EnvFactory) -> bool:
    with Watchdog(env.name, complain) as watchdog, closing(watchdog.watch(env.make(1))) as made:
        return made.spec.pixels


def check_architecture(name: str) -> None:
    """`UserError` with near names unless there is such an architecture."""
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UserError(f"unknown architecture {name!r}{near(name, ARCHITECTURES)}; there is {known}")


def check_kinds(given: Mapping[str, Any]) -> None:
    """What the command line's parser sees to, for those who call from Python."""
    if "env" not in given:
        raise UserError("--env: must be given; gossamer list shows what there is")
    for name, value in given.items():
        kind, choices = KINDS[name], get_args(KINDS[name])
        if choices and value not in choices:
            raise UserError(f"{flag(name)} {value}: must be one of {', '.join(choices)}")
        fits = type(value) is kind or (kind is float and type(value) is int)  # True is no number here
        if not choices and not fits:
            raise UserError(f"{flag(name)} {value!r}: must be of type {kind.__name__}")


def check_values(settings: Settings) -> None:
    """What must hold of settings wherever they come from. `UserError` names the option, the value and what would do."""
    check_ranges(settings)
    if settings.architecture in ("gala", "pala"):
        _check_gossip(settings)


def _check(settings: Settings, given: Mapping[str, Any], env: EnvFactory) -> None:
    check_values(settings)
    for name, algorithm in ONLY_FOR.items():
        if name in given and settings.algorithm != algorithm:
            raise UserError(f"{flag(name)} {given[name]}: only {algorithm} has it; add --algorithm {algorithm}")
    for name, where in ONLY_IN.items():
        if name in given and settings.architecture not in where:
            others = f"{' and '.join(where)} {'does' if len(where) == 1 else 'do'}"
            raise UserError(f"{flag(name)} {given[name]}: {settings.architecture} has none; {others}")
    if "staleness" in given and settings.sync != "bounded" and settings.architecture in ONLY_IN["staleness"]:
        raise UserError(f"--staleness {settings.staleness}: means nothing with --sync {settings.sync}; give bounded")
    for name in ("screen_size", "preprocessing"):
        if name in given and not isinstance(env, Atari):
            raise UserError(f"{flag(name)} {given[name]}: {settings.env} is not an Atari game")
    if settings.algorithm == "ppo" and settings.num_envs * settings.rollout_length < settings.num_minibatches:
        steps = settings.num_envs * settings.rollout_length
        raise UserError(
            f"--num-minibatches {settings.num_minibatches}: a rollout has only {steps} steps "
            f"(--num-envs {settings.num_envs} x --rollout-length {settings.rollout_length})"
        )
    if isinstance(env, Gym | Custom) and settings.num_envs % max(1, settings.env_workers):
        raise UserError(
            f"--env-workers {settings.env_workers}: must divide --num-envs {settings.num_envs}, for each steps as many"
        )
    if settings.network not in NETWORKS and ":" not in settings.network:
        raise UserError(
            f"--network {settings.network}: no such network{near(settings.network, NETWORKS)}; "
            f"there are: {', '.join(NETWORKS)}, or module:factory"
        )
    device(settings.device)


def _check_gossip(settings: Settings) -> None:
    members = settings.members
    if members < 2:
        raise UserError(f"--learners {settings.learners}: gossip needs at least two members; {members} would be alone")
    most = int(room(settings.staleness))
    if settings.sync == "bounded" and settings.interval > most:
        what = f"--interval {settings.interval}"
        raise UserError(f"{what}: must be at most {most}, a quarter of --staleness {settings.staleness}")
    wanted = graph(settings)
    if isinstance(wanted, graphs.Edges) and (odd := {m for e in wanted.edges for m in e} - set(range(members))):
        raise UserError(f"--graph {settings.graph}: no member {min(odd)}; they are 0 to {members - 1}")
    if not graphs.strongly_connected(wanted, tuple(range(members))):
        raise UserError(
            f"--graph {settings.graph}: not strongly connected, so members would never agree; "
            "there must be a way along edges from each member to every other"
        )
