"""Presets: layers of defaults that an architecture or an algorithm has in its class attribute `presets`.

class PAAC:
    presets = (
        Layer("tuned on Pong: few environments", {"num_envs": 16}, kind="pixels", beside=("ppo",)),
        Layer("PAAC as published", {"num_envs": 32, "steps": 80_000_000}, preset="paper", beside=("a2c",)),
    )

A layer sets options of any part, by their names on the command line. Options that no part of a composition has are left
out. `gossamer.config.presets` orders the layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

# Of environments: pictures; else vectors, with continuous actions or not. Some have a second kind: pictures with
# continuous actions, pictures too small for the networks of papers, whatever is no Atari game, and vectors of few
# numbers with finite bounds; and several games
EnvKind: TypeAlias = Literal[
    "pixels", "vector", "continuous", "continuous pixels", "tiny pixels", "not atari", "bounded", "games"
]
Preset: TypeAlias = Literal["tuned", "paper", "accelerated"]
# (values of all options so far, names of those that the user gave) -> options derived from them
Rule: TypeAlias = Callable[[Mapping[str, Any], Collection[str]], dict[str, Any]]


@dataclass(frozen=True)
class Layer:
    """Options, one line on their source, rules that derive options from others, and where all of it applies.

    `options` may have the optimizer's name, `optimizer`, with options of that one."""

    why: str
    options: Mapping[str, Any] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    preset: Preset | None = "tuned"  # None: both
    kind: EnvKind | None = None  # of environments; None: all
    beside: tuple[str, ...] = ()  # an algorithm's: only in these architectures; an architecture's: only with these
    # algorithms; empty: with all

    def applies(self, preset: str, kinds: Collection[EnvKind], beside: str) -> bool:
        """Whether it is for this preset, for an environment of these kinds, and for the other part of this name."""
        if self.preset not in (None, preset) or (self.beside and beside not in self.beside):
            return False
        return self.kind is None or self.kind in kinds


def presets_of(kind: type) -> tuple[Layer, ...]:
    """The layers of a part; one of a user's may have none."""
    found: tuple[Layer, ...] = getattr(kind, "presets", ())
    return found


def algorithms_of(architecture: type) -> tuple[str, ...]:
    """The names of the algorithms that an architecture is for, its default first: its class attribute `algorithms`.
    Empty if it has none."""
    found: tuple[str, ...] = getattr(architecture, "algorithms", ())
    return found
