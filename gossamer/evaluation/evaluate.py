"""Play whole games with what was learned, under a named protocol."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from gossamer.config.build import environment, task
from gossamer.envs.atari import Atari
from gossamer.envs.base import EnvFactory, Spec
from gossamer.errors import UserError
from gossamer.evaluation.games import SIDE_BY_SIDE, play
from gossamer.evaluation.members import AVERAGE, average, choose
from gossamer.exchange import Alone
from gossamer.learner import build
from gossamer.policy import Replica
from gossamer.storage.checkpoint import Checkpoint, Store
from gossamer.storage.directory import load_config, write_json
from gossamer.task import Task

Protocol = Literal["noop", "sticky"]


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted, unclipped returns of whole games."""

    mean_return: float
    std_return: float  # of the games, not of the mean
    episodes: int
    protocol: str  # noop: up to 30 no-ops at the start; sticky: actions repeat with probability 0.25; plain: neither
    returns: list[float]
    steps: int  # of training, that the policy has seen
    checkpoint: str
    greedy: bool
    member: str | None = None  # `average`, or the number of the member that played; None where there is only one

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return asdict(self)


def under(env: EnvFactory, protocol: Protocol) -> tuple[EnvFactory, str]:
    """The environment as the protocol has it: whole games, 108,000 frames at most (30 minutes)."""
    if not isinstance(env, Atari):
        return env, "plain"
    whole = replace(env.preset, life_loss_ends=False, frame_cap=108_000)
    if protocol == "noop":
        return replace(env, preset=replace(whole, noop_max=30, sticky=0.0)), "noop"
    return replace(env, preset=replace(whole, noop_max=0, sticky=0.25)), "sticky"


def load_policy(
    checkpoint: Checkpoint, what: Task, spec: Spec, *, member: str, greedy: bool, seed: int
) -> tuple[Replica, str | None]:
    """The policy a checkpoint holds, and whose it is (`Evaluation.member`); `UserError` if there is no such member, or
    its parameters do not fit the task."""
    if not 0 <= seed < 2**31:
        raise UserError(f"--seed {seed}: must be at least 0 and below 2^31")
    model, tree = build(what, spec), checkpoint.load()
    whose = choose(tree, member)
    _load(model, average(tree, whose, dict(model.named_parameters())), checkpoint)
    rng = torch.Generator(what.device).manual_seed(seed)
    label = None if len(tree["workers"]) == 1 else AVERAGE if len(whose) > 1 else next(iter(whose.values()))
    return Replica(model, what.algorithm, Alone(), rng, greedy=greedy), label


def _load(model: nn.Module, weights: dict[str, torch.Tensor], checkpoint: Checkpoint) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise UserError(f"{checkpoint.path}: its parameters do not fit the run's config.json ({error})") from error


def evaluate(
    run_dir: str | Path,
    *,
    episodes: int = 30,
    protocol: Protocol = "noop",
    checkpoint: str = "last",
    greedy: bool = False,
    seed: int = 0,
    device: str | None = None,
    member: str = AVERAGE,
) -> Evaluation:
    """Play so many games with the run's policy. Every environment plays its share, so that quick games (lost ones)
    are not counted more often. The result is also written to `evaluation-PROTOCOL.json` in the run directory.

    `member`: of a run of many, `average` plays with the mean of their parameters, `best` is the one with the highest
    return of its last 100 training episodes, `0`, `1`, .. are single ones; what one of them played is written to
    `evaluation-PROTOCOL-NUMBER.json`."""
    if episodes < 1:
        raise UserError(f"--episodes {episodes}: must be at least 1")
    directory = Path(run_dir)
    config = load_config(directory)
    found = Store(directory / "checkpoints").get(checkpoint)
    what = task(config.with_run(device=device or config.run.device))
    factory, name = under(environment(config), protocol)
    if name == "plain":
        print(
            f"{config.env.name} is no Atari game: it starts as it does, --protocol {protocol} means nothing",
            file=sys.stderr,
        )
    side_by_side = min(episodes, SIDE_BY_SIDE)
    with closing(factory.make(side_by_side, workers=1 if side_by_side == 1 else 0)) as env:
        policy, whose = load_policy(found, what, env.spec, member=member, greedy=greedy, seed=seed)
        returns = play(policy, env, episodes, seed=what.stream("evaluate") ^ seed, device=what.device)
    result = Evaluation(
        mean_return=float(np.mean(returns)),
        std_return=float(np.std(returns)),
        episodes=len(returns),
        protocol=name,
        returns=returns,
        steps=found.steps,
        checkpoint=found.path.name,
        greedy=greedy,
        member=whose,
    )
    of_one = "" if whose in (None, AVERAGE) else f"-{whose}"
    write_json(directory / f"evaluation-{name}{of_one}.json", result.to_dict())
    return result
