"""Builds the environment, the task and the program from a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from gossamer.algorithms import Network
from gossamer.config.config import Config
from gossamer.config.names import NETWORKS, load
from gossamer.envs.base import EnvFactory, Spec, cores
from gossamer.errors import UserError
from gossamer.machine import resolve_device
from gossamer.networks import INPUT_SCALES
from gossamer.program import Program
from gossamer.task import Optimization, Task


def device(name: str) -> str:
    """Resolve `auto` to a device of this machine. Raises `UserError` if the device does not exist."""
    if name == "auto":
        return resolve_device(name)
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
    """Resolve `auto` to bf16 if the device `where` supports it natively, else to fp32."""
    if name == "auto":
        if where.startswith("cuda"):
            native = torch.cuda.is_bf16_supported(including_emulation=False)
        else:
            native = (
                torch.backends.cpu.get_cpu_capability() != "DEFAULT" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
            )
        return torch.bfloat16 if native else torch.float32
    return torch.bfloat16 if name == "bf16" else torch.float32


def environment(config: Config) -> EnvFactory:
    """The environment factory of this configuration."""
    return config.env.factory()


def network(config: Config, where: str) -> Network:
    """The network's parts, for the device `where`."""
    chosen = config.network
    return Network(
        torso=load("--network", chosen.torso, NETWORKS),
        input_scale=INPUT_SCALES[chosen.input],
        centre=chosen.input == "background",
        orthogonal=chosen.initialization == "orthogonal",
        dtype=precision(chosen.precision, where),
    )


def task(config: Config) -> Task:
    """The task. By default each learner gets an equal share of the cores as threads."""
    return _task(config, config.run.threads or max(1, cores() // learners(config)))


def program(config: Config, *, cluster: bool = False) -> Program:
    """The program of this configuration. `cluster`: each host resolves `--device auto` by itself.

    Raises `UserError` for a device with an index (`cuda:1`) on a cluster."""
    what = task(config)
    if cluster and config.run.device not in ("auto", "cpu", "cuda"):
        raise UserError(
            f"--device {config.run.device}: each host of a cluster numbers its own GPUs; use auto, cpu or cuda"
        )
    return config.architecture.program(replace(what, device=config.run.device) if cluster else what)


def learners(config: Config) -> int:
    """Number of learners on all hosts together."""
    return len(config.architecture.program(_task(config, 1)).saved_workers)


def num_envs(config: Config) -> int:
    """Environments of each learner, read from the program."""
    return next(_wired_envs(program(config)), 1)


def _wired_envs(wired: Program) -> Iterator[int]:
    for worker in wired.workers:
        if "num_envs" in worker.kwargs:
            yield int(worker.kwargs["num_envs"])


def check_memory(config: Config, spec: Spec) -> None:
    """Raise `UserError` if one rollout of all learners needs more than the machine's memory."""
    import os

    steps = num_envs(config) * (config.run.rollout_length + 1) * learners(config)
    wanted = steps * torch.Size(spec.obs_shape).numel() * spec.obs_dtype.itemsize
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if wanted > there:
        raise UserError(
            f"--rollout-length {config.run.rollout_length}: with --num-envs {num_envs(config)} its observations take "
            f"{wanted / 1e9:,.0f} GB and the machine has {there / 1e9:,.0f} GB; use smaller values"
        )


def _task(config: Config, threads: int) -> Task:
    where, plan = device(config.run.device), config.optimization
    return Task(
        env=environment(config),
        algorithm=config.algorithm,
        network=network(config, where),
        optimization=Optimization(
            make=config.optimizer.make,
            learning_rate=plan.learning_rate,
            anneal_steps=config.run.steps if plan.anneal_steps is None else plan.anneal_steps,
            final_fraction=plan.final_fraction,
            max_grad_norm=plan.max_grad_norm,
        ),
        rollout_length=config.run.rollout_length,
        steps=config.run.steps,
        seed=config.run.seed,
        device=where,
        threads=threads,
    )
