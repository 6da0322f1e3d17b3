"""Evaluates the average of all members and the best member at the end of a run (PALA's model aggregation)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gossamer.config.build import environment, observed
from gossamer.config.config import Config
from gossamer.envs.games import each_game
from gossamer.evaluation.acting import acting, actions, task_here
from gossamer.evaluation.evaluate import load_policy
from gossamer.evaluation.games import figures, play_each
from gossamer.evaluation.members import AVERAGE, best, rank, ranked
from gossamer.storage.checkpoint import Checkpoint
from gossamer.system.machine import single_threaded

EPISODES = 10  # whole games for each of the two, of all games together
PROTOCOL = "training: whole games in the training environment, {actions}, unclipped scores"


def aggregate(
    config: Config,
    checkpoint: Checkpoint,
    returns: dict[str, float | None],
    *,
    games: bool,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """For `result.json`: `members`, the mean return of each member's last 100 training episodes, and, with `games`, the
    returns of whole games of the `average` of all members and of the `best_member`. `note` is called if games were cut
    off."""
    able = checkpoint.load()["workers"] if games else returns  # a member may be lost with its host before it was saved
    first = best({worker: mean for worker, mean in returns.items() if worker in able})
    found: dict[str, Any] = {"members": {w: returns[w] for w in ranked(returns)}, "average": {}, "best_member": {}}
    if first is not None:
        found["best_member"] = {"member": str(rank(first)), "training_return": returns[first]}
    if games and able:
        found["average"] |= whole_games(config, checkpoint, AVERAGE, note)
        if first is not None:
            found["best_member"] |= whole_games(config, checkpoint, str(rank(first)), note)
    return found


def whole_games(config: Config, checkpoint: Checkpoint, member: str, note: Callable[[str], None]) -> dict[str, Any]:
    """Returns of whole games of a member, played as in training; of several games equally many of each."""
    what, envs = task_here(config), each_game(environment(config))
    _, epsilon = acting(what, greedy=False, epsilon=None)
    with single_threaded():
        played = play_each(
            {name: observed(env, config) for name, env in envs.items()},
            lambda spec: load_policy(checkpoint, what, spec, member=member, greedy=False, seed=config.run.seed),
            -(-EPISODES // len(envs)),
            seed=what.stream("aggregate"),
            device=what.device,
            what=f"whole games of member {member}",
        )
    for name, games in played.items():
        if games.note:
            note(f"member {member}: " + f"{name}: " * (len(envs) > 1) + games.note)
    each = {name: figures([games]) for name, games in played.items()}
    return {
        **figures(played.values()),
        "protocol": PROTOCOL.format(actions=actions(False, epsilon)),
        **({"games": each} if len(envs) > 1 else {}),
    }
