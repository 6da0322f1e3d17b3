"""Plays whole games in parallel, each up to a limit of steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rich.console import Console

from gossamer.envs.atari import Atari
from gossamer.envs.base import EnvFactory, Restarting, VectorEnv
from gossamer.envs.games import rules_of
from gossamer.envs.gym import Custom, Gym
from gossamer.envs.last import LastActionReward
from gossamer.envs.watchdog import Watchdog, complain
from gossamer.nn.memory import reset
from gossamer.policy import ActorPolicy
from gossamer.spaces import Spec
from gossamer.system.streams import redrawn

SIDE_BY_SIDE = 32  # games in parallel
MAX_FRAMES = 108_000  # of an Atari game: half an hour at 60 frames per second
MAX_STEPS = 27_000  # of a game in any other environment: the same number of decisions, at 4 frames each
NEWS = 50  # steps between two progress messages


@dataclass
class Games:
    """The games that were played."""

    max_steps: int
    returns: list[float] = field(default_factory=list)  # undiscounted, unclipped
    cut_off: int = 0  # games that had not ended at the limit; their returns include only the steps before
    failures: int = 0  # of environments: the games that they ended do not count
    told: list[Mapping[str, float]] = field(default_factory=list)  # what environments said of games that ended

    @property
    def note(self) -> str:
        """A message about games that were cut off or failed; empty if there were none."""
        notes = []
        if self.cut_off:
            which = f"{self.cut_off} of {len(self.returns)} games"
            notes.append(f"{which} were cut off after {self.max_steps:,} steps; their returns include only these steps")
        if self.failures:
            notes.append(f"environments failed {self.failures} times; the games that this ended do not count")
        return "; ".join(notes)


def limit(env: EnvFactory) -> int:
    """Default number of steps after which a game is cut off. Atari games end by themselves at their frame cap."""
    rules = rules_of(env.env if isinstance(env, LastActionReward) else env)
    return -(-rules.preset.frame_cap // rules.preset.frame_skip) if isinstance(rules, Atari) else MAX_STEPS


def steppers(env: EnvFactory, num_envs: int, workers: int) -> int:
    """At most so many `workers` for these environments. Processes, which step environments in Python, all step equally
    many."""
    alone = env.env if isinstance(env, LastActionReward) else env
    if num_envs == 1:
        return 1
    if isinstance(alone, Gym) or (isinstance(alone, Custom) and not alone.is_vector):
        return next((n for n in range(min(workers, num_envs), 0, -1) if num_envs % n == 0), workers)
    return workers


def play_each(
    envs: Mapping[str, EnvFactory],
    policy: Callable[[Spec], ActorPolicy],
    episodes: int,
    *,
    seed: int,
    device: str,
    what: str,
    max_steps: int | None = None,
    workers: int = 0,
) -> dict[str, Games]:
    """Play `episodes` games in each of these environments, by name; see `play`. `policy` makes the policy for an
    environment. `what`: the text that a terminal shows meanwhile; `workers`: at most so many, see
    `EnvFactory.make`."""
    side_by_side, found = min(episodes, SIDE_BY_SIDE), dict[str, Games]()
    for name, factory in envs.items():
        each = steppers(factory, side_by_side, workers)
        with (
            Watchdog(name, complain) as watchdog,
            closing(watchdog.watch(factory.make(side_by_side, workers=each))) as env,
            shown(what + f" in {name}" * (len(envs) > 1)) as tell,
        ):
            found[name] = play(
                policy(env.spec),
                env,
                episodes,
                max_steps=max_steps or limit(factory),
                seed=seed,
                device=device,
                tell=tell,
            )
    return found


def figures(played: Collection[Games]) -> dict[str, Any]:
    """`mean_return`, `std_return` (of the games, not of the mean), `episodes` and `cut_off` of all that were played."""
    returns = [value for games in played for value in games.returns]
    return {
        "mean_return": float(np.mean(returns)),
        "std_return": float(np.std(returns)),
        "episodes": len(returns),
        "cut_off": sum(games.cut_off for games in played),
    }


def play(
    policy: ActorPolicy,
    env: VectorEnv,
    episodes: int,
    *,
    max_steps: int,
    seed: int,
    device: str,
    tell: Callable[[str], None] = lambda text: None,
) -> Games:
    """Play `episodes` games. They are divided equally among the environments, so that short games (lost ones) are not
    over-represented. `tell` is called regularly with the progress.

    A game that is cut off cannot be ended, because environments reset only by themselves. It continues uncounted. When
    only such games are running, all environments are reset for the games that remain.

    A game that ends because its environment fails, and is restarted, does not count. Raises `EnvironmentFailed` after
    more failures than games are to be played."""
    games, due = Games(max_steps), np.full(env.num_envs, episodes // env.num_envs)
    due[: episodes % env.num_envs] += 1
    rounds = np.random.SeedSequence(seed)
    obs, score, length = env.reset(seed), np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
    memory = policy.initial_state(env.num_envs)
    left_over = np.zeros(env.num_envs, bool)  # in a game that was cut off
    steps, restarting = 0, env if isinstance(env, Restarting) else None
    while due.any():
        if not (due[~left_over] > 0).any():
            obs = env.reset(int(rounds.spawn(1)[0].generate_state(1)[0] >> 1))
            memory = policy.initial_state(env.num_envs)
            score[:], length[:], left_over[:] = 0.0, 0, False
        answer, memory = policy(torch.from_numpy(obs).to(device), memory)
        step = env.step(answer.action.cpu().numpy())
        if memory:
            memory = reset(memory, torch.from_numpy(step.over).to(device))
        failures = () if restarting is None else restarting.failures()
        games.failures += len(failures)
        if games.failures > episodes:
            raise failures[-1]
        failed = step.truncated if failures else np.zeros(env.num_envs, bool)  # a process may have ended several games
        obs, score, length, steps = step.obs, score + step.score, length + 1, steps + 1
        cut = ~step.over & (length >= max_steps)
        for b in np.flatnonzero((step.over | cut) & (due > 0) & ~left_over & ~failed):
            games.returns.append(float(score[b]))
            games.cut_off += bool(cut[b])
            games.told += [step.metrics[int(b)]] if int(b) in step.metrics else []
            due[b] -= 1
        left_over = (left_over | cut) & ~step.over
        score[step.over], length[step.over] = 0.0, 0
        if steps % NEWS == 0:
            tell(f"{len(games.returns)} of {episodes} games have ended, {steps:,} steps of each environment")
    return games


@contextmanager
def shown(what: str) -> Iterator[Callable[[str], None]]:
    """Yields a `tell` for `play`, which shows the progress on a terminal and does nothing elsewhere."""
    console = Console(stderr=True)
    if not redrawn(console):
        yield lambda text: None
        return
    with console.status(what) as status:
        yield lambda text: status.update(f"{what}: {text}")
