"""A callback that ends a run whose return no longer rises.

    cd examples
    gossamer train paac --env catch --callback early_stopping:Patience --run-dir runs/patience

or from Python, as at the end of this file: python examples/early_stopping.py
"""

from __future__ import annotations

import sys

import gossamer


class Patience(gossamer.Callback):
    """Ends a run whose mean return has not risen by `least` for so many steps."""

    def __init__(self, steps: int = 20_000, least: float = 0.02) -> None:
        self.steps, self.least = steps, least
        self.best, self.at = float("-inf"), 0

    def on_episode(self, run: gossamer.LiveRun, episode: object) -> None:
        mean = run.mean_return
        if mean is not None and mean > self.best + self.least:
            self.best, self.at = mean, run.steps
        elif run.steps - self.at > self.steps:
            run.stop(f"no better than {self.best:.2f} for {self.steps:,} steps")


if __name__ == "__main__":
    directory = sys.argv[1] if len(sys.argv) > 1 else "runs/patience"
    run = gossamer.train("paac", env="catch", run_dir=directory, callbacks=[Patience()])
    print(f"mean return {run.result['mean_return']:.2f}, {run.result['ended']}, after {run.result['steps']:,} steps")
