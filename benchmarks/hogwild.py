"""Learners on shared parameters: threads of a process against processes that map the same memory.

    .venv/bin/python -m benchmarks.hogwild  # Pong and Catch, 1, 2 and 4 learners

Each case trains `a3c` for `--seconds` after its learners have started, in rounds: threads (`--learners N`) and
processes (`--hosts N --learners 1 --cluster local`). Writes `hogwild.json` after each case:

* `steps`: environment steps per second of all learners. `cores`: CPU seconds per second, of all processes.
* `staleness`: of gradients, in updates of other learners, mean.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.provenance import Results, add_out
from benchmarks.server import busy
from gossamer.config.build import program
from gossamer.config.keywords import Keywords
from gossamer.config.resolve import configure
from gossamer.launch.ray.launcher import Ray
from gossamer.launch.threads import threads
from gossamer.program import Program
from gossamer.runtime import Observer, Silent
from gossamer.task import WorkerReport

LEARNERS, ENVS = (1, 2, 4), ("pong", "catch")
WARM_UP = 3.0  # seconds after all learners have reported
LAUNCHERS: dict[str, Callable[[Program, Observer], None]] = {"threads": threads, "processes": Ray()}


@dataclass(frozen=True)
class Case:
    """Learners of one environment each, of the paper's preset."""

    env: str
    learners: int
    launcher: str

    @property
    def name(self) -> str:
        """Its key in the file."""
        return f"{self.env} {self.learners} {self.launcher}"

    def run(self, seconds: float) -> dict[str, float]:
        """Its figures."""
        apart = self.launcher == "processes"
        shape: Keywords = {"hosts": self.learners, "learners": 1} if apart else {"hosts": 1, "learners": self.learners}
        config = configure("a3c", env=self.env, preset="paper", num_envs=1, threads=1, device="cpu", **shape)
        watcher = Steps(self.learners, seconds)
        LAUNCHERS[self.launcher](program(config, cluster="local" if apart else None), watcher)
        return watcher.figures()


class Steps(Silent):
    """Observer: counts what learners do within `seconds`, from `WARM_UP` seconds after all have reported."""

    def __init__(self, learners: int, seconds: float) -> None:
        self._learners, self._seconds = learners, seconds
        self._lock, self._seen, self._warm = threading.Lock(), set[str](), 0.0
        self._busy: dict[int, float] = {}
        self._steps = self._gradients = self._stale = 0
        self.cores, self.took = 0.0, 0.0

    def report(self, worker: str, record: Any) -> None:
        with self._lock:
            if not isinstance(record, WorkerReport) or self.took:
                return
            now = time.perf_counter()
            self._seen.add(worker)
            if len(self._seen) < self._learners:
                return
            self._warm = self._warm or now
            if (since := now - self._warm - WARM_UP) < 0:
                return
            self._busy = self._busy or busy()
            self._steps += record.steps
            self._gradients += sum(record.staleness.values())
            self._stale += sum(stale * count for stale, count in record.staleness.items())
            if since >= self._seconds:
                self.cores = sum(spent - self._busy.get(pid, 0.0) for pid, spent in busy().items()) / since
                self.took = since

    def stopping(self) -> bool:
        return self.took > 0

    def figures(self) -> dict[str, float]:
        """Of the measured time."""
        return {
            "steps": round(self._steps / self.took, 1),
            "cores": round(self.cores, 2),
            "staleness": round(self._stale / max(1, self._gradients), 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--envs", nargs="+", default=ENVS)
    parser.add_argument("--learners", nargs="+", type=int, default=LEARNERS)
    add_out(parser)
    given = parser.parse_args()
    results, figures = Results("hogwild", given.out), dict[str, list[dict[str, float]]]()
    cases = [Case(env, n, launcher) for env in given.envs for n in given.learners for launcher in LAUNCHERS]
    for _ in range(given.rounds):
        for case in cases:
            figures.setdefault(case.name, []).append(case.run(given.seconds))
            print(f"{case.name:20s} {figures[case.name][-1]}", flush=True)
            results.write(figures)


if __name__ == "__main__":
    main()
