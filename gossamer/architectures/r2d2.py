"""R2D2: recurrent replay distributed DQN (Kapturowski et al. 2019): Ape-X with sequences and a memory."""

from __future__ import annotations

from typing import ClassVar

from gossamer.algorithms.r2d2 import PAPER
from gossamer.architectures.apex import ApeX
from gossamer.presets.layers import Layer
from gossamer.system.options import options


@options
class RecurrentReplay(ApeX):
    """Actors, a replay memory of sequences with recurrent states, and a learner, as in `ApeX`."""

    title: ClassVar[str] = "r2d2"
    algorithms: ClassVar[tuple[str, ...]] = ("r2d2",)
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("small environments: by the actor's own process", {"env_workers": 0}, kind="not atari"),
        Layer("a constant epsilon for each environment", {"exploration": "by-environment"}, beside=("r2d2",)),
        Layer(
            "R2D2 as published, but for its 256 actors",
            {"steps": 50_000_000, **PAPER},
            preset="paper",
            beside=("r2d2",),
        ),
    )
