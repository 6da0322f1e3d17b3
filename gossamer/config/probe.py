"""What the defaults of options depend on, found out on one environment."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from gossamer.envs.atari import Atari
from gossamer.envs.base import EnvFactory, Masking
from gossamer.envs.games import Games
from gossamer.envs.watchdog import Watchdog, complain
from gossamer.presets.layers import EnvKind
from gossamer.spaces import Box, Spec
from gossamer.system.errors import EnvironmentFailed
from gossamer.system.paths import staying

LEAST_SIDE = 36  # pixels; `nature` needs so many, `nips` fewer
MOST_NUMBERS = 4  # of a vector, for which a grid over all of them is not too large


@dataclass(frozen=True)
class Probe:
    """The kind of environment, and whether its infos have action masks."""

    kind: EnvKind
    masks: bool = False
    continuous: bool = False  # actions
    tiny: bool = False  # pictures that are too small for the networks of papers
    atari: bool = False
    bounded: bool = False  # a vector of few numbers with finite bounds
    games: bool = False  # several games

    @property
    def kinds(self) -> set[EnvKind]:
        """Every kind that it is of."""
        pixels = self.kind == "pixels"
        more: dict[EnvKind, bool] = {
            "continuous pixels": pixels and self.continuous,
            "tiny pixels": pixels and self.tiny,
            "not atari": not self.atari,
            "bounded": self.bounded,
            "games": self.games,
        }
        return {self.kind, *(kind for kind, true in more.items() if true)}


@staying()
def probe(env: EnvFactory) -> Probe:
    """Make one environment and look at it; one written in Python is also reset. Atari games are known."""
    if isinstance(env, Games):
        each = [probe(share.env) for share in env.shares]
        with closing(env.make(1)):  # refuses games that do not fit each other
            return replace(each[0], masks=any(one.masks for one in each), bounded=False, games=True)
    if isinstance(env, Atari):
        return Probe("pixels", atari=True)
    with Watchdog(env.name, complain) as watchdog, closing(watchdog.watch(env.make(1))) as made:
        continuous = isinstance(made.spec.actions, Box)
        kind: EnvKind = "pixels" if made.spec.pixels else "continuous" if continuous else "vector"
        masks = isinstance(made, Masking) and _gives_masks(made)
        bounded = made.spec.bounds is not None and made.spec.obs_shape[0] <= MOST_NUMBERS
        return Probe(kind, masks, continuous, _smallest_side(made.spec) < LEAST_SIDE, bounded=bounded)


def _gives_masks(env: Masking) -> bool:
    """Whether it does; False if its reset fails, which is raised again, and reported, when it is used."""
    try:
        return env.gives_masks()
    except EnvironmentFailed:
        return False


def _smallest_side(spec: Spec) -> int:
    return min((min(part.shape[1:]) for part in spec.parts if part.picture), default=LEAST_SIDE)
