"""What the agent that plays on the live page costs a training on this machine: steps per second with and without it.

    .venv/bin/python -m benchmarks.agent

Trains PAAC with PPO on Pong with `--page`, alternately with a browser that shows the agent and without one. Writes
`speed-with-agent.json`:

`steps_per_second`   of each training, after the warm-up
`shown_per_second`   steps of the agent that the browser is sent; 15 is what the page wants
`ratio`              of the rates with and without the agent, of each round; and their median
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.provenance import Results, add_out
from benchmarks.watched import compared, rate, training

GOSSAMER = (sys.executable, "-m", "gossamer.cli")
PORT = 6620
OPTIONS = f"paac --env pong --algorithm ppo --steps 100000000 --checkpoint-every 5 --page {PORT}"
START = 15.0  # seconds, until there is a checkpoint and the browser opens the agent's tab
WARM_UP = 40.0  # seconds, until the agent plays


class Browser:
    """Reads the events of a page as a browser does that shows the agent of its run, and counts what it is shown."""

    def __init__(self) -> None:
        self.shown = 0
        connection = HTTPConnection("127.0.0.1", PORT, timeout=30)
        connection.request("GET", "/events?run=.&play=.")
        self._answer = connection.getresponse()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        name = ""
        for line in iter(self._answer.readline, b""):
            field, _, value = line.decode().rstrip("\n").partition(": ")
            name = value if field == "event" else name
            self.shown += field == "data" and name == "play" and "screen" in json.loads(value)


def measure(work: Path, seconds: float, *, watched: bool) -> dict[str, Any]:
    """The rate of a training, with or without the agent."""
    run = work / "run"
    command = [*GOSSAMER, "train", *OPTIONS.split(), "--run-dir", str(run)]
    with training(command, log=work / "train.log", marks=run / "metrics.jsonl") as trained:
        trained.wait(START)
        browser = Browser() if watched else None
        trained.wait(WARM_UP)
        before = browser.shown if browser else 0
        marks = trained.wait(WARM_UP + seconds)
        shown = {"shown_per_second": round((browser.shown - before) / seconds, 1)} if browser else {}
    return {"steps_per_second": round(rate(marks, WARM_UP), 1), **shown}


def one_round(seconds: float, number: int) -> dict[str, Any]:
    """Both trainings, in turn."""
    sides = {name: partial(measure, seconds=seconds, watched=name == "with") for name in ("without", "with")}
    return compared(sides, number)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each training, after the warm-up")
    parser.add_argument("--rounds", type=int, default=3)
    add_out(parser)
    given = parser.parse_args()
    results, rounds = Results("speed-with-agent", given.out), list[dict[str, Any]]()
    for number in range(given.rounds):
        rounds.append(one_round(given.seconds, number))
        median = statistics.median(each["ratio"] for each in rounds)
        figures = {"trained": f"gossamer train {OPTIONS}", "rounds": rounds, "ratio": median}
        results.write(figures)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
