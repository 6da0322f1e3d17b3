"""Checks of what learners hold, before a run: it fits into memory, and a batch is full before the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from gossamer.algorithms.replaying import check_ring
from gossamer.config.build import demands, gpus, num_envs
from gossamer.config.config import Config
from gossamer.experience import Demand
from gossamer.experience.replay.pictures import nbytes, picture_bytes
from gossamer.loops import role
from gossamer.nn.memory import state_bytes
from gossamer.program import Program
from gossamer.spaces import Spec
from gossamer.system.errors import UserError
from gossamer.system.machine import free_space, total_memory
from gossamer.system.resources import resources

CHECKPOINT_COPIES = 3  # of a replay memory, beside itself, while a checkpoint is written: kept, cloned, and as bytes


def check_memory(config: Config, wired: Program, spec: Spec, cluster: str | None = None) -> None:
    """Raise `UserError` if what the learners keep, a host of actors, or a checkpoint needs more than the memory of this
    machine or its GPUs. The hosts of a `cluster`, but for `local`, are machines of their own, which are taken to be
    like this one, with one GPU each; this one writes the checkpoints of all."""
    held = demands(wired)
    _check_rings(held, config.run.rollout_length)
    _check_elsewhere(held, config, spec)
    if cluster in (None, "local"):
        _check_machine(config, wired, spec, held, gpus(wired, cluster))
        return
    by_host: dict[str, list[Demand]] = {}
    for copy in wired.crew:
        if (demand := role(copy.node).demand) is not None:
            by_host.setdefault(copy.node.host, []).append(replace(demand, stored=demand.shard or demand.stored))
    for here in by_host.values():
        _check_machine(config, wired, spec, here, 1)
    _check_checkpoint(held, config, spec)


def _check_machine(config: Config, wired: Program, spec: Spec, held: Sequence[Demand], count: int) -> None:
    """Raise `UserError` if the rollouts of these learners, with those kept for replay, need more than the memory of the
    device. `count`: of the machine's GPUs, if they lie there."""
    _check_stored(held, config, spec)
    length = config.run.rollout_length
    replayed = max((each.replayed for each in held), default=0)
    steps = sum(each.rollout_envs + each.replayed for each in held) * (length + 1)
    wanted = steps * torch.Size(spec.obs_shape).numel() * spec.obs_dtype.itemsize
    gpu = resources(config.run.device).gpu_memory
    there = gpu * max(1, count) or total_memory()
    if wanted > there:
        where = f"the GPU{'s have' if count > 1 else ' has'}" if gpu else "the machine has"
        envs = getattr(config.architecture, "num_envs", num_envs(wired))
        depth = max(each.depth for each in held)
        kept = f", --depth {depth}" if depth else ""
        kept += f" and --replay-size {replayed}" if replayed else ""
        raise UserError(
            f"--rollout-length {length}: with --num-envs {envs}{kept} its observations take "
            f"{wanted / 1e9:,.0f} GB and {where} {there / 1e9:,.0f} GB; use smaller values"
        )


def _check_stored(held: Sequence[Demand], config: Config, spec: Spec) -> None:
    """Raise `UserError` if the replay memories of all learners need more than the machine's memory, or than the disk
    has."""
    folder = next((each.folder for each in held if each.folder), "")
    pictures = picture_bytes(spec, sum(each.stored for each in held)) if folder else 0
    copies = _checkpoint_bytes(held, config, spec)
    needs = [
        (
            "its steps" + (" without their pictures" if folder else ""),
            _stored_bytes(held, config, spec) - pictures + copies,
            ", with the copies of --save-replay while a checkpoint is written," if copies else "",
            "the machine has",
            total_memory(),
        )
    ]
    if folder:
        needs.append(("its pictures", pictures, "", f"--replay-dir {folder} has", free_space(Path(folder))))
    for what, wanted, written, where, there in needs:
        if wanted > there:
            capacity = max(each.capacity for each in held)
            raise UserError(
                f"--buffer-size {capacity}: {what} take {wanted / 1e9:,.0f} GB{written} and {where} "
                f"{there / 1e9:,.0f} GB; use at most {int(0.8 * there / wanted * capacity):,}"
            )


def _check_checkpoint(held: Sequence[Demand], config: Config, spec: Spec) -> None:
    """Raise `UserError` if a checkpoint of the replay memories on all hosts needs more memory than this machine has."""
    wanted, there = _checkpoint_bytes(held, config, spec), total_memory()
    if wanted > there:
        capacity = max(each.capacity for each in held)
        raise UserError(
            f"--buffer-size {capacity}: with --save-replay, a checkpoint of all hosts takes {wanted / 1e9:,.0f} GB on "
            f"this machine while it is written, which has {there / 1e9:,.0f} GB; use at most "
            f"{int(0.8 * there / wanted * capacity):,}, or leave out --save-replay"
        )


def _stored_bytes(held: Sequence[Demand], config: Config, spec: Spec) -> int:
    """Bytes of the replay memories of all learners."""
    rollouts = sum(each.stored for each in held if each.sequences) // config.run.rollout_length
    return nbytes(spec, sum(each.stored for each in held)) + rollouts * _state_bytes(config)


def _checkpoint_bytes(held: Sequence[Demand], config: Config, spec: Spec) -> int:
    """Bytes of the replay memories in a checkpoint of all learners, while it is written."""
    saved = [each for each in held if each.saved]
    return CHECKPOINT_COPIES * _stored_bytes(saved, config, spec) if saved else 0


def _state_bytes(config: Config) -> int:
    """Bytes of the recurrent state of one environment."""
    return state_bytes(config.network.memory, config.network.memory_units)


def _check_elsewhere(held: Sequence[Demand], config: Config, spec: Spec) -> None:
    """Raise `UserError` if the trajectories that a host of actors keeps need more memory than this machine has."""
    kept, there = max((each.elsewhere for each in held), default=0), total_memory()
    wanted = nbytes(spec, kept * config.run.rollout_length) + kept * _state_bytes(config)
    if kept and wanted > there:
        raise UserError(
            f"--replay-size {kept}: its trajectories take {wanted / 1e9:,.0f} GB on each host of actors, and this "
            f"machine has {there / 1e9:,.0f} GB; use at most {int(0.8 * there / wanted * kept):,}"
        )


def _check_rings(held: Sequence[Demand], rollout_length: int) -> None:
    """Raise `UserError` if a learner's own replay memory keeps too little of each environment."""
    for each in held:
        if each.stored and each.rollout_envs:
            check_ring(each.stored, each.rollout_envs, rollout_length, each.window, sequences=each.sequences)


def check_batch(config: Config, wired: Program) -> None:
    """Raise `UserError` if a learner's first batch would not be full before the run ends."""
    wanted = getattr(config.architecture, "batch_rollouts", 0)
    steps = sum(each.batch_envs for each in demands(wired)) * config.run.rollout_length
    if wanted and steps > config.run.steps:
        raise UserError(
            f"--batch-rollouts {wanted}: its batches, {steps:,} steps, are never full with --steps {config.run.steps}; "
            "use fewer rollouts or more steps"
        )


def check_draws(config: Config, wired: Program) -> None:
    """Raise `UserError` if a learner would not draw a batch from its replay memory before the run ends."""
    memories = [each for each in demands(wired) if each.stored]
    acting, total = sum(each.rollout_envs for each in memories), config.run.steps
    for each in memories:
        steps = total * each.rollout_envs // acting if each.rollout_envs else total
        if steps <= each.starts:
            raise UserError(
                f"--learning-starts {each.starts}: each of {len(memories)} replay memories gets only {steps:,} of "
                f"--steps {total:,}, so that nothing is learned; use a smaller number, or more steps"
            )
        if (due := each.passes * (steps - each.starts)) < each.batch_envs:
            raise UserError(
                f"--steps {total:,}: too few for a batch of {each.batch_envs} samples: {due:g} would be drawn from the "
                "replay memory; use more steps, or more samples for each"
            )
