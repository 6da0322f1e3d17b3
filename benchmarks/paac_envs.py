"""PAAC's study of the number of environments n_e (Clemente et al. 2017, section 5.2): Pong with 16 to 256 of them.

    .venv/bin/python -m benchmarks.paac_envs                 # our defaults of A2C, at one learning rate
    .venv/bin/python -m benchmarks.paac_envs --preset paper  # the paper's, at a rate of 0.0007 x n_e

Trains one run after the other until the mean return of the last 100 games is 18, on an otherwise idle machine, and
writes `pong-paac-envs.json` (`pong-paac-envs-paper.json`) and a plot after each seed. It can be started again at any
time: finished runs are skipped and an interrupted one is resumed. For each n_e:

* `steps_per_second`: of the whole training, medians over seeds.
* `median_goal_steps`, `median_goal_seconds`: until the return of 18; null if most seeds did not reach it.
* `seeds`: see `benchmarks.curves`.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import statistics
from pathlib import Path
from typing import Any

from benchmarks.curves import build, plot, train
from benchmarks.provenance import add_out, keep, provenance

ENVS = (16, 32, 64, 128, 256)
GOAL = 18.0
RATE = 0.0007  # of the paper, for each environment
TUNED_RATE = 1e-3  # of our defaults, which by themselves would follow the number of environments


def options(envs: int, preset: str, steps: int) -> list[str]:
    """The options of a run."""
    words = f"paac --env pong --algorithm a2c --num-envs {envs} --steps {steps} --log none"
    paper = f"--preset paper --learning-rate {RATE * envs:.4g}"
    return shlex.split(f"{words} {paper if preset == 'paper' else f'--learning-rate {TUNED_RATE:g}'}")


def figures(runs: dict[str, list[Path]]) -> dict[str, Any]:
    """Curves and medians by n_e."""
    found = build(runs, GOAL)
    for curve in found["curves"].values():
        curve["steps_per_second"] = round(statistics.median(seed["steps_per_second"] for seed in curve["seeds"]), 1)
    return found


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=("tuned", "paper"), default="tuned")
    parser.add_argument("--envs", type=int, nargs="+", default=list(ENVS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=8_000_000, help="of a run that does not reach the return")
    parser.add_argument("--work", type=Path, default=Path("runs/paac-envs"), help="directory of the runs")
    add_out(parser)
    given = parser.parse_args()
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("matplotlib is not installed: make bench-install")
    origin, name = provenance(), "pong-paac-envs" + "-paper" * (given.preset == "paper")
    runs: dict[str, list[Path]] = {f"{envs} environments": [] for envs in given.envs}
    for seed in given.seeds:
        for envs, label in zip(given.envs, runs, strict=True):
            directory = given.work / given.preset / str(envs) / f"seed-{seed}"
            train(options(envs, given.preset, given.steps), seed, directory, GOAL)
            runs[label].append(directory)
        path = keep(name, {**origin, "seconds_compare": True, **figures(runs)}, given.out)
        plot(runs, GOAL, path.with_suffix(".png"))
    print(path)


if __name__ == "__main__":
    main()
