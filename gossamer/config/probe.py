"""What the defaults of options depend on, found out on one environment."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from gossamer.config.layers import Kind
from gossamer.envs.atari import Atari
from gossamer.envs.base import EnvFactory, Masking
from gossamer.envs.watchdog import Watchdog, complain
from gossamer.spaces import Box, Spec


@dataclass(frozen=True)
class Probe:
    """The kind of environment, and whether its infos have action masks."""

    kind: Kind
    masks: bool = False


def probe(env: EnvFactory) -> Probe:
    """Make one environment and look at it; one written in Python is also reset. Atari games are known."""
    if isinstance(env, Atari):
        return Probe("pixels")
    with Watchdog(env.name, complain) as watchdog, closing(watchdog.watch(env.make(1))) as made:
        return Probe(_kind(made.spec), isinstance(made, Masking) and made.gives_masks())


def _kind(spec: Spec) -> Kind:
    if spec.pixels:
        return "pixels"
    return "continuous" if isinstance(spec.actions, Box) else "vector"
