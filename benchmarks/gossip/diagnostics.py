"""Cost of the gossip diagnostics: bytes that members report for each observation window, and CPU time.

The CPU time is that of the threads that do the work (the members, and the thread that evaluates), as counted by the
operating system. Other work on the machine has little influence on it."""

from __future__ import annotations

import argparse
import pickle
import statistics
import threading
import time
from collections import defaultdict
from typing import Any

from benchmarks.provenance import Results
from gossamer.config.build import num_envs, program
from gossamer.config.file import flat
from gossamer.config.resolve import configure
from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.exchange.gossip.records import Cut, InTransit, Tracked
from gossamer.launch.threads import threads
from gossamer.runtime import Answer, Silent
from gossamer.task import WorkerReport
from gossamer.training.budget import Budget


class Reports(Silent):
    """Observer: passes the members' records to a monitor, and keeps the records of windows to measure their size. It
    grants `steps` environment steps."""

    def __init__(self, monitor: ConsensusMonitor, steps: int) -> None:
        self.monitor, self._budget, self._lock = monitor, Budget(steps), threading.Lock()
        self.windows: dict[int, list[Cut | InTransit | Tracked]] = defaultdict(list)  # by the window's first epoch

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        with self._lock:
            position = self._budget.lease(worker, steps)
        return Answer.END if position is None else position

    def report(self, worker: str, record: Any) -> None:
        if not isinstance(record, WorkerReport):
            return
        for each in record.exchange:
            self.monitor.take(worker, each)
            if isinstance(each, Cut | InTransit | Tracked):
                with self._lock:
                    self.windows[each.epoch - each.epoch % 2].append(each)


def weigh(records: list[Cut | InTransit | Tracked]) -> dict[str, int]:
    """Bytes of one window's records as sent, and of the parameter vectors that their projections replace."""
    cuts = [record for record in records if isinstance(record, Cut)]
    transits = [record for record in records if isinstance(record, InTransit)]
    vectors = len(cuts) + sum(cut.gradient is not None for cut in cuts) + len(transits)
    parameters = max(cut.size for cut in cuts)
    return {
        "bytes": sum(len(pickle.dumps(record)) for record in records),
        "vectors": vectors,
        "bytes_of_whole_vectors": 4 * parameters * vectors,
    }


def cost(learners: int, iterations: int, given: dict[str, Any]) -> dict[str, Any]:
    """Run GALA with `learners` learners, for `iterations` iterations of each."""
    config = configure("gala", **{"learners": learners, "threads": 1, **given})
    options = flat(config)
    updates = options.get("epochs", 1) * options.get("num_minibatches", 1)  # of each rollout
    rollouts = -(-iterations // updates)
    steps = learners * num_envs(program(config)) * options["rollout_length"] * rollouts
    config = config.with_run(steps=steps)
    monitor = ConsensusMonitor()
    reports, start = Reports(monitor, steps), time.perf_counter()
    threads(program(config), reports)
    seconds = time.perf_counter() - start
    monitor.close()
    kept = monitor.to_dict()
    measured = {window["epoch"] for window in kept["windows"]}
    windows = [{"epoch": epoch, **weigh(reports.windows[epoch])} for epoch in sorted(measured)]
    return {
        "settings": {name: options[name] for name in ("env", "algorithm", "network", "learners", "num_envs")},
        "iterations": iterations,
        "seconds": round(seconds, 1),
        "cpu_seconds": kept["cost"],
        "cpu_ms_per_iteration": round(1e3 * kept["cost"]["members"] / (learners * iterations), 2),
        "windows": windows,
        "bytes_per_window": statistics.median([window["bytes"] for window in windows]) if windows else None,
        "projection": kept["projection"],
        "consensus": [
            {name: window[name] for name in ("distance", "bound", "projection_error", "kl")}
            for window in kept["windows"]
        ],
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--env", default="pong")
    parser.add_argument("--algorithm", default="a2c")
    parser.add_argument("--network", default="nature")
    parser.add_argument("--learners", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=1000, help="of each member (default: %(default)s)")


def measure(given: argparse.Namespace, results: Results) -> None:
    """Measure and write the result."""
    options = {"env": given.env, "algorithm": given.algorithm, "network": given.network}
    results.write(cost(given.learners, given.iterations, options))
