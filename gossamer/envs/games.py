"""Several games at once. Each worker plays all of them: of its environments, each game has its share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

import numpy as np

from gossamer.data import Array, Step, Tree
from gossamer.envs.base import (
    EnvFactory,
    InTheMaking,
    Parted,
    Restarting,
    Resumable,
    Threaded,
    VectorEnv,
    Watchable,
    check_counts,
    threads_of,
)
from gossamer.envs.numbered import Numbered
from gossamer.envs.union import Union
from gossamer.spaces import Spec
from gossamer.spaces.observations import GAME
from gossamer.system.errors import UserError
from gossamer.system.processes import cores


@dataclass(frozen=True)
class Share:
    """A game, and how many of each `Games.period` environments play it."""

    env: EnvFactory
    count: int = 1

    def __str__(self) -> str:
        return self.env.name if self.count == 1 else f"{self.env.name}:{self.count}"


@dataclass(frozen=True)
class Games:
    """Several games, which one network plays. See `Union` for observations and actions."""

    shares: tuple[Share, ...]
    only: int | None = None  # all environments play the game with this number; None: each has its share

    @property
    def name(self) -> str:
        return ",".join(map(str, self.shares)) if self.only is None else self.names[self.only]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the games."""
        return tuple(share.env.name for share in self.shares)

    @property
    def period(self) -> int:
        """See `Several`."""
        return sum(share.count for share in self.shares) if self.only is None else 1

    def alone(self, game: int) -> Games:
        """Environments of one game, for the same network."""
        return replace(self, only=game)

    def counts(self, num_envs: int) -> list[int]:
        """Environments of each game among so many."""
        if self.only is not None:
            return [num_envs if game == self.only else 0 for game in range(len(self.shares))]
        whole, rest = divmod(num_envs, self.period)
        found = []
        for share in self.shares:
            found.append(whole * share.count + min(rest, share.count))
            rest -= min(rest, share.count)
        return found

    def places(self, num_envs: int) -> list[int]:
        """See `Several`."""
        return [k * num_envs // count for count in self.counts(num_envs) for k in range(count)]

    def threads(self, sharing: int) -> int:
        """See `Threaded`; 0 if the games of a worker do not all have native threads."""
        natives = [isinstance(share.env, Threaded) for share in self.shares]
        return threads_of(self.shares[0].env, sharing) if all(natives) else 0

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """See `EnvFactory.make`. Each game that is played gets an equal part of the `workers`, at least one. Raises
        `UnsupportedSpace` if one network cannot play the games."""
        check_counts(num_envs, workers)
        counts = self.counts(num_envs)
        native = self.threads(1) > 0
        played = sum(count > 0 for count in counts)
        each = max(1, -(-(workers or cores()) // played)) if native else workers // played
        with ExitStack() as stack:
            made, specs = list[tuple[int, VectorEnv]](), list[Spec]()
            for game, (share, count) in enumerate(zip(self.shares, counts, strict=True)):
                if count == 0:
                    specs.append(_spec_of(share.env))
                    continue
                stepped_by = each if native else next(n for n in range(max(1, each), 0, -1) if count % n == 0)
                env = stack.enter_context(closing(share.env.make(count, workers=stepped_by, render=render)))
                made.append((game, env))
                specs.append(env.spec)
            vector = GamesVector(Union(self.names, specs), made)
            stack.pop_all()
        return vector


class GamesVector:
    """B environments of several games, those of a game side by side.

    It is `Watchable` and `Restarting` if environments of some games are, and `Resumable` if those of all are."""

    def __init__(self, union: Union, envs: Sequence[tuple[int, VectorEnv]]) -> None:
        """`envs`: environments with the numbers of their games, in order."""
        self._union, self.spec = union, union.spec
        self._envs, self._rows, first = list[tuple[int, VectorEnv]](), list[slice](), 0
        for game, env in envs:
            self._envs.append((game, Numbered(env, first) if first else env))
            self._rows.append(slice(first, first + env.num_envs))
            first += env.num_envs
        self.num_envs = first
        self._close = [env.close for _, env in envs]
        # Instance attributes, so that `isinstance` finds a protocol's methods if the environments have them.
        inner = [env for _, env in self._envs]
        self._parted = [env if isinstance(env, Parted) else None for env in inner]
        if watched := [env for env in inner if isinstance(env, Watchable)]:
            self.calls = lambda: [call for env in watched for call in env.calls()]
        if restarting := [env for env in inner if isinstance(env, Restarting)]:
            self.failures = lambda: tuple(error for env in restarting for error in env.failures())
        making = [env.made for env in inner if isinstance(env, InTheMaking)]
        if making:
            others = sum(env.num_envs for env in inner if not isinstance(env, InTheMaking))
            self.made = lambda: others + sum(made() for made in making)
        resumable = [env for env in inner if isinstance(env, Resumable)]
        if len(resumable) == len(inner):
            self._resumable = resumable
            self.state_dict, self.load_state_dict = self._state_dict, self._load_state_dict

    def reset(self, seed: int) -> Array:
        seeds = np.random.SeedSequence(seed).generate_state(len(self.spec.games), np.uint32) >> 1
        return np.concatenate([self._union.pack(game, env.reset(int(seeds[game]))) for game, env in self._envs])

    def step(self, action: Array) -> Step:
        """See `VectorEnv.step`. Raises `ValueError` for an action that the game does not have."""
        own = [self._union.own(game, action[rows]) for (game, _), rows in zip(self._envs, self._rows, strict=True)]
        for parted, actions in zip(self._parted, own, strict=True):
            if parted is not None:
                parted.send(actions)
        steps = [
            env.step(actions) if parted is None else parted.receive()
            for (_, env), parted, actions in zip(self._envs, self._parted, own, strict=True)
        ]
        joined = {
            name: np.concatenate([getattr(step, name) for step in steps])
            for name in ("reward", "score", "terminated", "truncated", "over")
        }
        metrics = {
            rows.start + b: told
            for rows, step in zip(self._rows, steps, strict=True)
            for b, told in step.metrics.items()
        }
        games = [game for game, _ in self._envs]
        obs = np.concatenate([self._union.pack(game, step.obs) for game, step in zip(games, steps, strict=True)])
        return Step(obs, **joined, final_obs=self._final_obs(steps), metrics=metrics)

    def _final_obs(self, steps: Sequence[Step]) -> Array | None:
        """The last observations of truncated episodes; of games without any, zeros."""
        if all(step.final_obs is None for step in steps):
            return None
        found = np.zeros((self.num_envs, *self.spec.obs_shape), self.spec.obs_dtype)
        for (game, _), rows, step in zip(self._envs, self._rows, steps, strict=True):
            if step.final_obs is not None:
                found[rows] = self._union.pack(game, step.final_obs)
        return found

    def frames(self) -> Array:
        """See `VectorEnv`. Raises `RuntimeError` if the games' screens have different sizes."""
        frames = [env.frames() for _, env in self._envs]
        if len({frame.shape[1:] for frame in frames}) > 1:
            raise RuntimeError("the games have screens of different sizes: show one of them")
        return np.concatenate(frames)

    def close(self) -> None:
        with ExitStack() as stack:
            for close in self._close:
                stack.callback(close)

    def _state_dict(self) -> Tree:
        return {"games": [env.state_dict() for env in self._resumable]}

    def _load_state_dict(self, state: Tree) -> None:
        for env, own in zip(self._resumable, state["games"], strict=True):
            env.load_state_dict(own)


def each_game(env: EnvFactory, game: str | None = None) -> dict[str, EnvFactory]:
    """Environments of each game alone, by name: of several games of all, or of `game`; of one, of that one. Raises
    `UserError` for a game that is none of them."""
    if not isinstance(env, Games):
        if game not in (None, env.name):
            raise UserError(f"--game {game}: the policy plays {env.name} only; leave it out")
        return {env.name: env}
    if game is not None and game not in env.names:
        raise UserError(f"--game {game}: the policy plays {', '.join(env.names)}; give one of these")
    chosen = range(len(env.names)) if game is None else [env.names.index(game)]
    return {env.names[number]: env.alone(number) for number in chosen}


def rules_of(env: EnvFactory) -> EnvFactory:
    """The factory of the game that all environments play; of several games, of the first."""
    return env.shares[env.only or 0].env if isinstance(env, Games) else env


def games_of(spec: Spec, obs: Array) -> Array:
    """The number of the game [B] of each of the observations [B, *O]; zeros if there is only one."""
    if not spec.games or spec.layout is None:
        return np.zeros(len(obs), np.int64)
    number: Array = spec.layout.array(obs, GAME).argmax(-1)
    return number


def _spec_of(env: EnvFactory) -> Spec:
    with closing(env.make(1)) as one:
        return one.spec
