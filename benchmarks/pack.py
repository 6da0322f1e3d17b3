"""Copies what reports need of a study's finished runs: settings, results, episodes, and at most 200 rows of metrics.

    .venv/bin/python -m benchmarks.pack runs/atari5 benchmarks/results/atari5
    gossamer report benchmarks/results/atari5

Checkpoints and logs are left out. `gossamer study` takes the copies for finished runs, so a study that was packed on
one machine goes on, on another, from a copy of the packed folder. Runs that are there already stay as they are.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from benchmarks.curves import POINTS, finished

WHOLE = ("config.json", "result.json", "episodes.csv", "spec.json")
METRICS = "metrics.jsonl"
STUDY = "study.json"


def thinned(lines: list[str], points: int = POINTS) -> list[str]:
    """At most `points` lines, evenly spaced, including the first and the last."""
    if len(lines) <= points:
        return lines
    return [lines[i * (len(lines) - 1) // (points - 1)] for i in range(points)]


def pack(run: Path, to: Path) -> None:
    """Copy one run."""
    part = to.with_name(f"{to.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name in WHOLE:
        shutil.copyfile(run / name, part / name)
    lines = (run / METRICS).read_text().splitlines(keepends=True)
    (part / METRICS).write_text("".join(thinned(lines)))
    part.rename(to)


def main() -> None:
    """Copy all finished runs that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("to", type=Path)
    given = parser.parse_args()
    runs = [each["directory"] for each in json.loads((given.study / STUDY).read_text())["runs"]]
    given.to.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(given.study / STUDY, given.to / STUDY)
    for run in runs:
        if finished(given.study / run) and not (given.to / run).exists():
            pack(given.study / run, given.to / run)
    there = sum((given.to / run).exists() for run in runs)
    print(f"{given.to}: {there} of {len(runs)} runs")


if __name__ == "__main__":
    main()
