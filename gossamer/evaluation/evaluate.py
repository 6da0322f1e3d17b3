"""Plays whole games with a trained policy, under a named protocol."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from gossamer.config.build import environment, observed
from gossamer.data import Tree
from gossamer.envs.atari import Atari
from gossamer.envs.base import EnvFactory
from gossamer.envs.games import Games, each_game
from gossamer.evaluation.acting import acting, actions, task_here
from gossamer.evaluation.games import MAX_FRAMES, MAX_STEPS, figures, play_each
from gossamer.evaluation.games import Games as Played
from gossamer.evaluation.members import AVERAGE, average, choose, named
from gossamer.policy import NetworkPolicy, build
from gossamer.spaces import Spec
from gossamer.storage.checkpoint import Checkpoint, Store
from gossamer.storage.contents import CHECKPOINTS
from gossamer.storage.directory import load_config
from gossamer.storage.files import write_json
from gossamer.system.errors import UserError
from gossamer.system.paths import shown
from gossamer.task import Task
from gossamer.workers.member import means

Protocol = Literal["noop", "sticky"]


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted, unclipped returns of whole games."""

    mean_return: float  # of a policy for several games the mean of theirs, as often as each was played
    std_return: float  # of the games, not of the mean
    episodes: int
    protocol: str  # noop: up to 30 no-ops at the start; sticky: actions repeat with probability 0.25; plain: neither
    returns: list[float]
    steps: int  # training steps of the policy
    checkpoint: str
    greedy: bool
    member: str | None = None  # `average`, or the number of the member; None if there is only one
    cut_off: int = 0  # games that had not ended after `max_steps`; their returns include only these steps
    max_steps: int = MAX_STEPS
    epsilon: float | None = None  # probability of a random action; None: policies that do not act by values
    metrics: dict[str, float] = field(default_factory=dict)  # means of what the environment says of its games
    file: str | None = field(default=None, compare=False)  # that has it; None: not to be written, or it could not be
    games: dict[str, dict[str, Any]] | None = None  # name -> `mean_return`, `std_return`, `returns` and `cut_off`

    @property
    def actions(self) -> str:
        """How actions were chosen, in words."""
        return actions(self.greedy, self.epsilon)

    def to_dict(self) -> dict[str, Any]:
        """The content that `--json` prints."""
        found = asdict(self)
        del found["file"]
        if self.games is None:
            del found["games"]
        return found


def under(env: EnvFactory, protocol: Protocol | None = None) -> tuple[EnvFactory, str]:
    """The environment and name of a protocol: whole games of at most 108,000 frames (30 minutes). The default is sticky
    for an environment with sticky actions, else noop. Other than Atari environments have no protocol: a given one is
    ignored, with a message."""
    if isinstance(env, Games):
        each = [under(share.env, protocol) for share in env.shares]
        shares = tuple(replace(share, env=one) for share, (one, _) in zip(env.shares, each, strict=True))
        return replace(env, shares=shares), each[0][1]
    if not isinstance(env, Atari):
        if protocol is not None:
            print(f"--protocol {protocol} ignored: {env.name} is not an Atari game", file=sys.stderr)
        return env, "plain"
    whole = replace(env.preset, life_loss_ends=False, frame_cap=MAX_FRAMES)
    if (protocol or ("sticky" if whole.sticky else "noop")) == "noop":
        return replace(env, preset=replace(whole, noop_max=30, sticky=0.0)), "noop"
    return replace(env, preset=replace(whole, noop_max=0, sticky=0.25)), "sticky"


def load_policy(
    checkpoint: Checkpoint,
    what: Task,
    spec: Spec,
    *,
    member: str | int,
    greedy: bool,
    seed: int,
    tree: Tree | None = None,
) -> NetworkPolicy:
    """The policy of a checkpoint's member, or of their average. `tree`: its content, if it has been loaded. Raises
    `UserError` if there is no such member, or if its parameters do not fit the task or are not finite."""
    if not 0 <= seed < 2**31:
        raise UserError(f"--seed {seed}: must be at least 0 and below 2^31")
    model = build(what, spec)
    if tree is None:
        tree = checkpoint.load()
    _load(model, average(tree, choose(tree, member), dict(model.named_parameters())), checkpoint)
    rng = torch.Generator(what.device).manual_seed(seed)
    return NetworkPolicy(model, what.algorithm, rng, greedy)


def _load(model: nn.Module, weights: dict[str, torch.Tensor], checkpoint: Checkpoint) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise UserError(f"{checkpoint.path}: its parameters do not fit the run's config.json ({error})") from error
    bad = [name for name, tensor in model.state_dict().items() if not tensor.isfinite().all()]
    if bad:
        raise UserError(
            f"{checkpoint.path}: {bad[0]} is NaN or infinite: "
            "use an earlier checkpoint (--checkpoint best), or train again with a smaller learning rate"
        )


def evaluate(
    run_dir: str | PathLike[str],
    *,
    episodes: int = 30,
    max_steps: int | None = None,
    protocol: Protocol | None = None,
    checkpoint: str = "last",
    greedy: bool = False,
    epsilon: float | None = None,
    seed: int = 0,
    device: str | None = None,
    member: str | int = AVERAGE,
    game: str | None = None,
    env_workers: int = 0,
    write: bool = True,
) -> Evaluation:
    """Play `episodes` games with the run's policy. The games are divided equally among the environments, so that short
    games (lost ones) are not over-represented. A game is cut off after `max_steps` (default: 27,000; Atari games end at
    108,000 frames). The result is also written to `evaluation-PROTOCOL.json` in the run directory.

    `member` applies to runs with several members: `average` plays with the mean of their parameters, `best` is the
    member with the highest mean return of its last 100 training episodes, `0`, `1`, .. are single members. The result
    of a single member is written to `evaluation-PROTOCOL-NUMBER.json`.

    A policy for several games plays so many of each, or of `game` only.

    `greedy` takes the most probable actions, or those of the highest value. `epsilon`: probability of a random action,
    for algorithms that act by values; None is that of the run (`--epsilon-end`).

    `env_workers`: threads or processes that step the environments (0: the default of their kind); fewer processes if so
    many cannot step equally many environments. `write`: whether the result is written to the run directory."""
    if episodes < 1:
        raise UserError(f"--episodes {episodes}: must be at least 1")
    if max_steps is not None and max_steps < 1:
        raise UserError(f"--max-steps {max_steps}: must be at least 1")
    directory = Path(run_dir).absolute()  # environments may change the current directory
    config = load_config(directory)
    found = Store(directory / CHECKPOINTS).get(checkpoint)
    tree = found.load()  # once, because a run that still trains may remove the checkpoint while games are played
    what, epsilon = acting(task_here(config, device), greedy=greedy, epsilon=epsilon)
    factory, name = under(environment(config), protocol)
    played = play_each(
        {title: observed(one, config) for title, one in each_game(factory, game).items()},
        lambda spec: load_policy(found, what, spec, member=member, greedy=greedy, seed=seed, tree=tree),
        episodes,
        seed=what.stream("evaluate") ^ seed,
        device=what.device,
        what=f"evaluating {shown(directory)}",
        max_steps=max_steps,
        workers=env_workers,
    )
    for each in played.values():
        if each.note:
            print(each.note, file=sys.stderr)
    several = isinstance(factory, Games)
    whose = named(tree, choose(tree, member))
    result = Evaluation(
        **figures(played.values()),
        protocol=name,
        returns=[value for each in played.values() for value in each.returns],
        steps=found.steps,
        checkpoint=found.path.name,
        greedy=greedy,
        member=whose,
        max_steps=max(each.max_steps for each in played.values()),
        epsilon=epsilon,
        metrics=means([metrics for each in played.values() for metrics in each.told]),
        games={title: _of_game(each) for title, each in played.items()} if several else None,
    )
    if write:
        of_one = "" if whose in (None, AVERAGE) else f"-{whose}"
        in_one = f"-{game.replace('/', '-')}" if game is not None and several else ""
        return _kept(directory / f"evaluation-{name}{of_one}{in_one}.json", result)
    return result


def _of_game(games: Played) -> dict[str, Any]:
    """One of `Evaluation.games`."""
    found = figures([games])
    return {name: found[name] for name in ("mean_return", "std_return", "cut_off")} | {"returns": games.returns}


def _kept(file: Path, result: Evaluation) -> Evaluation:
    """The result, written to the run directory. If that fails, only print a message, so that the result is not lost."""
    try:
        write_json(file, result.to_dict())
    except OSError as error:
        print(f"cannot write {shown(file)}: {error.strerror}", file=sys.stderr)
        return result
    return replace(result, file=str(file))
