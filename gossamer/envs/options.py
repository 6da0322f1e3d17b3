"""Options of environments, one dataclass for each kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

from gossamer.envs import catalogue
from gossamer.envs.atari import GYMNASIUM, Atari
from gossamer.envs.base import EnvFactory
from gossamer.envs.gym import Custom, Gym
from gossamer.options import option, options


class EnvOptions(Protocol):
    """Which environment, and how it is set up."""

    @property
    def name(self) -> str: ...

    def factory(self) -> EnvFactory:
        """Makes such environments, wherever they are stepped."""


@options
class AtariOptions:
    """Options of an Atari game."""

    name: str
    preprocessing: Literal["paac", "gala", "impala", "machado", "gymnasium"] = option(
        "Whose preprocessing of pictures.", "paac"
    )
    screen_size: int = option("Height and width of pictures.", 84, least=16, most=210, measure="pixels")

    def factory(self) -> EnvFactory:
        env = catalogue.resolve(self.name, preset=self.preprocessing)
        return replace(env, preset=replace(env.preset, size=self.screen_size)) if isinstance(env, Atari) else env


@options
class AleOptions:
    """Options of an Atari game by its Gymnasium id, which says how it is played."""

    name: str
    screen_size: int = option("Height and width of pictures.", 84, least=16, most=210, measure="pixels")

    def factory(self) -> EnvFactory:
        return AtariOptions(self.name, "gymnasium", self.screen_size).factory()


@options
class GymOptions:
    """Options of Gymnasium ids and of factories of the user's."""

    name: str
    on_env_error: Literal["fail", "restart"] = option(
        "Where one fails: end with its error (what was learned is saved), or make it again and go on.", "fail"
    )

    def factory(self) -> EnvFactory:
        env = catalogue.resolve(self.name)
        return replace(env, on_error=self.on_env_error) if isinstance(env, Gym | Custom) else env


@options
class PlainOptions:
    """Toys have no options."""

    name: str

    def factory(self) -> EnvFactory:
        return catalogue.resolve(self.name)


def kind_of(env: EnvFactory) -> type[EnvOptions]:
    """The options that an environment has, as `catalogue.resolve` gives it for a name alone."""
    if isinstance(env, Atari):
        return AleOptions if env.preset == GYMNASIUM else AtariOptions
    return GymOptions if isinstance(env, Gym | Custom) else PlainOptions
