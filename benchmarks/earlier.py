"""Speed at an earlier commit and now, in turn, on this machine.

    git worktree add ../earlier 08bf031
    .venv/bin/python -m benchmarks.earlier ../earlier

Each round measures each command in both trees, one right after the other and in changing order: the whole program of
`gossamer bench paac`, which writes no files, and `gossamer train paac`, which does. Both trees run in this Python, so
with the same packages. A ratio above 1 means faster now. Needs an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.provenance import ROOT, Results, add_out

BENCH = "bench paac --env {env} --json --rounds 1 --seconds 3"
TRAIN = "train paac --env {env} --steps {steps} --seed {seed}"
STEPS = {"pong": 20_000, "catch": 200_000}  # of a training: 20 and 10 seconds
ENVS = tuple(STEPS)


def gossamer(tree: Path, command: str, *more: str) -> str:
    """The output of a command of the version in `tree`."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    words = [sys.executable, "-m", "gossamer.cli", *command.split(), *more]
    ended = subprocess.run(words, cwd=tree, env=environment, check=True, capture_output=True, text=True)
    return ended.stdout


def bench(tree: Path, env: str) -> float:
    """Steps per second of the whole program."""
    return float(json.loads(gossamer(tree, BENCH.format(env=env)))["whole"])


def train(tree: Path, env: str, seed: int) -> float:
    """Steps per second of a training, with all that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        gossamer(tree, TRAIN.format(env=env, steps=STEPS[env], seed=seed), "--run-dir", f"{folder}/run")
        return float(json.loads(Path(folder, "run", "result.json").read_text())["steps_per_second"])


def measure(results: Results, trees: Sequence[Path], rounds: int) -> None:
    """Writes the rates after each round. `trees`: the earlier one, and now."""
    rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: {"earlier": [], "now": []})
    versions = dict(zip(("earlier", "now"), trees, strict=True))
    for round_ in range(rounds):
        order = list(versions) if round_ % 2 else list(versions)[::-1]
        for env in ENVS:
            for version in order:
                rates[f"bench {env}"][version].append(bench(versions[version], env))
            for version in order:
                rates[f"train {env}"][version].append(train(versions[version], env, seed=round_ + 1))
        results.write({"unit": "steps/s", "earlier": commit_of(trees[0]), "runs": summarised(rates)})
        print(json.dumps({what: found["ratio"][-1] for what, found in summarised(rates).items()}), flush=True)


def summarised(rates: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, Any]]:
    """The rates with their ratios, now / earlier, by round and as a median."""
    found = {}
    for what, each in rates.items():
        ratio = [round(now / earlier, 3) for now, earlier in zip(each["now"], each["earlier"], strict=True)]
        found[what] = {**each, "ratio": ratio, "median_ratio": round(statistics.median(ratio), 3)}
    return found


def commit_of(tree: Path) -> str:
    """The commit that is checked out there."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, cwd=tree, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="a checkout of the earlier commit")
    parser.add_argument("--rounds", type=int, default=4)
    add_out(parser)
    given = parser.parse_args()
    if not (given.tree / "gossamer" / "cli.py").is_file():
        parser.error(f"{given.tree}: no checkout of Gossamer; create one with git worktree add")
    measure(Results("bench-before-after", given.out), (given.tree.resolve(), ROOT), given.rounds)


if __name__ == "__main__":
    main()
