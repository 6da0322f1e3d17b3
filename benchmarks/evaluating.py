"""What `--eval-every` costs a training on this machine: steps per second with and without it.

    .venv/bin/python -m benchmarks.evaluating

Trains PAAC with PPO on Pong, alternately without evaluations and with evaluations that follow each other without a
pause, which is the most that they can cost. Writes `speed-with-evaluations.json`:

`steps_per_second`   of each training, after the warm-up
`evaluations`        that ended during each training
`ratio`              of the rates with and without evaluations, of each round; and their median
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.provenance import Results, add_out
from benchmarks.watched import compared, rate, training

GOSSAMER = (sys.executable, "-m", "gossamer.cli")
OPTIONS = "paac --env pong --algorithm ppo --steps 100000000"
EVALUATIONS = "--eval-every 1000 --eval-episodes 4"
WARM_UP = 25.0  # seconds, until the first evaluation plays


def measure(work: Path, options: str, seconds: float) -> dict[str, Any]:
    """The rate of a training with these options."""
    run = work / "run"
    command = [*GOSSAMER, "train", *options.split(), "--run-dir", str(run)]
    with training(command, log=work / "train.log", marks=run / "metrics.jsonl") as trained:
        marks = trained.wait(WARM_UP + seconds)
        file = run / "evaluations.jsonl"
        ended = len(file.read_text().splitlines()) if file.exists() else 0
    return {"steps_per_second": round(rate(marks, WARM_UP), 1), "evaluations": ended}


def one_round(seconds: float, number: int) -> dict[str, Any]:
    """Both trainings, in turn."""
    options = {"without": OPTIONS, "with": f"{OPTIONS} {EVALUATIONS}"}
    return compared({name: partial(measure, options=each, seconds=seconds) for name, each in options.items()}, number)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each training, after the warm-up")
    parser.add_argument("--rounds", type=int, default=3)
    add_out(parser)
    given = parser.parse_args()
    results, rounds = Results("speed-with-evaluations", given.out), list[dict[str, Any]]()
    for number in range(given.rounds):
        rounds.append(one_round(given.seconds, number))
        median = statistics.median(each["ratio"] for each in rounds)
        figures = {"trained": f"gossamer train {OPTIONS}", "evaluated": EVALUATIONS, "rounds": rounds, "ratio": median}
        results.write(figures)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
