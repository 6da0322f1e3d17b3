"""Train on your own environment: any gymnasium.Env, named as module:factory.

    cd examples
    gossamer train paac --env own_environment:Corridor --steps 60000 --run-dir runs/corridor
    gossamer evaluate runs/corridor
    gossamer record runs/corridor

or from Python, with the class itself, as at the end of this file: python examples/own_environment.py
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np

LENGTH = 8


class Corridor(gymnasium.Env[np.ndarray, np.int64]):
    """Walk right to the end: reward +1 there, -0.01 for each other step. The best return is 1 - 0.01 * 7 = 0.93."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (LENGTH,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode  # "rgb_array" for videos; training works without it

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.place = 0
        return self._seen(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.place = max(0, self.place + (1 if action == 1 else -1))
        arrived = self.place == LENGTH
        return self._seen(), 1.0 if arrived else -0.01, arrived, False, {}

    def render(self) -> np.ndarray:
        """A uint8 picture [height, width, 3]: the corridor, with the agent's place in white."""
        shown = np.zeros((1, LENGTH, 3), np.uint8)
        shown[0, min(self.place, LENGTH - 1)] = 255
        return shown.repeat(16, axis=0).repeat(16, axis=1)

    def _seen(self) -> np.ndarray:
        return np.eye(LENGTH, dtype=np.float32)[min(self.place, LENGTH - 1)]


if __name__ == "__main__":
    import gossamer

    directory = sys.argv[1] if len(sys.argv) > 1 else "runs/corridor"
    run = gossamer.train("paac", env=Corridor, steps=60_000, run_dir=directory)
    print(f"mean return {gossamer.evaluate(run.directory, episodes=10).mean_return:.2f}, 0.93 is the best")
