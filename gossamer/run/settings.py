"""Every knob of a run, flat, as the command line, `config.json` and Python know it; and how it becomes a program."""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, get_args, get_type_hints

import torch
from torch import nn
from torch.optim import Adam, Optimizer

from gossamer import architectures, networks, optim
from gossamer.algorithms import A2C, PPO, Algorithm, Network
from gossamer.envs import catalogue
from gossamer.envs.atari import Atari
from gossamer.envs.base import EnvFactory, cores
from gossamer.envs.gym import Custom, Gym
from gossamer.exchange import graphs, mixing
from gossamer.program import Program
from gossamer.run.errors import UserError
from gossamer.run.presets import preset
from gossamer.task import Optimization, Task

ARCHITECTURES: dict[str, Callable[..., Program]] = {
    "paac": architectures.paac,
    "gala": architectures.gala,
    "pala": architectures.pala,
}
GRAPHS: dict[str, graphs.Graph] = {
    "ring": graphs.Ring(),
    "exponential": graphs.Exponential(),
    "one-peer": graphs.OnePeer(),
    "complete": graphs.Complete(),
    "random-pairs": graphs.RandomPairs(),
    "hierarchical": graphs.Hierarchical(1),
}
MIXINGS: dict[str, mixing.Mixing] = {"uniform": mixing.Uniform(), "push-sum": mixing.PushSum()}
NETWORKS: dict[str, networks.TorsoFactory] = {
    "nips": networks.nips,
    "nature": networks.nature,
    "small": networks.small,
    "mlp": networks.mlp,
}
OPTIMIZERS = ("adam", "rmsprop-a3c", "rmsprop-tf", "rmsprop-torch", "rmsprop-dqn")
INPUT_SCALES = {"background": 1 / 64, "unit": 1 / 255, "raw": 1.0}


def knob(
    text: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> Any:
    """A field with its help text and the range of its values."""
    return field(metadata={"help": text, "least": least, "most": most, "above": above, "below": below})


@dataclass(frozen=True)
class Settings:
    """One run, completely. What the user leaves open comes from a preset (see `gossamer show`)."""

    architecture: str = knob("Parallel architecture (gossamer list).")
    env: str = knob(
        "Environment: an Atari game (pong), a Gymnasium id (CartPole-v1), module:factory, or a toy (catch)."
    )
    preset: Literal["tuned", "paper"] = knob("Where settings not given come from: ours, or the architecture's paper.")
    algorithm: Literal["a2c", "ppo"] = knob("What is learned.")
    steps: int = knob("Agent steps until the end, of all environments together.", least=1)
    seed: int = knob("All random streams follow from it.", least=0, most=2**31 - 1)
    device: str = knob("auto, cpu, cuda or cuda:N; auto takes a GPU where there is one.")
    precision: Literal["auto", "fp32", "bf16"] = knob("auto takes bf16 where the processor computes in it.")
    hosts: int = knob("pala: hosts, each one process.", least=1)
    learners: int = knob("gala: learners; pala: learners of each host.", least=1)
    graph: str = knob(f"gala, pala: who sends to whom: {', '.join(GRAPHS)}, or edges (0>1,1>2,2>0).")
    mixing: Literal["uniform", "push-sum"] = knob("gala, pala: how messages are weighted.")
    sync: Literal["never", "bounded", "lock-step"] = knob("gala, pala: when a learner waits for its neighbours.")
    staleness: int = knob("gala, pala: tau of --sync bounded, in optimiser steps.", least=0)
    message: Literal["fp32", "bf16", "int8"] = knob("pala: numbers on their way between hosts.")
    envs: int = knob("n_e: environments side by side, of each learner.", least=1)
    workers: int = knob("n_w: threads (Atari; 0: one a core) or processes (Gymnasium; 0: none) that step.", least=0)
    threads: int = knob("torch threads on the CPU; 0: one for each core.", least=0)
    rollout: int = knob("t_max: steps of each environment between two updates.", least=1)
    atari: Literal["paac", "gala", "impala", "machado"] = knob("Atari preprocessing preset.")
    size: int = knob("Height and width of Atari pictures, in pixels.", least=16, most=210)
    network: str = knob("Torso: nips, nature, small, mlp, or module:factory (obs shape -> torch module).")
    input: Literal["background", "unit", "raw"] = knob("Pictures: centred on their background / 64, / 255, or as is.")
    initialisation: Literal["orthogonal", "uniform"] = knob("Of weights; uniform is +-1/sqrt(fan_in).")
    discount: float = knob("gamma, per step.", least=0, most=1)
    trace: float = knob("lambda of returns and advantages; 1: n-step returns.", least=0, most=1)
    value_cost: float = knob("Weight of the value loss.", least=0)
    entropy_cost: float = knob("Weight of the entropy bonus.", least=0)
    loss_scale: float = knob("a2c: factor on the whole loss (PAAC: 5).", above=0)
    clip: float = knob("ppo: the ratio stays within 1 +- clip.", above=0)
    passes: int = knob("ppo: passes over each rollout.", least=1)
    minibatches: int = knob("ppo: minibatches to a pass.", least=1)
    normalise_advantages: bool = knob("ppo: to mean 0, deviation 1, in each minibatch.")
    optimizer: Literal["adam", "rmsprop-a3c", "rmsprop-tf", "rmsprop-torch", "rmsprop-dqn"] = knob("Step rule.")
    learning_rate: float = knob("At the start.", above=0)
    anneal_steps: int = knob("Agent steps over which the learning rate falls linearly; 0: constant.", least=0)
    final_fraction: float = knob("Of the learning rate, once annealed.", least=0, most=1)
    decay: float = knob("rmsprop: of the mean square.", least=0, below=1)
    epsilon: float = knob("Of the optimiser.", above=0)
    clip_norm: float = knob("Global norm that gradients are clipped to.", above=0)

    @property
    def members(self) -> int:
        """Learners on all hosts."""
        return self.hosts * self.learners


KNOBS = {f.name: f for f in fields(Settings)}
KINDS = get_type_hints(Settings)
ONLY_FOR = {
    "loss_scale": "a2c",
    "clip": "ppo",
    "passes": "ppo",
    "minibatches": "ppo",
    "normalise_advantages": "ppo",
}
ONLY_IN = {
    "hosts": ("pala",),
    "learners": ("gala", "pala"),
    "graph": ("gala", "pala"),
    "mixing": ("gala", "pala"),
    "sync": ("gala", "pala"),
    "staleness": ("gala", "pala"),
    "message": ("pala",),
}


def option(name: str) -> str:
    """A knob as it is typed."""
    return "--" + name.replace("_", "-")


def near(name: str, names: Iterable[str]) -> str:
    """`; near: a, b` where something is close."""
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; near: {', '.join(close)}" if close else ""


def resolve(given: Mapping[str, Any]) -> Settings:
    """Complete settings from what the user gave. `UserError` names the option, the value and what would do."""
    for name in given:
        if name not in KNOBS:
            raise UserError(f"unknown option {option(name)}{near(name, KNOBS)}")
    check_kinds(given)
    check_architecture(given["architecture"])
    env = catalogue.resolve(given["env"], preset=given.get("atari") or "paac")
    picture = isinstance(env, Atari) or _pixels(env)
    name = given["architecture"]
    defaults = preset(name, given.get("preset", "tuned"), given.get("algorithm"), picture)
    if name != "paac" and not isinstance(env, Atari):
        defaults.values["workers"] = 0  # of processes: small environments are stepped in place
    if "staleness" in given and "sync" not in given:
        defaults.values["sync"] = "bounded"
    settings = Settings(**{**defaults.values, **given})
    _check(settings, given, env)
    return settings


def _pixels(env: EnvFactory) -> bool:
    made = env.make(1)
    try:
        return made.spec.pixels
    finally:
        made.close()


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
            raise UserError(f"{option(name)} {value}: must be one of {', '.join(choices)}")
        fits = type(value) is kind or (kind is float and type(value) is int)  # True is no number here
        if not choices and not fits:
            raise UserError(f"{option(name)} {value!r}: must be of type {kind.__name__}")


def _check(settings: Settings, given: Mapping[str, Any], env: EnvFactory) -> None:
    for name, value in asdict(settings).items():
        limits = KNOBS[name].metadata
        if isinstance(value, int | float) and not isinstance(value, bool):
            if value < limits["least"]:
                raise UserError(f"{option(name)} {value}: must be at least {limits['least']:g}")
            if value <= limits["above"]:
                raise UserError(f"{option(name)} {value}: must be above {limits['above']:g}")
            if value >= limits["below"]:
                raise UserError(f"{option(name)} {value}: must be below {limits['below']:g}")
            if value > limits["most"] or math.isnan(value):
                raise UserError(f"{option(name)} {value}: must be at most {limits['most']:g}")
    for name, algorithm in ONLY_FOR.items():
        if name in given and settings.algorithm != algorithm:
            raise UserError(f"{option(name)} {given[name]}: only {algorithm} has it; add --algorithm {algorithm}")
    for name, where in ONLY_IN.items():
        if name in given and settings.architecture not in where:
            raise UserError(f"{option(name)} {given[name]}: {settings.architecture} has none; {' and '.join(where)} do")
    if settings.architecture in ("gala", "pala"):
        _check_gossip(settings, given)
    for name in ("size", "atari"):
        if name in given and not isinstance(env, Atari):
            raise UserError(f"{option(name)} {given[name]}: {settings.env} is not an Atari game")
    if settings.algorithm == "ppo" and settings.envs * settings.rollout < settings.minibatches:
        raise UserError(
            f"--minibatches {settings.minibatches}: a rollout has only {settings.envs * settings.rollout} steps "
            f"(--envs {settings.envs} x --rollout {settings.rollout})"
        )
    if isinstance(env, Gym | Custom) and settings.envs % max(1, settings.workers):
        raise UserError(f"--workers {settings.workers}: must divide --envs {settings.envs}, for each steps as many")
    if settings.network not in NETWORKS and ":" not in settings.network:
        raise UserError(
            f"--network {settings.network}: no such network{near(settings.network, NETWORKS)}; "
            f"there are: {', '.join(NETWORKS)}, or module:factory"
        )
    device(settings.device)


def _check_gossip(settings: Settings, given: Mapping[str, Any]) -> None:
    members = settings.members
    if members < 2:
        raise UserError(f"--learners {settings.learners}: gossip needs at least two members; {members} would be alone")
    if "staleness" in given and settings.sync != "bounded":
        raise UserError(f"--staleness {settings.staleness}: means nothing with --sync {settings.sync}; give bounded")
    wanted = graph(settings)
    if isinstance(wanted, graphs.Edges) and (odd := {m for e in wanted.edges for m in e} - set(range(members))):
        raise UserError(f"--graph {settings.graph}: no member {min(odd)}; they are 0 to {members - 1}")
    if not graphs.strongly_connected(wanted, tuple(range(members))):
        raise UserError(
            f"--graph {settings.graph}: not strongly connected, so members would never agree; "
            "there must be a way along edges from each member to every other"
        )


def graph(settings: Settings) -> graphs.Graph:
    """Who sends to whom: a graph by name, or its edges."""
    if settings.graph == "hierarchical":
        return graphs.Hierarchical(settings.learners)
    if settings.graph == "random-pairs":
        return graphs.RandomPairs(settings.seed)
    if settings.graph in GRAPHS:
        return GRAPHS[settings.graph]
    try:
        edges = [tuple(int(end) for end in edge.split(">")) for edge in settings.graph.split(",")]
        return graphs.Edges(tuple((source, target) for source, target in edges))
    except ValueError as error:
        known = ", ".join(GRAPHS)
        raise UserError(
            f"--graph {settings.graph}: no such graph{near(settings.graph, GRAPHS)}; there is {known}, "
            "or edges as 0>1,1>2,2>0"
        ) from error


def device(name: str) -> str:
    """`auto` becomes what the machine has; `UserError` where the device is not there."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        wanted = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"--device {name}: no such device; use auto, cpu, cuda or cuda:N") from error
    if wanted.type not in ("cpu", "cuda"):
        raise UserError(f"--device {name}: not supported; use auto, cpu, cuda or cuda:N")
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices; use auto or cpu")
    return name


def precision(name: str, where: str) -> torch.dtype:
    """`auto` becomes bf16 where the processor computes in it natively, else fp32."""
    if name == "auto":
        if where.startswith("cuda"):
            native = torch.cuda.is_bf16_supported(including_emulation=False)
        else:
            native = (
                torch.backends.cpu.get_cpu_capability() != "DEFAULT" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
            )
        return torch.bfloat16 if native else torch.float32
    return torch.bfloat16 if name == "bf16" else torch.float32


def environment(settings: Settings) -> EnvFactory:
    """The environment factory of these settings."""
    env = catalogue.resolve(settings.env, preset=settings.atari)
    if isinstance(env, Atari):
        env = replace(env, preset=replace(env.preset, size=settings.size))
    return env


def task(settings: Settings) -> Task:
    """What is learned, from these settings."""
    where = device(settings.device)
    return Task(
        env=environment(settings),
        algorithm=_algorithm(settings),
        network=Network(
            torso=NETWORKS[settings.network] if settings.network in NETWORKS else _factory(settings.network),
            input_scale=INPUT_SCALES[settings.input],
            centre=settings.input == "background",
            orthogonal=settings.initialisation == "orthogonal",
            dtype=precision(settings.precision, where),
        ),
        optimization=Optimization(
            make=partial(_optimizer, settings),
            learning_rate=settings.learning_rate,
            anneal_steps=settings.anneal_steps,
            final_fraction=settings.final_fraction,
            clip_norm=settings.clip_norm,
        ),
        rollout=settings.rollout,
        steps=settings.steps,
        seed=settings.seed,
        device=where,
        threads=settings.threads or max(1, cores() // settings.members),
    )


def _factory(name: str) -> networks.TorsoFactory:
    """`module:factory` of the user's: called with the observation's shape, it gives a torso."""
    module, _, attribute = name.partition(":")
    try:
        found: networks.TorsoFactory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"--network {name}: cannot be imported ({error}); give module:factory") from error
    return found


def _algorithm(s: Settings) -> Algorithm:
    if s.algorithm == "a2c":
        return A2C(s.discount, s.trace, s.value_cost, s.entropy_cost, s.loss_scale)
    return PPO(
        s.discount,
        s.trace,
        s.value_cost,
        s.entropy_cost,
        s.clip,
        s.passes,
        s.minibatches,
        s.normalise_advantages,
    )


def _optimizer(s: Settings, parameters: Iterable[nn.Parameter], rate: float) -> Optimizer:
    match s.optimizer:
        case "adam":
            return Adam(parameters, rate, eps=s.epsilon, fused=True)
        case "rmsprop-a3c":
            return optim.rmsprop_a3c(parameters, rate, decay=s.decay, eps=s.epsilon)
        case "rmsprop-tf":
            return optim.rmsprop_tf(parameters, rate, decay=s.decay, eps=s.epsilon)
        case "rmsprop-torch":
            return optim.rmsprop_torch(parameters, rate, decay=s.decay, eps=s.epsilon)
        case "rmsprop-dqn":
            return optim.rmsprop_dqn(parameters, rate, decay=s.decay, eps=s.epsilon)


def program(settings: Settings) -> Program:
    """The architecture, wired for these settings."""
    what = task(settings)
    gpus = 1.0 if what.device.startswith("cuda") else 0.0
    wiring: dict[str, Any] = {"envs": settings.envs, "workers": settings.workers, "gpus": gpus}
    if settings.architecture in ("gala", "pala"):
        never, lock_step = settings.sync == "never", settings.sync == "lock-step"
        wiring |= {
            "learners": settings.learners,
            "graph": graph(settings),
            "mixing": MIXINGS[settings.mixing],
            "staleness": math.inf if never else settings.staleness,
            "lock_step": lock_step,
        }
    if settings.architecture == "pala":
        wiring |= {"hosts": settings.hosts, "form": settings.message}
    return ARCHITECTURES[settings.architecture](what, **wiring)
