"""Speed of Atari games alone, by how they are divided over the cores: native threads of one process, pinned to cores or
not, and processes with threads each; in turn, with random actions.

    .venv/bin/python -m benchmarks.cores --envs 32 128 256 --processes 2 4 8 16    # on 16 cores

For each: steps per second, microseconds of processor time for each step (of this process and those of the games), and
the seconds of making the games and of the first reset."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from benchmarks.provenance import Results, add_out
from gossamer.envs.atari import PAAC, Atari, AtariVector
from gossamer.envs.base import VectorEnv
from gossamer.system.machine import keep_freed_memory
from gossamer.system.processes import cores
from gossamer.system.usage import CPUClock


@dataclass
class Way:
    """One way to divide the games, and what was measured of it."""

    env: VectorEnv
    made: float  # seconds
    reset: float  # seconds
    rates: list[float] = field(default_factory=list)  # steps per second, of each round
    costs: list[float] = field(default_factory=list)  # microseconds of processor time for each step, of each round

    def figures(self) -> dict[str, Any]:
        return {
            "make_seconds": round(self.made, 2),
            "reset_seconds": round(self.reset, 2),
            "steps_per_second": [round(rate) for rate in self.rates],
            "median": round(median(self.rates)),
            "cpu_microseconds_per_step": round(median(self.costs), 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--envs", type=int, nargs="+", default=[16, 128])
    parser.add_argument("--processes", type=int, nargs="+", default=[2])
    parser.add_argument("--threads", type=int, default=cores(), help="of all processes together")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    add_out(parser)
    args = parser.parse_args()
    keep_freed_memory()
    results, found = Results("speed-cores", args.out), dict[str, Any]()
    for envs in args.envs:
        with ExitStack() as stack:
            ways = {name: started(stack, make) for name, make in ways_of(args, envs).items()}
            for _ in range(args.rounds):
                for way in ways.values():
                    measure(way, args.seconds)
        found[str(envs)] = {name: way.figures() for name, way in ways.items()}
        results.write({"game": args.game, "threads": args.threads, "environments": found})
    print(results.path)


def ways_of(args: argparse.Namespace, envs: int) -> dict[str, Callable[[], VectorEnv]]:
    """The ways to divide so many games, by name."""

    def here(pinned: bool) -> VectorEnv:
        return AtariVector(args.game, PAAC, envs, min(args.threads, envs), render=False, pinned=pinned)

    def apart(processes: int) -> VectorEnv:
        return Atari(args.game, PAAC, processes).make(envs, workers=args.threads)

    made = {"threads, pinned": lambda: here(pinned=True), "threads": lambda: here(pinned=False)}
    return made | {f"{count} processes": lambda count=count: apart(count) for count in args.processes}


def started(stack: ExitStack, make: Callable[[], VectorEnv]) -> Way:
    """Make games, which `stack` closes, and reset them."""
    began = time.perf_counter()
    env = stack.enter_context(closing(make()))
    made = time.perf_counter()
    env.reset(0)
    return Way(env, made - began, time.perf_counter() - made)


def measure(way: Way, seconds: float) -> None:
    """Step for so long, with random actions."""
    env, rng = way.env, np.random.default_rng(0)
    actions = [env.spec.actions.random(rng, env.num_envs) for _ in range(64)]
    clock, steps, start = CPUClock(), 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        env.step(actions[steps % 64])
        steps += 1
    rate = steps * env.num_envs / passed
    way.rates.append(rate)
    way.costs.append(1e6 * clock.cores() / rate)


if __name__ == "__main__":
    main()
