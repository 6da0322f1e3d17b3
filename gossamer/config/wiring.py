"""How settings become a program: parts by name, put together."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Adam, Optimizer

from gossamer import architectures, networks, optim
from gossamer.algorithms import A2C, PPO, Algorithm, Network
from gossamer.envs import catalogue
from gossamer.envs.atari import Atari
from gossamer.envs.base import EnvFactory, cores
from gossamer.errors import UserError, near
from gossamer.exchange.gossip import graphs, mixing
from gossamer.program import Program
from gossamer.task import Optimization, Task

if TYPE_CHECKING:
    from gossamer.config.settings import Settings  # which is made of names that are defined here

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
    env = catalogue.resolve(settings.env, preset=settings.preprocessing)
    if isinstance(env, Atari):
        env = replace(env, preset=replace(env.preset, size=settings.screen_size))
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
            orthogonal=settings.initialization == "orthogonal",
            dtype=precision(settings.precision, where),
        ),
        optimization=Optimization(
            make=partial(_optimizer, settings),
            learning_rate=settings.learning_rate,
            anneal_steps=settings.anneal_steps,
            final_fraction=settings.final_fraction,
            max_grad_norm=settings.max_grad_norm,
        ),
        rollout_length=settings.rollout_length,
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
        return A2C(s.gamma, s.gae_lambda, s.value_coef, s.entropy_coef, s.loss_scale)
    return PPO(
        s.gamma,
        s.gae_lambda,
        s.value_coef,
        s.entropy_coef,
        s.clip_range,
        s.epochs,
        s.num_minibatches,
        s.normalize_advantage,
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
    wiring: dict[str, Any] = {"num_envs": settings.num_envs, "env_workers": settings.env_workers, "gpus": gpus}
    if settings.architecture in ("gala", "pala"):
        never, lock_step = settings.sync == "never", settings.sync == "lock-step"
        wiring |= {
            "learners": settings.learners,
            "graph": graph(settings),
            "mixing": MIXINGS[settings.mixing],
            "staleness": math.inf if never else settings.staleness,
            "lock_step": lock_step,
            "interval": settings.interval,
        }
    if settings.architecture == "pala":
        wiring |= {"hosts": settings.hosts, "message_format": settings.message_format}
    return ARCHITECTURES[settings.architecture](what, **wiring)
