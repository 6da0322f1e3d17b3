"""GA3C's speed on Pong by its numbers of agents, predictors and trainers, beside PAAC with as many environments.

    python -m benchmarks.ga3c

Each round trains every setting once, for `--seconds` after a warm-up, in this process. `steps_per_second`, busy `cores`
and `lag` (mean updates between acting and learning) by round, and the median `ratio` to PAAC's speed within a round.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any

from benchmarks.provenance import Results, add_out
from gossamer.config.build import program
from gossamer.config.resolve import configure
from gossamer.launch.threads import threads
from gossamer.task import WorkerReport
from gossamer.tools.bench import Reports

ENVS = 32
SETTINGS: Mapping[str, dict[str, Any]] = {
    "paac": {},
    **{
        f"ga3c, {agents} agents, {predictors} predictors, {trainers} trainers": {
            "agents": agents,
            "predictors": predictors,
            "trainers": trainers,
        }
        for agents, predictors, trainers in (
            (2, 1, 1), (4, 1, 1), (8, 1, 1), (32, 1, 1), (4, 2, 1), (4, 1, 2), (4, 2, 2), (32, 2, 2),
        )
    },
}  # fmt: skip


class Lags(Reports):
    """Also keeps the policy lag."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.lag = Counter[int]()

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if isinstance(record, WorkerReport):
            self.lag.update(record.lag)

    def mean_lag(self) -> float:
        """Updates."""
        return sum(lag * count for lag, count in self.lag.items()) / max(1, self.lag.total())


def measure(label: str, seconds: float) -> dict[str, float]:
    """The figures of one training."""
    architecture = label.partition(",")[0]
    config = configure(architecture, env="pong", num_envs=ENVS, steps=10**15, **SETTINGS[label])
    threads(program(config), reports := Lags(seconds))
    return {"steps_per_second": reports.rate(), "cores": reports.busy, "lag": reports.mean_lag()}


def figures(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """By setting: the figures of each round, and the median ratio to PAAC."""
    return {
        label: {
            "steps_per_second": [round(each[label]["steps_per_second"]) for each in rounds],
            "cores": [round(each[label]["cores"], 2) for each in rounds],
            "lag": [round(each[label]["lag"], 2) for each in rounds],
            "ratio": round(
                statistics.median(
                    each[label]["steps_per_second"] / each["paac"]["steps_per_second"] for each in rounds
                ),
                3,
            ),
        }
        for label in rounds[0]
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each training, after the warm-up")
    parser.add_argument("--rounds", type=int, default=2)
    add_out(parser)
    given = parser.parse_args()
    results, rounds = Results("speed-ga3c", given.out), list[dict[str, dict[str, float]]]()
    for _ in range(given.rounds):
        rounds.append({label: measure(label, given.seconds) for label in SETTINGS})
        results.write({"environments": ENVS, "settings": figures(rounds)})
    for label, found in figures(rounds).items():
        print(f"{label}: {found}")


if __name__ == "__main__":
    main()
