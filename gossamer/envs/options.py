"""Command-line options of environments, one dataclass per kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

from gossamer.envs import catalogue
from gossamer.envs.atari import GYMNASIUM, Atari
from gossamer.envs.base import EnvFactory
from gossamer.envs.gym import Custom, Gym
from gossamer.options import option, options


class EnvOptions(Protocol):
    """Options of one kind of environment."""

    @property
    def name(self) -> str: ...

    def factory(self) -> EnvFactory:
        """Return the factory for these options."""


@options
class AtariOptions:
    """Options of an Atari game."""

    name: str
    preprocessing: Literal["paac", "gala", "impala", "machado", "gymnasium"] = option(
        "Preprocessing, as in this publication.", "paac"
    )
    screen_size: int = option("Height and width of pictures.", 84, least=16, most=210, measure="pixels")

    def factory(self) -> EnvFactory:
        env = catalogue.resolve(self.name, preset=self.preprocessing)
        return replace(env, preset=replace(env.preset, size=self.screen_size)) if isinstance(env, Atari) else env


@options
class AleOptions:
    """Options of an Atari game by its Gymnasium id, which determines the preprocessing."""

    name: str
    screen_size: int = option("Height and width of pictures.", 84, least=16, most=210, measure="pixels")

    def factory(self) -> EnvFactory:
        return AtariOptions(self.name, "gymnasium", self.screen_size).factory()


@options
class GymOptions:
    """Options of Gymnasium ids and user-defined factories."""

    name: str
    on_env_error: Literal["fail", "restart"] = option(
        "If an environment fails: save and end with its error, or restart the environment.", "fail"
    )

    def factory(self) -> EnvFactory:
        env = catalogue.resolve(self.name)
        return replace(env, on_error=self.on_env_error) if isinstance(env, Gym | Custom) else env


@options
class PlainOptions:
    """Toy environments, which have no options."""

    name: str

    def factory(self) -> EnvFactory:
        return catalogue.resolve(self.name)


def kind_of(env: EnvFactory) -> type[EnvOptions]:
    """Return the options class of an environment that `catalogue.resolve` returned without a preset."""
    if isinstance(env, Atari):
        return AleOptions if env.preset == GYMNASIUM else AtariOptions
    return GymOptions if isinstance(env, Gym | Custom) else PlainOptions
