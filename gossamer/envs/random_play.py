"""Uniformly random play in a few separate environments, and the mean observation measured in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from gossamer.data import Array
from gossamer.envs.base import EnvFactory, one_of_each
from gossamer.envs.games import games_of
from gossamer.envs.once import OncePerProcess
from gossamer.envs.watchdog import Silence, Watchdog
from gossamer.spaces import Spec
from gossamer.spaces.observations import MASK

BACKGROUND_ENVS = 4
BACKGROUND_STEPS = 250  # of each

_background = OncePerProcess[dict[str, Array]]()


def background(env: EnvFactory, seed: int, tell: Callable[[Silence], Any]) -> dict[str, Array]:
    """Return the mean observation [*O] (float32) of uniformly random play in four environments, 250 steps each, as
    {"": mean}; of observations with several parts the mean of each picture, by name. Of several games it is the mean of
    each [G, *O], and each has four environments or more.

    It is measured once per process and shared by the members there. `tell` is called if an environment hangs. Raises
    `ValueError` if a game has no environment."""

    def measure() -> dict[str, Array]:
        total: dict[str, Any] = {}
        count: Any = 0
        for spec, obs in play(env, BACKGROUND_ENVS * one_of_each(env), seed, BACKGROUND_STEPS, tell):
            games = _rows_of_games(spec, obs)
            count += np.array([len(rows) for rows in games])
            for name, part in _centred(spec, obs).items():
                total[name] = total.get(name, 0.0) + np.stack([part[rows].sum(0, dtype=np.float64) for rows in games])
        if not np.all(count):
            raise ValueError(f"{env.name}: no environment plays game {int(np.argmin(count))}: its mean is not known")
        means = {name: each / count.reshape(-1, *[1] * (each.ndim - 1)) for name, each in total.items()}
        return {name: np.asarray(mean if len(mean) > 1 else mean[0]).astype(np.float32) for name, mean in means.items()}

    return _background.get((env, seed), measure)


def _rows_of_games(spec: Spec, obs: Array) -> list[Array]:
    """The numbers of the observations of each game."""
    games = games_of(spec, obs)
    return [np.flatnonzero(games == game) for game in range(max(1, len(spec.games)))]


def _centred(spec: Spec, obs: Array) -> dict[str, Array]:
    """The parts [B, ...] of observations [B, *O] that networks centre."""
    if spec.layout is None:
        return {"": obs}
    return {part.name: spec.layout.array(obs, part.name) for part in spec.layout.parts if part.picture}


def play(
    env: EnvFactory, num_envs: int, seed: int, steps: int, tell: Callable[[Silence], Any]
) -> Iterator[tuple[Spec, Array]]:
    """Yield the observations [B, *O] of uniformly random play (of valid actions), B = `num_envs`: after the reset and
    after each step."""
    rng = np.random.default_rng(seed)
    with Watchdog(env.name, tell) as watchdog, closing(watchdog.watch(env.make(num_envs))) as playing:
        spec, obs = playing.spec, playing.reset(seed)
        yield spec, obs
        for _ in range(steps):
            obs = playing.step(random_actions(spec, rng, obs)).obs
            yield spec, obs


def random_actions(spec: Spec, rng: np.random.Generator, obs: Array) -> Array:
    """Draw uniformly random actions [B, *A], valid ones if the observations [B, *O] have a mask."""
    mask = spec.layout.array(obs, MASK) if spec.layout and MASK in spec.layout.places else None
    return spec.actions.random(rng, len(obs), mask)
