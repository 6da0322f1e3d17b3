"""Builds the environment, the task and the program from a configuration."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

from gossamer.algorithms import Network
from gossamer.algorithms.base import Limited
from gossamer.config.config import Config
from gossamer.config.names import NETWORKS, load
from gossamer.envs.base import EnvFactory
from gossamer.envs.games import Games
from gossamer.envs.gym import Custom, Gym
from gossamer.envs.last import LastActionReward
from gossamer.exchange import AllReduce, Broadcast, Server, Shared
from gossamer.exchange.flat import Flat
from gossamer.exchange.server.pull import most_shards
from gossamer.experience import Demand
from gossamer.loops import Envs, role
from gossamer.nn.inputs import INPUT_SCALES
from gossamer.nn.networks import NetworkOptions
from gossamer.nn.optim import Muon
from gossamer.nn.tiles import TileCoding
from gossamer.nn.torsos import OF_PICTURES, SEQUENCES, SIZED, Layers
from gossamer.program import Program
from gossamer.spaces import Box, Spec
from gossamer.system.errors import UserError
from gossamer.system.machine import resolve_device
from gossamer.system.options import flag, shown
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


def device_of_run(name: str) -> str:
    """The device of a run for what comes after it, maybe on another machine: `auto` for a GPU that this one lacks."""
    if not name.startswith("cuda"):
        return name
    try:
        return device(name)
    except UserError:
        return "auto"


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
    """The program of this configuration. On a `cluster` each host resolves device, precision and threads by itself, but
    `auto` is the CPU where this machine has no GPU; the hosts of the cluster `local` share this machine's cores.

    Raises `UserError` for a device with an index (`cuda:1`) on a cluster, and for a program that saves no worker."""
    if cluster and config.run.device not in ("auto", "cpu", "cuda"):
        raise UserError(
            f"--device {config.run.device}: each host of a cluster numbers its own GPUs; use auto, cpu or cuda"
        )
    if cluster:
        computing = _computing(unresolved(config))
        sharing = computing.total() if cluster == "local" else max(computing.values(), default=1)
        none = resolve_device(config.run.device) == "cpu"  # `auto` without a GPU here: the hosts reserve none
        what = _task(config, "cpu" if none else config.run.device, sharing)
    else:
        what = task(config)
    wired = config.architecture.program(what)
    if not wired.saved_workers:
        raise UserError("the architecture saves no worker: wire each worker that learns with worker(..., saved=True)")
    return wired


def gpus(wired: Program, cluster: str | None) -> int:
    """How many GPUs of this machine the program uses, unless its hosts are other machines. Those of the cluster `local`
    take one each, as far as there are some."""
    hosts = sum(host.gpus > 0 for host in wired.hosts.values())
    if cluster is not None or not hosts:
        return min(hosts, torch.cuda.device_count() if cluster == "local" else 1)
    placed = {part.placed(copy.rank).device for copy in wired.crew for part in copy.node.args if isinstance(part, Task)}
    return len(placed - {"cpu"})


def learners(wired: Program) -> int:
    """Number of learners on all hosts together."""
    return len(demands(wired))


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


def demands(wired: Program) -> list[Demand]:
    """What each learner holds."""
    roles = [role(copy.node) for copy in wired.crew]
    return [each.demand for each in roles if each.demand is not None]


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
    for each in [share.env for share in env.shares] if isinstance(env, Games) else [env]:
        if isinstance(each, Custom) and each.is_vector:
            each.check_vector(workers)
        elif isinstance(env, Games) and isinstance(each, Gym | Custom) and 1 < workers < 2 * len(env.shares):
            raise UserError(
                f"--env-workers {workers}: has no effect, as {len(env.shares)} games have equal parts of them; use "
                f"{2 * len(env.shares)} or more"
            )
    for count in [envs.of_group(parts) for envs in acting(wired)]:
        if isinstance(env, Gym | Custom) and count % max(1, workers):
            of = "each actor" if parts == 1 else "each group of --alternating"
            raise UserError(
                f"--env-workers {workers}: must divide {count}, the environments of {of}: all step equally many"
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
    if parts and not any(part.picture for part in parts) and chosen.torso in OF_PICTURES:
        raise UserError(f"--network {chosen.torso}: has no effect, as {env} shows no pictures; use mlp or auto")
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
