"""PAAC's study of the number of environments n_e (Clemente et al. 2017, section 5.2): Pong with 16 to 256 of them.

    .venv/bin/python -m benchmarks.paac_envs                 # our defaults of A2C, at one learning rate
    .venv/bin/python -m benchmarks.paac_envs --preset paper  # the paper's, at a rate of 0.0007 x n_e
    .venv/bin/python -m benchmarks.paac_envs --speed         # steps per second only, five minutes

Trains one run after the other until the mean return of the last 100 games is 18, on an otherwise idle machine, and
writes `pong-paac-envs.json` (`pong-paac-envs-paper.json`) and a plot after each seed. It can be started again at any
time: finished runs are skipped and an interrupted one is resumed. For each n_e:

* `steps_per_second`: of the whole training, medians over seeds.
* `median_goal_steps`, `median_goal_seconds`: until the return of 18; null if most seeds did not reach it.
* `seeds`: see `benchmarks.curves`.

`--speed` trains each n_e in turn for some seconds after a warm-up, in rounds, and writes `speed-paac-envs.json`: steps
per second and busy cores by round, and the median of the ratios to the speed with the fewest environments.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.curves import build, plot, train
from benchmarks.provenance import Results, add_out, keep, provenance
from gossamer.config.build import program
from gossamer.config.resolve import configure
from gossamer.launch.threads import threads
from gossamer.tools.bench import Reports

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


def speeds(counts: Sequence[int], seconds: float, rounds: int, results: Results) -> None:
    """Measure steps per second, and write after each round."""
    found: dict[int, list[Reports]] = {envs: [] for envs in counts}
    for _ in range(rounds):
        for envs, runs in found.items():
            config = configure("paac", env="pong", algorithm="a2c", num_envs=envs, steps=10**15)
            runs.append(Reports(seconds))
            threads(program(config), runs[-1])
        results.write({"num_envs": {str(envs): _speed(runs, found[counts[0]]) for envs, runs in found.items()}})


def _speed(runs: Sequence[Reports], fewest: Sequence[Reports]) -> dict[str, Any]:
    """The figures of one n_e, beside those of the fewest environments in the same rounds."""
    ratio = statistics.median(run.rate() / beside.rate() for run, beside in zip(runs, fewest, strict=True))
    return {
        "steps_per_second": [round(run.rate()) for run in runs],
        "cores": [round(run.busy, 2) for run in runs],
        "ratio": round(ratio, 3),
    }


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=("tuned", "paper"), default="tuned")
    parser.add_argument("--envs", type=int, nargs="+", default=list(ENVS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=8_000_000, help="of a run that does not reach the return")
    parser.add_argument("--work", type=Path, default=Path("runs/paac-envs"), help="directory of the runs")
    parser.add_argument("--untimed", action="store_true", help="other programs run beside: only steps compare")
    parser.add_argument("--speed", action="store_true", help="only measure steps per second")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement of --speed")
    parser.add_argument("--rounds", type=int, default=3, help="of --speed")
    add_out(parser)
    given = parser.parse_args()
    if given.speed:
        return speeds(given.envs, given.seconds, given.rounds, Results("speed-paac-envs", given.out))
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("matplotlib is not installed: make bench-install")
    origin, name = provenance(), "pong-paac-envs" + "-paper" * (given.preset == "paper")
    runs: dict[str, list[Path]] = {f"{envs} environments": [] for envs in given.envs}
    for seed in given.seeds:
        for envs, label in zip(given.envs, runs, strict=True):
            directory = given.work / given.preset / str(envs) / f"seed-{seed}"
            train(options(envs, given.preset, given.steps), seed, directory, GOAL)
            runs[label].append(directory)
        path = keep(name, {**origin, "seconds_compare": not given.untimed, **figures(runs)}, given.out)
        plot(runs, GOAL, path.with_suffix(".png"))
    print(path)


if __name__ == "__main__":
    main()
