"""Steps/s of four learners with and without gossip: GALA, PALA in threads and on Ray."""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.provenance import Results
from gossamer.config.build import num_envs, program, task
from gossamer.config.config import Config
from gossamer.config.file import flat
from gossamer.config.resolve import configure
from gossamer.exchange import Alone
from gossamer.experience import Direct
from gossamer.launch.ray.launcher import Ray
from gossamer.launch.threads import threads
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.runtime import Silent
from gossamer.system.machine import KEEP_FREED_MEMORY
from gossamer.task import WorkerReport

WARM_UP = 2.0  # seconds of training that are not measured
LEARNERS = 4


class Steps(Silent):
    """Observer: counts the steps of all members for `seconds`, from `WARM_UP` seconds after the last one started."""

    def __init__(self, members: int, seconds: float) -> None:
        self.members, self.seconds = members, seconds
        self._lock = threading.Lock()
        self._latest: dict[str, int] = {}
        self._begun: tuple[float, int] | None = None
        self._ended: tuple[float, int] | None = None
        self._warm = 0.0

    def report(self, worker: str, record: Any) -> None:
        if not isinstance(record, WorkerReport):
            return
        with self._lock:
            now = time.perf_counter()
            self._latest[worker] = self._latest.get(worker, 0) + record.steps
            if len(self._latest) < self.members:
                return
            self._warm = self._warm or now
            if self._begun is None and now - self._warm >= WARM_UP:
                self._begun = (now, sum(self._latest.values()))
            if self._begun is not None and self._ended is None and now - self._begun[0] >= self.seconds:
                self._ended = (now, sum(self._latest.values()))

    def stopping(self) -> bool:
        return self._ended is not None

    @property
    def rate(self) -> float:
        """Steps per second."""
        assert self._begun
        assert self._ended
        return (self._ended[1] - self._begun[1]) / (self._ended[0] - self._begun[0])


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="rounds; each measures every variant once (default: 5)")
    parser.add_argument("--seconds", type=float, default=15.0, help="duration of each measurement, after the warm-up")
    parser.add_argument("--env", default="pong")
    parser.add_argument("--algorithm", default="a2c")
    parser.add_argument("--network", default=None, help="(default: by preset)")


def measure(given: argparse.Namespace, results: Results) -> None:
    """Run all variants in turn in every round. Ratios are taken within a round. Writes the figures after each round."""
    chosen = {"env": given.env, "algorithm": given.algorithm, "network": given.network}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    gala, pala = (configure(name, **chosen).with_run(steps=10**15) for name in ("gala", "pala"))  # ended by time
    rates: dict[str, list[float]] = {}
    for turn in range(given.rounds):
        for name, run in _in_turn(variants(gala, pala), backwards=turn % 2 == 1):
            run(seen := Steps(LEARNERS, given.seconds))
            rates.setdefault(name, []).append(round(seen.rate, 1))
            print(f"round {turn + 1} of {given.rounds}: {name}: {seen.rate:,.0f} steps/s", flush=True)
        results.write(figures(gala, rates))


def variants(gala: Config, pala: Config) -> dict[str, Callable[[Steps], None]]:
    """The compared variants: name -> function that runs it."""
    return {
        "threads, no exchange": lambda seen: threads(_alone(gala, hosts=1), seen),
        "gala": lambda seen: threads(program(gala), seen),
        "two processes, no exchange": lambda seen: Ray(env=KEEP_FREED_MEMORY)(_alone(gala, hosts=2), seen),
        "pala, two Ray hosts": lambda seen: Ray(env=KEEP_FREED_MEMORY)(program(pala), seen),
        "pala in threads": lambda seen: threads(program(pala), seen),
    }


def _in_turn(ways: Mapping[str, Any], *, backwards: bool) -> list[tuple[str, Any]]:
    """The variants in order, or in reverse for every second round, so that a drift in speed favours no variant."""
    return list(ways.items())[:: -1 if backwards else 1]


def _alone(config: Config, *, hosts: int) -> Program:
    """The same learners without an exchange."""
    p, learners = Program("alone"), LEARNERS // hosts
    envs = Envs(num_envs(program(config)), flat(config)["env_workers"])
    for h in range(hosts):
        with p.host(f"host{h}", cpus=learners):
            p.worker(act_and_learn, copies=learners)(task(config), Replica(), Direct(), Alone(), envs=envs)
    return p


def figures(gala: Config, rates: Mapping[str, list[float]]) -> dict[str, Any]:
    """Medians and rounds of each variant, and the ratios between them."""

    def ratio(one: str, other: str) -> dict[str, Any]:
        each = [round(a / b, 4) for a, b in zip(rates[one], rates[other], strict=True)]
        return {"median": statistics.median(each), "rounds": each}

    chosen = {name: flat(gala)[name] for name in ("env", "algorithm", "network")}
    return {
        "settings": {**chosen, "learners": LEARNERS, "num_envs": num_envs(program(gala))},
        "steps_per_second": {name: {"median": statistics.median(r), "rounds": r} for name, r in rates.items()},
        "gala / threads without exchange": ratio("gala", "threads, no exchange"),
        "pala / processes without exchange": ratio("pala, two Ray hosts", "two processes, no exchange"),
        "pala / gala": ratio("pala, two Ray hosts", "gala"),
        "processes / threads, no exchange": ratio("two processes, no exchange", "threads, no exchange"),
        "pala in threads / threads without exchange": ratio("pala in threads", "threads, no exchange"),
    }
