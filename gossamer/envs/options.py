"""Options of environments, one dataclass for each kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

from gossamer.envs import catalogue
from gossamer.envs.atari import Atari
from gossamer.envs.base import EnvFactory
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
    preprocessing: Literal["paac", "gala", "impala", "machado"] = option("Whose preprocessing of pictures.", "paac")
    screen_size: int = option("Height and width of pictures.", 84, least=16, most=210, measure="pixels")

    def factory(self) -> EnvFactory:
        env = catalogue.resolve(self.name, preset=self.preprocessing)
        return replace(env, preset=replace(env.preset, size=self.screen_size)) if isinstance(env, Atari) else env


@options
class PlainOptions:
    """Toys, Gymnasium ids and factories of the user's have no options."""

    name: str

    def factory(self) -> EnvFactory:
        return catalogue.resolve(self.name)


def kind_of(env: EnvFactory) -> type[AtariOptions] | type[PlainOptions]:
    """The options that such an environment has."""
    return AtariOptions if isinstance(env, Atari) else PlainOptions
