"""Copies what reports need of the finished runs in a folder: all but checkpoints and logs; of the metrics, 200 rows.

    .venv/bin/python -m benchmarks.pack runs/atari5 benchmarks/results/packed/atari5
    gossamer report benchmarks/results/packed/atari5

`gossamer study` and `benchmarks.curves` take the copies for finished runs, so what
was begun on one machine goes on, on another, with a copy of the packed folder. Runs that are there already stay as
they are.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from benchmarks.curves import finished, spread

WHOLE = ("config.json", "result.json", "episodes.csv", "spec.json")
WHERE_PRESENT = ("gossip.json", "evaluations.jsonl", "evaluation-*.json")
METRICS = "metrics.jsonl"
STUDY = "study.json"


def pack(run: Path, to: Path) -> None:
    """Copy one run."""
    part = to.with_name(f"{to.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name in WHOLE:
        shutil.copyfile(run / name, part / name)
    for pattern in WHERE_PRESENT:
        for file in run.glob(pattern):
            shutil.copyfile(file, part / file.name)
    lines = (run / METRICS).read_text().splitlines(keepends=True)
    (part / METRICS).write_text("".join(spread(lines)))
    part.rename(to)


def main() -> None:
    """Copy all finished runs that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a study, or any folder with runs")
    parser.add_argument("to", type=Path)
    given = parser.parse_args()
    runs = [result.parent for result in sorted(given.folder.rglob("result.json")) if finished(result.parent)]
    if not runs:
        parser.error(f"no finished runs in {given.folder}")
    given.to.mkdir(parents=True, exist_ok=True)
    if (given.folder / STUDY).exists():
        shutil.copyfile(given.folder / STUDY, given.to / STUDY)
    targets = {run: given.to / run.relative_to(given.folder) for run in runs}
    new = {run: to for run, to in targets.items() if not to.exists()}
    for run, to in new.items():
        pack(run, to)
    print(f"{given.to}: {len(runs)} runs, {len(new)} of them new")


if __name__ == "__main__":
    main()
