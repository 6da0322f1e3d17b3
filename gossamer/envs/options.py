"""Command-line options of environments, one dataclass per kind."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal, Protocol

from gossamer.envs import catalogue
from gossamer.envs.atari import GYMNASIUM, Atari
from gossamer.envs.base import EnvFactory
from gossamer.envs.games import Games
from gossamer.envs.gym import Custom, Gym
from gossamer.envs.once import gives_masks
from gossamer.envs.pool import EnvPool
from gossamer.spaces import Bounds
from gossamer.system.errors import UserError
from gossamer.system.kwargs import checked
from gossamer.system.options import option, options

SCREEN_SIZE = partial(
    option, "Height of pictures, and their width without --screen-width.", 84, least=16, most=210, measure="pixels"
)
SCREEN_WIDTH = partial(
    option,
    "Width of pictures. Sizes that divide the screen's, 210x160 in most games, are fastest.",
    None,
    least=16,
    most=210,
    measure="pixels",
    unset="that of --screen-size",
)
FRAME_STACK = partial(
    option,
    "Newest pictures in an observation; 1 suits a policy with memory.",
    4,
    least=1,
    most=16,
    measure="pictures",
)
ENV_PROCESSES = partial(
    option,
    "Processes that play the games of an actor, at most one for each game, and make them at the same time; 0: threads "
    "of the actor's own process.",
    None,
    least=0,
    most=1024,
    unset="0 on two cores, in scripts and on Ray, else one for two threads and eight games",
)
PREPROCESSING = partial(option, "Preprocessing, as in this publication.", "paac")
ON_ENV_ERROR = partial(
    option, "If an environment fails: save and end with its error, or restart the environment.", "fail"
)
ACTION_BOUNDS = partial(
    option,
    "Continuous actions out of range: clip them (SB3, CleanRL), map all numbers into the range by tanh, or pass "
    "them on.",
    "clip",
)


class EnvOptions(Protocol):
    """Options of one kind of environment."""

    @property
    def name(self) -> str: ...

    def factory(self) -> EnvFactory:
        """Return the factory for these options."""


FULL_ACTION_SPACE = partial(option, "Every game has all 18 actions, also those that it does not use.", False)
CLIP_REWARDS = partial(option, "Learn from rewards clipped to -1 .. 1.", True)


@options
class AtariOptions:
    """Options of an Atari game, or of several, which are preprocessed alike."""

    name: str
    preprocessing: Literal["paac", "gala", "impala", "machado", "gymnasium"] = PREPROCESSING()
    screen_size: int = SCREEN_SIZE()
    screen_width: int | None = SCREEN_WIDTH()
    frame_stack: int = FRAME_STACK()
    env_processes: int | None = ENV_PROCESSES()
    full_action_space: bool = FULL_ACTION_SPACE()
    clip_rewards: bool = CLIP_REWARDS()

    def factory(self) -> EnvFactory:
        env = catalogue.resolve(self.name, preset=self.preprocessing)
        if not isinstance(env, Games):
            return self._one(env)
        return replace(env, shares=tuple(replace(share, env=self._one(share.env)) for share in env.shares))

    def _one(self, env: EnvFactory) -> EnvFactory:
        if not isinstance(env, Atari):
            return env
        made = replace(
            env.preset,
            size=self.screen_size,
            width=self.screen_width,
            stack=self.frame_stack,
            full_actions=self.full_action_space or env.preset.full_actions,
            clip_reward=self.clip_rewards,
        )
        return replace(env, preset=made, processes=self.env_processes)


@options
class AleOptions:
    """Options of an Atari game by its Gymnasium id, which determines the preprocessing."""

    name: str
    screen_size: int = SCREEN_SIZE()
    screen_width: int | None = SCREEN_WIDTH()
    frame_stack: int = FRAME_STACK()
    env_processes: int | None = ENV_PROCESSES()
    full_action_space: bool = FULL_ACTION_SPACE()
    clip_rewards: bool = CLIP_REWARDS()

    def factory(self) -> EnvFactory:
        return AtariOptions(preprocessing="gymnasium", **asdict(self)).factory()


@options
class GymOptions:
    """Options of Gymnasium ids and user-defined factories."""

    name: str
    env_kwargs: dict[str, Any] | None = option(
        "Arguments of gymnasium.make or of your factory, as in map_name=8x8 is_slippery=false.", None, unset="none"
    )
    on_env_error: Literal["fail", "restart"] = ON_ENV_ERROR()
    action_masks: bool = option('The environment gives info["action_mask"]: the valid actions.', False)
    action_bounds: Bounds = ACTION_BOUNDS()

    def __post_init__(self) -> None:
        object.__setattr__(self, "env_kwargs", checked(self.env_kwargs))

    def factory(self) -> EnvFactory:
        env = with_kwargs(catalogue.resolve(self.name), self.env_kwargs)
        if not isinstance(env, Gym | Custom | EnvPool):
            return env
        return replace(env, on_error=self.on_env_error, masks=self.action_masks, bounds=self.action_bounds)


@options
class PlainOptions:
    """Toy environments, which have no options."""

    name: str

    def factory(self) -> EnvFactory:
        return catalogue.resolve(self.name)


def with_kwargs(env: EnvFactory, kwargs: Any) -> EnvFactory:
    """This environment, made with these keyword arguments if it takes any. Raises as `kwargs.checked`."""
    if not isinstance(env, Gym | Custom | EnvPool):
        return env
    return replace(env, kwargs=tuple((checked(kwargs) or {}).items()))


@options
class GamesOptions:
    """Options of several games that are not Atari's: of each one that is a Gymnasium id or a user-defined factory."""

    name: str
    on_env_error: Literal["fail", "restart"] = ON_ENV_ERROR()
    action_masks: bool = option('Use info["action_mask"], the valid actions, of the games that give it.', False)
    action_bounds: Bounds = ACTION_BOUNDS()

    def factory(self) -> EnvFactory:
        games = catalogue.resolve(self.name)
        if not isinstance(games, Games):
            return games
        made = replace(games, shares=tuple(replace(share, env=self._one(share.env)) for share in games.shares))
        if self.action_masks and not any(getattr(share.env, "masks", False) for share in made.shares):
            raise UserError('--action-masks: none of the games gives info["action_mask"]; leave it out')
        return made

    def _one(self, env: EnvFactory) -> EnvFactory:
        if not isinstance(env, Gym | Custom | EnvPool):
            return env
        masks = self.action_masks and gives_masks(env)
        return replace(env, on_error=self.on_env_error, masks=masks, bounds=self.action_bounds)


def kind_of(env: EnvFactory) -> type[EnvOptions]:
    """Return the options class of an environment that `catalogue.resolve` returned without a preset."""
    if isinstance(env, Games):
        return AtariOptions if all(isinstance(share.env, Atari) for share in env.shares) else GamesOptions
    if isinstance(env, Atari):
        return AleOptions if env.preset == GYMNASIUM else AtariOptions
    return GymOptions if isinstance(env, Gym | Custom | EnvPool) else PlainOptions


def stored_kind(name: str, fields: Collection[str]) -> type[EnvOptions]:
    """Return the options class of an environment in a file with these fields. Imports nothing: a file can be read where
    the environment's module or package is absent."""
    if "," in name or name.partition(":")[0] in catalogue.SETS:
        return AtariOptions if "preprocessing" in fields else GamesOptions
    if name in {toy.name for toy in catalogue.TOYS}:
        return PlainOptions
    if name.startswith(catalogue.ALE):
        return AleOptions
    game = re.fullmatch(r"[a-z][a-z0-9_]*", name) and "on_env_error" not in fields  # an id of Gymnasium can look alike
    return AtariOptions if game else GymOptions
