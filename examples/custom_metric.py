"""Metrics of your own: one that an environment tells of its episodes, and one that a callback computes.

cd examples
gossamer train paac --env custom_metric:Timed --callback custom_metric:Slowest --steps 60000 --run-dir runs/timed
"""

import sys
from typing import Any

import numpy as np
from own_environment import LENGTH, Corridor

import gossamer


class Timed(Corridor):
    """Rows have `episode/is_success`: the share of the last 100 walks that were the shortest possible."""

    def reset(self, **given: Any) -> tuple[np.ndarray, dict]:
        self.age = 0
        return super().reset(**given)

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.age += 1
        return *super().step(action)[:4], {"is_success": self.age == LENGTH}


class Slowest(gossamer.Callback):
    """Rows have `own/slowest`: the longest walk so far."""

    def on_episode(self, run: gossamer.LiveRun, episode: gossamer.Episode) -> None:
        run.record("slowest", max(episode.steps, run.metrics.get("own/slowest", 0)))


if __name__ == "__main__":
    directory = sys.argv[1] if len(sys.argv) > 1 else "runs/timed"
    run = gossamer.train("paac", env=Timed, steps=60_000, run_dir=directory, callbacks=[Slowest()])
    print(f"mean return {run.result['mean_return']:.2f}, 0.93 is the best")
