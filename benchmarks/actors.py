"""Actors and learner apart, compared with PAAC, on this machine's CPU; and at scale, in virtual time.

    .venv/bin/python -m benchmarks.actors rate      # Pong with the Nature network, one pass over each sample
    .venv/bin/python -m benchmarks.actors uneven    # environments in which 1 step in 100 takes 50 ms longer
    .venv/bin/python -m benchmarks.actors simulate  # 1 to 1,000 actors in virtual time, on 1 Gb/s and 10 Gb/s

Each round measures every side once, for `--seconds` after a warm-up, in this process. Ratios are computed within a
round, so that they hold although the machine's speed varies. `cores` is CPU seconds per second of all threads and
processes: how busy the cores are. Writes `speed-impala-paac.json` or `speed-uneven-steps.json` after each round.

`rate`: all sides have 32 environments and train with V-trace on rollouts of 20 steps, at the same settings, with the
default precision and in float32; IMPALA also with one thread that steps its games.

`uneven`: a toy with and without the slow steps, 32 environments in 8 processes; `kept` is the rate with slow steps
divided by the rate without them, `kept per busy core` the same of rate / cores. PAAC steps all environments in
lock-step; IMPALA has 8 actors with 4 environments each.

`simulate` is not timed, so the machine may be busy: see `benchmarks.simulated`. Writes `impala-simulated.json`
and a plot.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from benchmarks import simulated
from benchmarks.provenance import Results, add_out
from gossamer.config.build import program
from gossamer.config.resolve import configure
from gossamer.launch.threads import threads
from gossamer.system.machine import keep_freed_memory
from gossamer.tools.bench import Reports

SLOW_STEP, SLOW_SECONDS = 0.01, 0.05
PONG: dict[str, Any] = {
    "env": "pong",
    "screen_size": 84,
    "network": "nature",
    "algorithm": "vtrace",
    "num_envs": 32,
    "rollout_length": 20,
}
NAMES = {"rate": "speed-impala-paac", "uneven": "speed-uneven-steps"}  # of the result files
FP32 = " --precision fp32"  # a side with it computes in float32, where others compute in bfloat16 if they can
RATE: dict[str, dict[str, Any]] = {
    f"{side}{ending}": {**PONG, **options, **precision}
    for ending, precision, other in (("", {}, 1), (FP32, {"precision": "fp32"}, 2))  # threads: by default 2 and 1
    for side, options in (("paac", {}), ("impala", {}), (f"impala --env-workers {other}", {"env_workers": other}))
}
TOY: dict[str, Any] = {"algorithm": "vtrace", "num_envs": 32, "rollout_length": 20, "threads": 1}
UNEVEN: dict[str, dict[str, Any]] = {
    f"{name} {steps}": {**TOY, **more, "env": f"benchmarks.actors:{steps}"}
    for name, more in (("paac", {"env_workers": 8}), ("impala", {"env_workers": 1, "actors": 8, "depth": 4}))
    for steps in ("even", "uneven")
}


class Board(gymnasium.Env[Any, Any]):
    """A corridor of ten cells: 1 for each step to the right. Some steps take `SLOW_SECONDS` if it is uneven."""

    def __init__(self, slow: float) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (10,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._slow, self._at, self._age = slow, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = self._age = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.np_random.random() < self._slow:
            time.sleep(SLOW_SECONDS)
        self._at, self._age = min(9, max(0, self._at + 2 * int(action) - 1)), self._age + 1
        return self._seen(), float(action), self._age >= 50, False, {}

    def _seen(self) -> Any:
        return np.eye(10, dtype=np.float32)[self._at]


def even() -> gymnasium.Env[Any, Any]:
    """All steps take the same time."""
    return Board(0.0)


def uneven() -> gymnasium.Env[Any, Any]:
    """1 step in 100 takes 50 ms longer."""
    return Board(SLOW_STEP)


def measure(side: str, options: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """Steps per second and busy cores of one training."""
    config = configure(side.split()[0], steps=10**15, **options)
    threads(program(config), reports := Reports(seconds))
    return {"rate": reports.rate(), "cores": reports.busy}


def figures(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Medians over rounds, the ratio of IMPALA to PAAC, and what uneven steps leave of the rate."""
    sides = list(rounds[0])
    found: dict[str, Any] = {
        side: {
            "steps_per_second": [round(each[side]["rate"]) for each in rounds],
            "cores": [round(each[side]["cores"], 2) for each in rounds],
        }
        for side in sides
    }
    if "impala" in sides:
        against = {side: "paac" + FP32 * side.endswith(FP32) for side in sides if side.startswith("impala")}
        ratios = {s: [each[s]["rate"] / each[paac]["rate"] for each in rounds] for s, paac in against.items()}
        return {**found, "ratio to paac": {side: _rounds(each) for side, each in ratios.items()}}
    for name in ("paac", "impala"):
        kept = [each[f"{name} uneven"]["rate"] / each[f"{name} even"]["rate"] for each in rounds]
        cores = [each[f"{name} even"]["cores"] / each[f"{name} uneven"]["cores"] for each in rounds]
        found[f"{name} kept"] = _rounds(kept)
        found[f"{name} kept per busy core"] = _rounds([k * c for k, c in zip(kept, cores, strict=True)])
    return found


def _rounds(ratios: list[float]) -> dict[str, Any]:
    return {"median": round(statistics.median(ratios), 3), "rounds": [round(ratio, 3) for ratio in ratios]}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=(*NAMES, "simulate"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--most", type=int, default=1000, help="simulate: actors of the largest simulation")
    parser.add_argument("--batches", type=int, default=200, help="simulate: of each learner")
    add_out(parser)
    given = parser.parse_args()
    keep_freed_memory()
    if given.what == "simulate":
        simulated.measure(Results("impala-simulated", given.out), given.most, given.batches)
        return
    results, rounds = Results(NAMES[given.what], given.out), list[dict[str, dict[str, float]]]()
    for _ in range(given.rounds):
        sides = RATE if given.what == "rate" else UNEVEN
        rounds.append({side: measure(side, options, given.seconds) for side, options in sides.items()})
        results.write(figures(rounds))
        print({side: round(each["rate"]) for side, each in rounds[-1].items()}, flush=True)


if __name__ == "__main__":
    main()
