"""Speed of Atari games by the size of their pictures: random play in one thread, the sizes in turn."""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.provenance import Results, add_out
from gossamer.envs.atari import PAAC, Atari

SIZES = ((84, 84), (105, 80), (70, 80), (42, 42), (42, 40))  # height and width
ENVS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200, help=f"steps of {ENVS} environments in each round")
    add_out(parser)
    args = parser.parse_args()
    results = Results("speed-picture-sizes", args.out)
    rates: dict[str, list[int]] = {f"{height}x{width}": [] for height, width in SIZES}
    for _ in range(args.rounds):
        for height, width in SIZES:
            rates[f"{height}x{width}"].append(rate(args.game, height, width, args.steps))
        sizes = {size: {"steps_per_second": each, "median": median(each)} for size, each in rates.items()}
        results.write({"game": args.game, "environments": ENVS, "frames_per_step": 4, "sizes": sizes})
    print(results.path)


def rate(game: str, height: int, width: int, steps: int) -> int:
    """Steps per second of environments alone, with random actions."""
    with closing(Atari(game, replace(PAAC, size=height, width=width)).make(ENVS, workers=1)) as env:
        env.reset(0)
        actions = np.random.default_rng(0).integers(0, env.spec.actions.outputs, (steps, ENVS))
        start = time.perf_counter()
        for action in actions:
            env.step(action)
        return round(steps * ENVS / (time.perf_counter() - start))


if __name__ == "__main__":
    main()
