"""What the members of a run play at its end: their average, and the best of them (PALA's model aggregation)."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np

from gossamer.config.build import environment, task
from gossamer.config.config import Config
from gossamer.evaluation.evaluate import load_policy
from gossamer.evaluation.games import play
from gossamer.evaluation.members import AVERAGE, best, rank, ranked
from gossamer.machine import single_threaded
from gossamer.storage.checkpoint import Checkpoint

EPISODES = 10  # whole games each
PROTOCOL = "training: whole games in the training environment, sampled actions, unclipped scores"


def aggregate(
    config: Config, checkpoint: Checkpoint, returns: dict[str, float | None], *, games: bool
) -> dict[str, Any]:
    """For `result.json`: `members`, the mean return of each one's last 100 training episodes; and what the `average` of
    all and the `best_member` play in whole games, unless without `games`."""
    able = checkpoint.load()["workers"] if games else returns  # one may have been lost with its host, unsaved
    first = best({worker: mean for worker, mean in returns.items() if worker in able})
    found: dict[str, Any] = {"members": {w: returns[w] for w in ranked(returns)}, "average": {}, "best_member": {}}
    if first is not None:
        found["best_member"] = {"member": str(rank(first)), "training_return": returns[first]}
    if games:
        found["average"] |= whole_games(config, checkpoint, AVERAGE)
        if first is not None:
            found["best_member"] |= whole_games(config, checkpoint, str(rank(first)))
    return found


def whole_games(config: Config, checkpoint: Checkpoint, member: str) -> dict[str, Any]:
    """Returns of whole games that a member plays as in training."""
    what = task(config)
    with single_threaded(), closing(environment(config).make(EPISODES)) as env:
        policy, _ = load_policy(checkpoint, what, env.spec, member=member, greedy=False, seed=config.run.seed)
        returns = play(policy, env, EPISODES, seed=what.stream("aggregate"), device=what.device)
    return {
        "mean_return": float(np.mean(returns)),
        "std_return": float(np.std(returns)),
        "episodes": EPISODES,
        "protocol": PROTOCOL,
    }
