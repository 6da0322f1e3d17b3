"""The live page: how far it is behind the run's files, and what it costs, on this machine.

    .venv/bin/python -m benchmarks.page

Trains PAAC with PPO on Pong, with `gossamer watch` beside it, and reads the page's events as a browser does that shows
this run. Writes `page-delay.json`:

`behind`      seconds from the moment a row of metrics is in a file to its event, of each row
`cpu_share`   CPU seconds of `gossamer watch` / those of the training (all its processes) while the browser is connected
`unwatched`   the same in the minute before, without a browser

`gossamer train --page` serves the page with the same threads, in the training's process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil

from benchmarks.provenance import Results, add_out
from benchmarks.watched import Training, training

GOSSAMER = (sys.executable, "-m", "gossamer.cli")
OPTIONS = "paac --env pong --algorithm ppo --steps 100000000 --threads 1"
LOOK_SECONDS = 0.002  # between two looks at the run's files
UNWATCHED_SECONDS = 60.0
NOTES = ("one browser that shows one run; ages are of rows of metrics, which are two seconds apart",)


def written(run: Path, ended: threading.Event) -> dict[float, float]:
    """When each row of metrics was first in one of the run's files: {`seconds` of the row: Unix time}. A thread adds
    rows until `ended` is set."""
    found: dict[float, float] = {}
    files = {run / "status.json": 0, run / "metrics.jsonl": 0}  # -> time of the last change, ns

    def look() -> None:
        while not ended.wait(LOOK_SECONDS):
            for file, before in files.items():
                files[file] = now = file.stat().st_mtime_ns
                if now != before and (seconds := _newest(file)) is not None:
                    found.setdefault(seconds, now / 1e9)

    threading.Thread(target=look, daemon=True).start()
    return found


def _newest(file: Path) -> float | None:
    """`seconds` of the newest row in a file."""
    if file.name == "status.json":
        row = json.loads(file.read_text()).get("row") or {}
        return row.get("seconds")
    lines = file.read_text().rpartition("\n")[0].splitlines()
    return float(json.loads(lines[-1])["seconds"]) if lines else None


def events(port: int, key: str) -> Iterator[tuple[float, dict[str, Any]]]:
    """(Unix time, data) of each event about the run."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", f"/events?run={key}")
    answer, name = connection.getresponse(), ""
    for line in iter(answer.readline, b""):
        field, _, value = line.decode().rstrip("\n").partition(": ")
        name = value if field == "event" else name
        if field == "data" and name == "run":
            yield time.time(), json.loads(value)


def port_of(log: Path) -> int:
    """The port that `gossamer watch` says it serves at."""
    for _ in range(200):
        _, found, rest = log.read_text().partition("http://127.0.0.1:")
        if found and "\n" in rest:
            return int(rest.split("/")[0])
        time.sleep(0.1)
    raise RuntimeError(f"gossamer watch does not start:\n{log.read_text()}")


def shares(trained: Training, served: psutil.Process, seconds: float, during: Iterator[Any]) -> tuple[float, float]:
    """(CPU seconds of the page, of the training) in so many seconds, while `during` is consumed."""
    start, before = time.monotonic(), (sum(served.cpu_times()[:2]), trained.cpu_seconds())
    for _ in during:
        if time.monotonic() - start >= seconds:
            break
    return sum(served.cpu_times()[:2]) - before[0], trained.cpu_seconds() - before[1]


def _ticks() -> Iterator[None]:
    while True:
        time.sleep(0.5)
        yield


def measure(work: Path, seconds: float) -> dict[str, Any]:
    """All figures."""
    run, ages = work / "run", list[float]()
    command = [*GOSSAMER, "train", *OPTIONS.split(), "--run-dir", str(run)]
    watch = [*GOSSAMER, "watch", str(work), "--port", "6600"]
    with training(command, log=work / "train.log", marks=run / "metrics.jsonl") as trained:
        trained.wait(20)
        with training(watch, log=work / "watch.log", marks=run / "metrics.jsonl") as page:
            port, served = port_of(work / "watch.log"), psutil.Process(page.process.pid)
            alone = shares(trained, served, UNWATCHED_SECONDS, _ticks())
            ended = threading.Event()
            rows = written(run, ended)

            def ages_of_events() -> Iterator[None]:
                for i, (now, data) in enumerate(events(port, "run")):
                    at = rows.get(data["now"].get("seconds"))
                    if i and at is not None:  # the first event has everything from before
                        ages.append(now - at)
                        rows.pop(data["now"]["seconds"])
                    yield

            watched = shares(trained, served, seconds, ages_of_events())
            ended.set()
    return {
        "trained": f"gossamer train {OPTIONS}",
        "notes": list(NOTES),
        "behind": {
            "rows": len(ages),
            "median": round(statistics.median(ages), 3),
            "p95": round(statistics.quantiles(ages, n=20, method="inclusive")[-1], 3),
            "max": round(max(ages), 3),
        },
        "cpu_seconds": {"page": round(watched[0], 2), "training": round(watched[1], 2)},
        "cpu_share": round(watched[0] / watched[1], 5),
        "unwatched": round(alone[0] / alone[1], 5),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="that the browser is connected")
    add_out(parser)
    given = parser.parse_args()
    results = Results("page-delay", given.out)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given.seconds)
    results.write(found)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
