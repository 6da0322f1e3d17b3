"""Several games: numbers of environments of which each has exactly its share, and the scale of their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice
from typing import Any

from gossamer.algorithms.rescaling import OF_RETURNS
from gossamer.config.build import acting, environment, groups, unresolved
from gossamer.config.config import Config
from gossamer.envs.games import Games
from gossamer.program import Program
from gossamer.system.errors import UserError
from gossamer.system.options import declared

TRIED = 256  # multiples of the shares; beyond those of any architecture's workers


def check_games(config: Config, wired: Program) -> None:
    """Raise `UserError` unless each game has exactly its share of the environments of each group of each actor."""
    games = environment(config)
    if not isinstance(games, Games) or _fits(config, wired, games):
        return
    each = acting(wired)[0].count
    of = "each actor" if groups(config) == 1 else "each actor, with two equal groups (--alternating),"
    enough = None
    if "num_envs" in declared(type(config.architecture)):
        part: Any = config.architecture

        def changed(num_envs: int) -> Config:
            return replace(config, architecture=replace(part, num_envs=num_envs))

        enough = fitting(changed, part.num_envs, games.period)
    advice = f"use --num-envs {enough}" if enough else f"give each a multiple of {games.period}"
    raise UserError(
        f"--env {games.name}: {of} has {each} environments, no multiple of {games.period}, the sum of the games' "
        f"shares; {advice}"
    )


def fitting(changed: Callable[[int], Config], least: int, period: int) -> int | None:
    """The first number of environments from `least` on with which each game has its share; None if there is none
    nearby. `period`: the sum of the shares, of which it is a multiple."""
    for number in islice(count(-(-least // period) * period, period), TRIED):
        try:
            config = changed(number)
            games = environment(config)
            if isinstance(games, Games) and _fits(config, unresolved(config), games):
                return number
        except UserError:  # the architecture cannot deal so many to its actors
            continue
    return None


def unscaled(config: Config) -> str | None:
    """A line for several games whose returns are not brought to a common scale; else None."""
    rescaled = getattr(config.algorithm, "scale", OF_RETURNS) != OF_RETURNS
    if config.network.normalize_returns or rescaled or getattr(config.env, "clip_rewards", False):
        return None
    if not isinstance(environment(config), Games):
        return None
    return "the games' returns are not on a common scale: the game with the largest counts most (docs/games.md)"


def _fits(config: Config, wired: Program, games: Games) -> bool:
    parts = groups(config) * games.period
    return all(envs.count % parts == 0 for envs in acting(wired))
