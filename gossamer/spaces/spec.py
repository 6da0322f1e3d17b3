"""The observations and actions of an environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.spaces.actions import Space
from gossamer.spaces.observations import ASIDE, Layout, Part


@dataclass(frozen=True)
class Spec:
    """Observations and actions of one environment."""

    obs_shape: tuple[int, ...]  # O: [C, H, W] for images, [N] for vectors; [bytes] with a `layout`
    obs_dtype: np.dtype[Any]  # uint8 for images, one-hot vectors, and with a `layout`
    actions: Space
    frames_per_step: int = 1  # emulator frames per step
    layout: Layout | None = None  # of an observation that consists of several arrays
    # Images: the channels are so many pictures, oldest first; all but the newest were observed before. With a `layout`,
    # those of its one image
    history: int = 1
    # Lower and upper bounds of an observation that is one vector of numbers, if all of them are finite
    bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = field(default=None, compare=False)
    action_names: tuple[str, ...] = field(default=(), compare=False)  # of a `Discrete` space, where there are names
    games: tuple[str, ...] = ()  # names of several games that observations are of; empty: of one

    @property
    def parts(self) -> tuple[Part, ...]:
        """The arrays that an observation consists of."""
        return self.layout.parts if self.layout else (Part("", self.obs_shape, self.obs_dtype),)

    @property
    def shapes(self) -> str:
        """The shapes of observations, for messages, without what is only about them."""
        return ", ".join(f"{part.name} {list(part.shape)}".strip() for part in self.parts if part.name not in ASIDE)

    @property
    def pixels(self) -> bool:
        """Whether observations have a picture (the default network is then convolutional)."""
        return any(part.picture for part in self.parts)
