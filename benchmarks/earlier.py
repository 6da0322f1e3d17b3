"""Speed at an earlier commit and now, taken at the same time on this machine.

    git worktree add ../earlier 08bf031
    .venv/bin/python -m benchmarks.earlier ../earlier

Each command runs in both trees: the whole program of `gossamer bench paac`, which writes no files, and
`gossamer train paac`, which does. With `--run RUN` a run is continued in their place, in copies: what a training has
become slows it, too. With `--bench` other commands of `gossamer bench` are measured in their place, with their parts;
not those whose actors and learners run at the same time, which the pauses below would shift. The two processes
of a pair run in turn, for a twentieth of a second each, so that whatever else slows the machine slows both: the rates
are about half of the real ones, and their ratio is exact to about 1 % where two separate runs differ by 20 %. Both
trees run in this Python, so with the same packages. A ratio above 1 means faster now. Needs an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.provenance import ROOT, Results, add_out

BENCH = "bench {command} --json --rounds 1 --seconds 10"
TRAIN = "train paac --env {env} --steps {steps} --seed {seed}"
STEPS = {"pong": 20_000, "catch": 300_000}  # of a training: about 20 and 15 seconds
ENVS = tuple(STEPS)
SLICE = 0.05  # seconds for which one process of a pair runs while the other one is stopped


def start(tree: Path, command: str, *more: str) -> subprocess.Popen[str]:
    """A command of the version in `tree`, in a process group of its own, so that all its processes can be stopped."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    words = [sys.executable, "-m", "gossamer.cli", *command.split(), *more]
    return subprocess.Popen(
        words,
        cwd=tree,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def in_turn(pair: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Run the processes in turn until all have ended; what they printed. One that is alone still pauses."""
    try:
        while any(each.poll() is None for each in pair):
            for each in pair:
                _signal(each, signal.SIGCONT)
                time.sleep(SLICE)
                _signal(each, signal.SIGSTOP)
    finally:
        for each in pair:
            _signal(each, signal.SIGKILL)
    if any(each.returncode for each in pair):
        raise SystemExit(f"a command failed: {[each.args for each in pair if each.returncode]}")
    return [each.communicate()[0] for each in pair]


def _signal(process: subprocess.Popen[str], number: int) -> None:
    """To its whole group, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, number)


def bench(trees: Sequence[Path], command: str) -> dict[str, list[float]]:
    """Steps per second of the whole program of `gossamer bench COMMAND` and of its parts, for each tree."""
    printed = in_turn([start(tree, BENCH.format(command=command)) for tree in trees])
    return {part: [float(json.loads(text)[part]) for text in printed] for part in ("whole", "update", "inference")}


def train(trees: Sequence[Path], env: str, seed: int) -> list[float]:
    """Steps per second of a training, with all that it writes, for each tree."""
    command = TRAIN.format(env=env, steps=STEPS[env], seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        runs = [Path(folder, str(number)) for number in range(len(trees))]
        in_turn([start(tree, command, "--run-dir", str(run)) for tree, run in zip(trees, runs, strict=True)])
        return [float(json.loads((run / "result.json").read_text())["steps_per_second"]) for run in runs]


def resume(trees: Sequence[Path], run: Path) -> list[float]:
    """Steps per second of a run from its last checkpoint on, for each tree."""
    before = _result(run)
    with tempfile.TemporaryDirectory() as folder:
        runs = [shutil.copytree(run, Path(folder, str(number))) for number in range(len(trees))]
        steps = str(before["steps"] + STEPS["pong"])
        in_turn([start(tree, "resume", str(copy), "--steps", steps) for tree, copy in zip(trees, runs, strict=True)])
        return [_rate(before, _result(run)) for run in runs]


def _rate(before: dict[str, Any], now: dict[str, Any]) -> float:
    return float((now["steps"] - before["steps"]) / (now["seconds"] - before["seconds"]))


def _result(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "result.json").read_text())
    return found


def measure(
    results: Results, trees: Sequence[Path], rounds: int, run: Path | None = None, commands: Sequence[str] = ()
) -> None:
    """Writes the rates after each round. `trees`: the earlier one, and now. `run`: is continued, nothing else runs;
    `commands`: these of `gossamer bench`, and nothing else."""
    rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: {"earlier": [], "now": []})
    for round_ in range(rounds):
        if run:
            _add(rates[f"resume {run}"], resume(trees, run))
        for command in commands:
            for part, pair in bench(trees, command).items():
                _add(rates[f"bench {command}: {part}"], pair)
        for env in () if run or commands else ENVS:
            _add(rates[f"bench {env}"], bench(trees, f"paac --env {env}")["whole"])
            _add(rates[f"train {env}"], train(trees, env, seed=round_ + 1))
        results.write({"unit": "steps/s", "earlier": commit_of(trees[0]), "runs": summarised(rates)})
        print(json.dumps({what: found["ratio"][-1] for what, found in summarised(rates).items()}), flush=True)


def _add(rates: dict[str, list[float]], pair: Sequence[float]) -> None:
    for version, rate in zip(("earlier", "now"), pair, strict=True):
        rates[version].append(rate)


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
    parser.add_argument("--run", type=Path, help="continue this run instead; results go to speed-before-after-resumed")
    parser.add_argument("--bench", nargs="+", default=[], metavar="COMMAND", help="such as 'paac --env pong'")
    parser.add_argument("--name", default="speed-before-after", help="of the result of --bench")
    add_out(parser)
    given = parser.parse_args()
    if not (given.tree / "gossamer" / "cli.py").is_file():
        parser.error(f"{given.tree}: no checkout of Gossamer; create one with git worktree add")
    name = "speed-before-after-resumed" if given.run else given.name
    measure(Results(name, given.out), (given.tree.resolve(), ROOT), given.rounds, given.run, given.bench)


if __name__ == "__main__":
    main()
