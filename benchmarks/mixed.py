"""A small environment with a Dict of observations, for comparisons of speed. It needs gymnasium alone."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Mixed(gymnasium.Env[dict[str, Any], np.int64]):
    """Two vectors of random numbers and a number of five; the reward is 1 where the action is that number modulo 3.
    Episodes have 100 steps."""

    observation_space = spaces.Dict(
        {
            "position": spaces.Box(-1.0, 1.0, (4,), np.float32),
            "speed": spaces.Box(-1.0, 1.0, (6,), np.float32),
            "goal": spaces.Discrete(5),
        }
    )
    action_space = spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        reward = float(action == self._goal % 3)
        self._steps += 1
        return self._observe(), reward, False, self._steps == 100, {}

    def _observe(self) -> dict[str, Any]:
        self._goal = int(self.np_random.integers(5))
        numbers = self.np_random.random(10, dtype=np.float32)
        return {"position": numbers[:4], "speed": numbers[4:], "goal": self._goal}


def make() -> Mixed:
    """One environment."""
    return Mixed()
