"""Builds the environment, the task and the program from a configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from gossamer.algorithms import Network
from gossamer.algorithms.base import Limited
from gossamer.algorithms.replaying import check_ring
from gossamer.config.config import Config
from gossamer.config.names import NETWORKS, load
from gossamer.envs.base import EnvFactory
from gossamer.envs.gym import Custom
from gossamer.envs.last import LastActionReward
from gossamer.envs.options import GymOptions
from gossamer.exchange import AllReduce, Broadcast, Server, Shared
from gossamer.exchange.flat import Flat
from gossamer.exchange.server.pull import most_shards
from gossamer.experience import Demand
from gossamer.experience.replay.pictures import nbytes
from gossamer.loops import Envs, role
from gossamer.nn.inputs import INPUT_SCALES
from gossamer.nn.networks import NetworkOptions
from gossamer.nn.optim import Muon
from gossamer.nn.tiles import TileCoding
from gossamer.nn.torsos import SEQUENCES, SIZED, Layers
from gossamer.program import Program
from gossamer.spaces import Box, Spec
from gossamer.system.errors import UserError
from gossamer.system.machine import free_space, resolve_device, total_memory
from gossamer.system.options import flag, shown
from gossamer.task import Optimization, Task

CHECKPOINT_COPIES = 3  # of a replay memory, beside itself, while a checkpoint is written: kept, cloned, and as bytes


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


def precision(name: str) -> torch.dtype | None:
    """The torso's dtype; None for `auto`, which each host resolves."""
    return {"auto": None, "fp32": torch.float32, "bf16": torch.bfloat16}[name]


def environment(config: Config) -> EnvFactory:
    """The environment factory of this configuration."""
    return config.env.factory()


def observed(env: EnvFactory, config: Config) -> EnvFactory:
    """The environment as this configuration's network observes it."""
    return LastActionReward(env) if config.network.last_action_reward else env


def network(chosen: NetworkOptions) -> Network:
    """The network's parts."""
    torso = load("--network", chosen.torso, NETWORKS)
    return Network(
        torso=TileCoding(chosen.tilings, chosen.tiles) if torso is TileCoding else torso,
        layers=Layers(chosen.hidden_sizes, chosen.activation),
        input_scale=INPUT_SCALES[chosen.input],
        centre=chosen.input == "background",
        layer_norm=chosen.layer_norm,
        orthogonal=chosen.initialization == "orthogonal",
        dtype=precision(chosen.precision),
        separate_critic=chosen.separate_critic,
        normalize_observations=chosen.normalize_observations,
        normalize_returns=chosen.normalize_returns,
        state_std=chosen.state_std,
        memory=chosen.memory,
        memory_units=chosen.memory_units,
        reconstruction_coef=chosen.reconstruction_coef,
        observe_game=chosen.observe_game,
        join_vectors=chosen.join_vectors,
        own_torso=":" in chosen.torso,
    )


def task(config: Config, wired: Program | None = None) -> Task:
    """The task, resolved for this machine: device, and an equal share of the cores for each learner.

    `wired`: the configuration's program, if there is one already; its workers are counted.
    Raises `UserError` for a device that this machine lacks."""
    sharing = _computing(wired or unresolved(config)).total()
    return _task(config, device(config.run.device), sharing).resolved()


def program(config: Config, *, cluster: str | None = None) -> Program:
    """The program of this configuration. On a `cluster` each host resolves device, precision and threads by itself; the
    hosts of the cluster `local` share this machine's cores.

    Raises `UserError` for a device with an index (`cuda:1`) on a cluster, and for a program that saves no worker."""
    if cluster and config.run.device not in ("auto", "cpu", "cuda"):
        raise UserError(
            f"--device {config.run.device}: each host of a cluster numbers its own GPUs; use auto, cpu or cuda"
        )
    if cluster:
        computing = _computing(unresolved(config))
        sharing = computing.total() if cluster == "local" else max(computing.values(), default=1)
        what = _task(config, config.run.device, sharing)
    else:
        what = task(config)
    wired = config.architecture.program(what)
    if not wired.saved_workers:
        raise UserError("the architecture saves no worker: wire each worker that learns with worker(..., saved=True)")
    return wired


def learners(wired: Program) -> int:
    """Number of learners on all hosts together."""
    return len(_demands(wired))


def groups_of_learners(wired: Program) -> dict[str, int]:
    """The group of each learner that averages its gradients with others, by the worker's name (`Exchange.group`)."""
    return {
        copy.name: part.group
        for copy in wired.crew
        for part in copy.node.args
        if isinstance(part, AllReduce) and part.group is not None
    }


def _computing(wired: Program) -> Counter[str]:
    """Host -> number of its workers that evaluate a network."""
    return Counter(copy.node.host for copy in wired.crew if role(copy.node).computes)


def unresolved(config: Config) -> Program:
    """The program with a task that is not resolved, to count its learners and environments."""
    return config.architecture.program(_task(config, "cpu", 1))


def num_envs(wired: Program) -> int:
    """Environments of each worker that acts, read from the program."""
    return next((envs.count for envs in acting(wired)), 1)


def acting(wired: Program) -> list[Envs]:
    """The environments of each kind of worker that acts."""
    return [envs for worker in wired.workers if (envs := role(worker).envs) is not None]


def _demands(wired: Program) -> list[Demand]:
    """What each learner holds."""
    roles = [role(copy.node) for copy in wired.crew]
    return [each.demand for each in roles if each.demand is not None]


def check_memory(config: Config, wired: Program, spec: Spec, cluster: str | None = None) -> None:
    """Raise `UserError` if what the learners keep, or a host of actors, needs more than this machine's memory. The
    hosts of a `cluster`, but for `local`, are machines of their own, which are taken to be like this one."""
    length, demands = config.run.rollout_length, _demands(wired)
    _check_rings(demands, length)
    _check_elsewhere(demands, spec, length)
    if cluster in (None, "local"):
        _check_machine(config, wired, spec, demands)
        return
    by_host: dict[str, list[Demand]] = {}
    for copy in wired.crew:
        if (demand := role(copy.node).demand) is not None:
            by_host.setdefault(copy.node.host, []).append(replace(demand, stored=demand.shard or demand.stored))
    for here in by_host.values():
        _check_machine(config, wired, spec, here)


def _check_machine(config: Config, wired: Program, spec: Spec, demands: Sequence[Demand]) -> None:
    """Raise `UserError` if the rollouts of these learners, with those kept for replay, need more than the machine's
    memory."""
    _check_stored(demands, spec)
    length = config.run.rollout_length
    replayed = max((each.replayed for each in demands), default=0)
    steps = sum(each.rollout_envs + each.replayed for each in demands) * (length + 1)
    wanted = steps * torch.Size(spec.obs_shape).numel() * spec.obs_dtype.itemsize
    there = total_memory()
    if wanted > there:
        envs = getattr(config.architecture, "num_envs", num_envs(wired))
        depth = max(each.depth for each in demands)
        kept = f", --depth {depth}" if depth else ""
        kept += f" and --replay-size {replayed}" if replayed else ""
        raise UserError(
            f"--rollout-length {length}: with --num-envs {envs}{kept} its observations take "
            f"{wanted / 1e9:,.0f} GB and the machine has {there / 1e9:,.0f} GB; use smaller values"
        )


def _check_stored(demands: Sequence[Demand], spec: Spec) -> None:
    """Raise `UserError` if the replay memories of all learners need more than the machine's memory, or than the disk
    has."""
    size = nbytes(spec, sum(each.stored for each in demands))
    folder = next((each.folder for each in demands if each.folder), "")
    copies = CHECKPOINT_COPIES if any(each.saved for each in demands) else 0
    needs = [("the machine", size * (copies + (not folder)), total_memory())]
    if folder:
        needs.append((f"--replay-dir {folder}", size, free_space(Path(folder))))
    for where, wanted, there in needs:
        if wanted > there:
            capacity = max(each.capacity for each in demands)
            written = ", with the copies of --save-replay while a checkpoint is written," if wanted > size else ""
            raise UserError(
                f"--buffer-size {capacity}: its steps take {wanted / 1e9:,.0f} GB{written} and {where} has "
                f"{there / 1e9:,.0f} GB; use at most {int(0.8 * there / wanted * capacity):,}"
            )


def _check_elsewhere(demands: Sequence[Demand], spec: Spec, rollout_length: int) -> None:
    """Raise `UserError` if the trajectories that a host of actors keeps need more memory than this machine has."""
    kept, there = max((each.elsewhere for each in demands), default=0), total_memory()
    wanted = nbytes(spec, kept * rollout_length)
    if kept and wanted > there:
        raise UserError(
            f"--replay-size {kept}: its observations take {wanted / 1e9:,.0f} GB on each host of actors, and this "
            f"machine has {there / 1e9:,.0f} GB; use at most {int(0.8 * there / wanted * kept):,}"
        )


def _check_rings(demands: Sequence[Demand], rollout_length: int) -> None:
    """Raise `UserError` if a learner's own replay memory keeps too little of each environment."""
    for each in demands:
        if each.stored and each.rollout_envs:
            check_ring(each.stored, each.rollout_envs, rollout_length, each.window, sequences=each.sequences)


def check_batch(config: Config, wired: Program) -> None:
    """Raise `UserError` if a learner's first batch would not be full before the run ends."""
    wanted = getattr(config.architecture, "batch_rollouts", 0)
    steps = sum(each.batch_envs for each in _demands(wired)) * config.run.rollout_length
    if wanted and steps > config.run.steps:
        raise UserError(
            f"--batch-rollouts {wanted}: its batches, {steps:,} steps, are never full with --steps {config.run.steps}; "
            "use fewer rollouts or more steps"
        )


def check_draws(config: Config, wired: Program) -> None:
    """Raise `UserError` if a learner would not draw a batch from its replay memory before the run ends."""
    memories = [each for each in _demands(wired) if each.stored]
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


def check_shared(config: Config, wired: Program) -> None:
    """Raise `UserError` for running statistics, which learners with common parameters cannot have."""
    chosen, parts = config.network, [arg for worker in wired.workers for arg in worker.args]
    parts = [part.inner if isinstance(part, Broadcast) else part for part in parts]
    for name, used in (
        ("--normalize-observations", chosen.normalize_observations),
        ("--normalize-returns", chosen.normalize_returns),
    ):
        if used and any(isinstance(part, Server | Shared) for part in parts):
            raise UserError(f"{name}: not available with shared parameters; use --no{name[1:]}")


def check_server(config: Config, wired: Program, model: nn.Module) -> None:
    """Raise `UserError` if the parameters cannot live on the shards of the program's server."""
    for worker in wired.workers:
        for server in (arg for arg in worker.args if isinstance(arg, Server)):
            size = len(Flat(model).vector)
            if len(server.shards) > most_shards(size):
                raise UserError(
                    f"--shards {len(server.shards)}: the network's {size:,} parameters can be split over "
                    f"{most_shards(size):,} at most"
                )
            if isinstance(config.optimizer, Muon):
                raise UserError("--optimizer muon: needs whole matrices, which shards do not have; use adam")
            return


def check_workers(config: Config, wired: Program) -> None:
    """Raise `UserError` if an actor's environments cannot be in equal groups, or if the workers that step environments
    in Python cannot have equally many of each group; also for workers of a vector environment, which needs none."""
    workers, parts, env = getattr(config.architecture, "env_workers", 0), groups(config), environment(config)
    if isinstance(env, Custom) and env.is_vector:
        env.check_vector(workers)
    for each in [envs.of_group(parts) for envs in acting(wired)]:
        if isinstance(config.env, GymOptions) and each % max(1, workers):
            of = "each actor" if parts == 1 else "each group of --alternating"
            raise UserError(
                f"--env-workers {workers}: must divide {each}, the environments of {of}: all step equally many"
            )


def check_effect(config: Config, spec: Spec) -> None:
    """Raise `UserError` for a network option that would have no effect on this environment."""
    chosen, env = config.network, config.env.name
    if isinstance(config.algorithm, Limited):
        config.algorithm.check(spec, network(chosen), env)
    if chosen.memory == "none" and chosen.memory_units != NetworkOptions.memory_units:
        raise UserError(f"--memory-units {chosen.memory_units}: has no effect without --memory lstm or --memory gru")
    parts = spec.layout.inputs(game=chosen.observe_game) if spec.layout else ()
    if chosen.join_vectors and sum(not part.picture for part in parts) < 2:
        raise UserError(f"--join-vectors: has no effect, as {env} does not show several vectors; leave it out")
    if chosen.join_vectors and (chosen.torso == "tiles" or chosen.torso not in NETWORKS):
        raise UserError(f"--join-vectors: has no effect with --network {chosen.torso}; leave it out")
    if chosen.observe_game and not spec.games:
        raise UserError(f"--observe-game: has no effect, as {env} is one game; leave it out")
    if chosen.state_std and not isinstance(spec.actions, Box):
        raise UserError(f"--state-std: has no effect, as the actions of {env} are not continuous; leave it out")
    if chosen.normalize_observations and all(part.dtype.kind != "f" for part in spec.parts):
        what = "pictures" if spec.pixels else "bytes"
        raise UserError(f"--normalize-observations: has no effect, as {env} shows {what}; leave it out")
    if chosen.layer_norm and chosen.torso not in SEQUENCES:
        raise UserError(f"--layer-norm: not available with --network {chosen.torso}; use {', '.join(SEQUENCES)}")
    for name in ("hidden_sizes", "activation"):
        if (value := getattr(chosen, name)) is not None and chosen.torso not in SIZED:
            raise UserError(f"{flag(name)} {shown(value)}: not for --network {chosen.torso}; use {', '.join(SIZED)}")
    for name in ("tilings", "tiles"):
        if chosen.torso != "tiles" and (value := getattr(chosen, name)) != getattr(NetworkOptions, name):
            raise UserError(f"--{name} {value}: has no effect without --network tiles")
    coded = chosen.torso == "autoencoder" or chosen.torso not in NETWORKS
    if chosen.reconstruction_coef != NetworkOptions.reconstruction_coef and not coded:
        raise UserError(f"--reconstruction-coef {chosen.reconstruction_coef}: has no effect without an auto-encoder")


def schedule(config: Config) -> Optimization:
    """The optimizer and its learning-rate schedule."""
    plan = config.optimization
    return Optimization(
        make=config.optimizer.make,
        learning_rate=plan.learning_rate,
        anneal_steps=config.run.steps if plan.anneal_steps is None else plan.anneal_steps,
        final_fraction=plan.final_fraction,
        max_grad_norm=plan.max_grad_norm,
        anneal_from=plan.anneal_from,
    )


def groups(config: Config) -> int:
    """Groups of each actor's environments."""
    return 2 if config.run.alternating else 1


def _task(config: Config, where: str, sharing: int) -> Task:
    return Task(
        env=observed(environment(config), config),
        algorithm=config.algorithm,
        network=network(config.network),
        optimization=schedule(config),
        rollout_length=config.run.rollout_length,
        seed=config.run.seed,
        device=where,
        threads=config.run.threads,
        sharing=sharing,
        groups=groups(config),
        cuda_graphs=config.run.cuda_graphs,
    )
