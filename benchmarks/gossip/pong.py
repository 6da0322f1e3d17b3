"""Pong with four gossiping members: steps and seconds to 18, and bytes of a member and exchange, for each option."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import curves
from benchmarks.provenance import Results

GOAL = 18.0
STEPS = 1_500_000
ROTATION = "--interval 1 --select rotation --share"
# Label -> options, beyond the game, the algorithm and the steps. All have 64 environments
WAYS: Mapping[str, str] = {
    "one learner": "paac --num-envs 64",
    "gala": "gala",
    "gala, never waits": "gala --sync never",
    "gala, never waits, every 4th step": "gala --sync never --interval 4",
    "pala": "pala --cluster local",
    "pala, outer momentum 0.5": "pala --cluster local --outer-momentum 0.5 --outer-learning-rate 0.7",
    "pala, rotation 1/16": f"pala --cluster local {ROTATION} 0.0625",
    "pala, rotation 1/20, int8": f"pala --cluster local {ROTATION} 0.05 --message-format int8 --error-feedback",
    "pala, int8": "pala --cluster local --message-format int8 --error-feedback",
    "pala, staleness decay 0.5": "pala --cluster local --staleness-decay 0.5",
    "pala, every 16th step": "pala --cluster local --interval 16 --staleness 64",
    "pala, every 16th step, outer momentum": (
        "pala --cluster local --interval 16 --staleness 64 --outer-momentum 0.5 --outer-learning-rate 0.7"
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", default=list(WAYS), choices=list(WAYS), metavar="LABEL")
    parser.add_argument("--steps", type=int, default=STEPS, help="maximum steps of each run (default: %(default)s)")
    parser.add_argument("--env", default="pong")
    parser.add_argument("--goal", type=float, default=GOAL, help="mean return that ends a run (default: %(default)s)")
    parser.add_argument("--work", type=Path, default=Path("runs/gossip-pong"), help="folder of the runs")


def measure(given: argparse.Namespace, results: Results) -> None:
    """Train what the file lacks, all labels of a seed before the next seed, one run at a time. A run that was
    interrupted goes on from its last checkpoint. Writes the figures after each run. Run nothing else on the machine."""
    runs = known(results.path)
    for seed in given.seeds:
        for label in given.only:
            if seed in [each["seed"] for each in runs[label]]:
                continue
            directory = given.work / label.replace(",", "").replace(" ", "-").replace("/", "-") / f"seed-{seed}"
            options = f"{WAYS[label]} --env {given.env} --algorithm ppo --steps {given.steps}"
            curves.train(shlex.split(options), seed, directory, stop_at_return=given.goal)
            runs[label].append({**one(directory, given.goal), "commit": results.origin["commit"]})
            runs[label].sort(key=lambda each: int(each["seed"]))
            results.write({label: {"options": WAYS[label], **figures(each)} for label, each in runs.items() if each})


def known(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The runs that the file has, of each way with its options of today."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"figures": {}, "commit": ""}
    there = {label: of for label, of in found["figures"].items() if of["options"] == WAYS.get(label)}
    return {
        label: [{"commit": found["commit"], **each} for each in there.get(label, {"runs": []})["runs"]]
        for label in WAYS
    }


def one(directory: Path, goal: float) -> dict[str, Any]:
    """The figures of a finished run. `bytes`: sent by a member at an exchange; None without one."""
    run, path = curves.load(directory, goal), directory / "gossip.json"
    gossip = json.loads(path.read_text())["traffic"] if path.exists() else None
    return {**run, "bytes": None if not gossip or not gossip["sent"] else gossip["sent_bytes"] / gossip["sent"]}


def figures(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the seeds, and the runs. A run that did not reach the goal counts as never, and of several runs with
    one seed the first counts."""
    seeds = {run["seed"]: run for run in reversed(runs)}.values()
    return {
        "median_goal_steps": curves.median([run["goal_steps"] for run in seeds]),
        "median_goal_seconds": curves.median([run["goal_seconds"] for run in seeds]),
        "bytes": runs[0]["bytes"],
        "runs": list(runs),
    }
