"""Training speed with `--alternating` and without it, on the CPU of this machine, measured in turn.

    .venv/bin/python -m benchmarks.alternating toy   # environments of a set cost
    .venv/bin/python -m benchmarks.alternating pong

`toy`: PAAC with A2C on pictures of Catch, 32 environments, one thread of torch. A step of the environments costs some
multiple of what the network needs to choose their actions, without Python's lock: asleep, as environments in other
places are, or busy, as environments on other cores are. Only one group steps at a time: two groups have no more
machines than one. Writes `speed-alternating-toy.json`:

* `inference_ms`: time of the network's forward pass for all environments, by which the costs are set.
* `cases`: for each kind and cost, steps per second with and without, in each round, and the median of the ratios.

`pong`: `gossamer bench --alternating` for the architectures and numbers of environments in `CASES`, whose environments
step in native threads that share the cores with the network. Writes `speed-alternating-pong.json`.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.provenance import Results, add_out
from gossamer.config.build import task
from gossamer.config.config import Config
from gossamer.config.resolve import configure
from gossamer.data import Array, Step
from gossamer.envs.base import VectorEnv
from gossamer.envs.toy import Catch
from gossamer.launch.threads import threads
from gossamer.system.machine import keep_freed_memory
from gossamer.task import WorkerReport
from gossamer.tools.bench import Reports, bench

ENVS = 32
COSTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of a step of all environments, in forward passes
KINDS = ("asleep", "busy")
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "paac, 16 environments": ("paac", {"num_envs": 16}),
    "paac, 32 environments": ("paac", {"num_envs": 32}),
    "paac, 128 environments": ("paac", {"num_envs": 128}),
    "paac, nature network": ("paac", {"num_envs": 32, "network": "nature"}),
    "impala": ("impala", {}),
    "appo": ("appo", {}),
    "dqn": ("dqn", {"learning_starts": 5_000}),
}
BLOCK = bytes(2**16)  # hashed without Python's lock
_stepping = threading.Lock()


@dataclass(frozen=True)
class Costly:
    """Pictures of Catch, where a step of each environment takes `cost` seconds more."""

    cost: float
    kind: str = "asleep"

    @property
    def name(self) -> str:
        return "costly"

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        return CostlyVector(Catch(pixels=True).make(num_envs), self.cost * num_envs, self.kind)


class CostlyVector:
    """Environments whose steps take `cost` seconds more."""

    def __init__(self, env: VectorEnv, cost: float, kind: str) -> None:
        self._env, self._cost, self._kind = env, cost, kind
        self.spec, self.num_envs = env.spec, env.num_envs
        self.reset, self.frames, self.close = env.reset, env.frames, env.close

    def step(self, action: Array) -> Step:
        with _stepping:
            if self._kind == "asleep":
                time.sleep(self._cost)
            else:
                end = time.perf_counter() + self._cost
                while time.perf_counter() < end:
                    hashlib.sha256(BLOCK)
        return self._env.step(action)


class Timed(Reports):
    """`Reports`, which also add up the seconds of each part."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.parts: dict[str, float] = {}
        self.acted = 0

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if isinstance(record, WorkerReport):
            self.acted += record.steps
            self.parts = {part: self.parts.get(part, 0.0) + spent for part, spent in record.seconds.items()}


def run(config: Config, env: Costly, seconds: float, *, alternating: bool) -> Timed:
    """Train for some seconds after a warm-up."""
    what = replace(task(config), env=env, groups=2 if alternating else 1)
    threads(config.architecture.program(what), seen := Timed(seconds))
    return seen


def toy(seconds: float, rounds: int, results: Results) -> None:
    """Measure every kind and cost, with and without in turn."""
    config = configure("paac", env="catch-pixels", algorithm="a2c", num_envs=ENVS, threads=1, steps=10**12)
    torch.set_num_threads(1)
    seen = run(config, Costly(0.0), seconds, alternating=False)
    inference = seen.parts["inference"] / seen.acted  # seconds for each environment
    cases: dict[str, Any] = {}
    for kind in KINDS:
        for cost in COSTS:
            env = Costly(cost * inference, kind)
            rows = [
                {
                    side: round(run(config, env, seconds, alternating=side == "alternating").rate(), 1)
                    for side in (("plain", "alternating") if number % 2 == 0 else ("alternating", "plain"))
                }
                for number in range(rounds)
            ]
            ratio = statistics.median(row["alternating"] / row["plain"] for row in rows)
            cases[f"{kind}, {cost:g}"] = {"rounds": rows, "ratio": round(ratio, 3)}
            print(f"{kind:6} {cost:5g} forward passes a step: {ratio:.2f} times the speed", flush=True)
            results.write({"environments": ENVS, "inference_ms": round(1e3 * inference * ENVS, 3), "cases": cases})


def pong(seconds: float, rounds: int, results: Results) -> None:
    """`gossamer bench` of every case."""
    figures: dict[str, Any] = {}
    for name, (architecture, options) in CASES.items():
        found = bench(architecture, env="pong", seconds=seconds, rounds=rounds, alternating=True, **options)
        figures[name] = {**found, "faster": round(found["whole"] / found["plain"], 3)}
        print(f"{name:24} {found['plain']:8,.0f} {found['whole']:8,.0f} steps/s", flush=True)
        results.write(figures)


MEASUREMENTS = {"toy": toy, "pong": pong}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=MEASUREMENTS)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    add_out(parser)
    given = parser.parse_args()
    keep_freed_memory()
    results = Results(f"speed-alternating-{given.what}", given.out)
    MEASUREMENTS[given.what](given.seconds, given.rounds, results)
    print(results.path)


if __name__ == "__main__":
    main()
