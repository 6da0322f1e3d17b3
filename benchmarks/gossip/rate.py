"""Agent steps until Catch is learned: one learner, and GALA at two learning rates."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.curves import median
from benchmarks.provenance import Results
from gossamer.config.resolve import configure
from gossamer.training.experiment import train


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=8, help="number of seeds (default: 8)")
    parser.add_argument("--algorithm", default="a2c")
    parser.add_argument("--steps", type=int, default=300_000, help="maximum steps of each run (default: 300000)")


def measure(given: argparse.Namespace, results: Results) -> None:
    """Agent steps until the mean return of the last 100 games is at least 0.8, for several seeds; None means never."""
    plain = configure("paac", env="catch", algorithm=given.algorithm).optimization.learning_rate
    ways: dict[str, dict[str, Any]] = {
        "one learner, 64 environments": {"architecture": "paac", "num_envs": 64},
        "gala, 4 x 16, its rate": {"architecture": "gala", "learning_rate": plain},
        "gala, 4 x 16, twice its rate (the default)": {"architecture": "gala"},
        "gala, 4 x 16, lock-step, its rate": {"architecture": "gala", "sync": "lock-step", "learning_rate": plain},
        "gala, 4 x 16, lock-step, twice its rate": {"architecture": "gala", "sync": "lock-step"},
    }
    steps: dict[str, list[int | None]] = {name: [] for name in ways}
    for seed in range(1, given.seeds + 1):
        for name, way in ways.items():
            steps[name].append(steps_to_solve(**way, algorithm=given.algorithm, seed=seed, steps=given.steps))
            print(f"seed {seed}: {name}: {steps[name][-1]}", flush=True)
    chosen = {"env": "catch", "algorithm": given.algorithm, "learning rate of one learner": plain}
    medians = {name: {"median": median(each), "seeds": each} for name, each in steps.items()}
    results.write({"settings": chosen, "steps": medians})


def steps_to_solve(**given: Any) -> int | None:
    """Steps of one run of Catch until it is solved; None if it is not solved."""
    with tempfile.TemporaryDirectory() as place:
        result = train(**given, env="catch", stop_at_return=0.8, run_dir=Path(place) / "run").result
    return result["steps"] if "return" in result["ended"] else None
