"""How long a user waits at the start: seconds from the command until the first steps of a training, and until the first
figure of a bench.

    .venv/bin/python -m benchmarks.start                  # Pong, PAAC and APPO as they are, PAAC with 256 environments
    .venv/bin/python -m benchmarks.start --rounds 5

The cases take turns. Writes `start.json` after each round: by case the seconds of each round, and their median. A
training's `status.json` is at most half a second old."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import watched
from benchmarks.provenance import Results, add_out

TRAIN = {
    "paac, 16 environments": ["paac", "--env", "pong", "--algorithm", "ppo"],
    "appo, 16 environments": ["appo", "--env", "pong"],
    "paac, 256 environments": ["paac", "--env", "pong", "--algorithm", "ppo", "--num-envs", "256"],
}
BENCH = {"bench, 256 environments": ["bench", "paac", "--env", "pong", "--num-envs", "256"]}
GOSSAMER = [sys.executable, "-m", "gossamer.cli"]
POLL_SECONDS = 0.02


def main() -> None:
    """Measure, and write after each round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    add_out(parser)
    given = parser.parse_args()
    results, seconds = Results("start", given.out), dict[str, list[float]]()
    for _ in range(given.rounds):
        for case, words in TRAIN.items():
            seconds.setdefault(case, []).append(until_steps(words))
        for case, words in BENCH.items():
            seconds.setdefault(case, []).append(until_rate(words))
        results.write({case: {"median": statistics.median(each), "seconds": each} for case, each in seconds.items()})
        print({case: each[-1] for case, each in seconds.items()}, flush=True)


def until_steps(words: Sequence[str]) -> float:
    """Seconds until a training with these options counts steps."""
    with tempfile.TemporaryDirectory() as folder:
        run, log, began = Path(folder) / "run", Path(folder) / "log", time.monotonic()
        command = [*GOSSAMER, "train", *words, "--run-dir", str(run)]
        with watched.training(command, log=log, marks=run / "metrics.jsonl") as training:
            while not steps(run / "status.json"):
                if training.process.poll() is not None:
                    raise RuntimeError(f"{command} ended: {log.read_text()[-2000:]}")
                time.sleep(POLL_SECONDS)
            return round(time.monotonic() - began, 2)


def steps(status: Path) -> int:
    """Steps that a run's status counts; 0 before there is one."""
    content: dict[str, Any] = json.loads(status.read_text()) if status.exists() else {}
    return int((content.get("row") or {}).get("steps", 0))


def until_rate(words: Sequence[str]) -> float:
    """Seconds until a bench with these options tells the first rate."""
    began = time.monotonic()
    process = subprocess.Popen(
        [*GOSSAMER, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if b"steps/s" in line:
                return round(time.monotonic() - began, 2)
        raise RuntimeError(f"{words} ended without a rate")
    finally:
        watched.end(process)


if __name__ == "__main__":
    main()
