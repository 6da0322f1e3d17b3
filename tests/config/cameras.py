"""An environment of small pictures with a continuous action."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class Camera(gymnasium.Env):
    """A small picture, and one continuous action."""

    observation_space, action_space = Box(0, 255, (7, 5), np.uint8), Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, True, False, {}
