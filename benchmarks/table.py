"""The table of architectures on Pong: the same game, steps, cores and precision, each with its tuned preset, which
chooses the network, the pictures and the number of environments.

    python -m benchmarks.table                           # what the result file lacks, seed by seed, one run at a time
    python -m benchmarks.table --only gorila apex --seeds 1
    python -m benchmarks.table show                      # the file as a table in Markdown

A run is added to the result file when it ends, so this can be stopped and started again, also in another clone. Runs
whose options have other defaults today (or for a machine with another number of cores) count as lacking. A run that was
interrupted goes on from its last checkpoint. Do not run anything else on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import curves, redraw
from benchmarks.provenance import add_out, keep, provenance

NAME = "pong-table"
STEPS = 600_000
GOAL = 18.0
SHOWN = (200_000, 400_000, STEPS)  # steps at which the table has the return

# Label -> options, beyond the game, the steps and float32, which all machines have. Every other option has the value of
# the tuned preset.
SYSTEMS: Mapping[str, str] = {
    "PAAC": "paac",
    "PAAC, PPO": "paac --algorithm ppo",
    "A2C": "a2c",
    "A3C": "a3c",
    "GA3C": "ga3c",
    "IMPALA": "impala",
    "APPO": "appo",
    "GALA": "gala",
    "PALA": "pala",
    "A3C, n-step Q": "a3c --algorithm nstep-q",
    "A3C, one-step Q": "a3c --algorithm one-step-q",
    "A3C, Sarsa": "a3c --algorithm sarsa",
    "DQN": "dqn",
    "Gorila": "gorila",
    "Ape-X": "apex",
    "R2D2": "r2d2",
    "PAAC, PQN": "paac --algorithm pqn",
}


def missing(found: Mapping[str, Any], labels: Sequence[str], seeds: Sequence[int]) -> Iterator[tuple[str, int]]:
    """The runs that the file lacks, or has with other options; all labels of a seed before the next seed."""
    for seed in seeds:
        for label in labels:
            if seed not in [each["seed"] for each in known(found, label)]:
                yield label, seed


def known(found: Mapping[str, Any], label: str) -> list[dict[str, Any]]:
    """The runs that the file has with the options of this label, none of which has another default today."""
    curve = found["curves"].get(label)
    if curve is None or curve["options"] != SYSTEMS[label] or curves.command(curve["config"]) != curve["trained"]:
        return []
    return list(curve["seeds"])


def measured(directory: Path, cores: float | None, origin: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a finished run. `cores`: that it kept busy; None if it was interrupted."""
    result = json.loads((directory / "result.json").read_text())
    run = curves.load(directory, GOAL)
    return {
        **{name: run[name] for name in ("seed", "ended", "steps", "seconds", "steps_per_second", "mean_return")},
        "goal_steps": run["goal_steps"],
        "goal_seconds": run["goal_seconds"],
        "cores_busy": cores,
        "policy_lag": {name: value for name, value in result["policy_lag"].items() if name != "trajectories"},
        "gradients": _without_histogram(result["gradients"]),
        "replay": result["replay"],
        "learned": result["learned"],
        "reused": result["reused"],
        "machine": {**run["machine"], "load": [origin["machine"]["load"], os.getloadavg()[0]]},  # before and after
        "commit": origin["commit"],
        "date": origin["date"],
        "curve": run["curve"],
    }


def _without_histogram(gradients: dict[str, Any] | None) -> dict[str, Any] | None:
    if gradients is None:
        return None
    stale = {name: value for name, value in gradients["staleness"].items() if name != "gradients"}
    return {**gradients, "staleness": stale}


def added(found: dict[str, Any], label: str, run: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """The content of the file with one more run. Runs of other options are left out."""
    others = [each for each in known(found, label) if each["seed"] != run["seed"]]
    seeds = sorted([*others, run], key=lambda each: each["seed"])
    made = {
        "options": SYSTEMS[label],
        "trained": curves.command(config),
        "config": config,
        "median_goal_steps": curves.median([each["goal_steps"] for each in seeds]),
        "median_goal_seconds": curves.median([each["goal_seconds"] for each in seeds]),
        "seeds": seeds,
    }
    every = {**found["curves"], label: made}
    return {**found, "curves": {name: every[name] for name in SYSTEMS if name in every}}


def at(curve: Sequence[Sequence[float]], steps: int) -> float | None:
    """The return of a curve at so many steps; None before its first row."""
    place = bisect_right([row[0] for row in curve], steps)
    return curve[place - 1][2] if place else None


def table(found: Mapping[str, Any]) -> str:
    """The file as a table in Markdown: means over the seeds."""
    head = [
        "system",
        "pictures; environments x rollout",
        f"return after {', '.join(f'{steps:,}' for steps in SHOWN)} steps",
        f"steps to {GOAL:g}",
        "seconds",
        "steps/s",
        "cores busy",
        "lag of trajectories",
        "staleness of gradients",
        "drawn",
    ]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for label, curve in found["curves"].items():
        seeds = curve["seeds"]
        returns = [_by_seed([at(each["curve"], steps) for each in seeds], "{:.1f}") for steps in SHOWN]
        lag = [each["policy_lag"].get("mean") for each in seeds]
        stale = [None if each["gradients"] is None else each["gradients"]["staleness"].get("mean") for each in seeds]
        drawn = [None if each["replay"] is None else each["replay"]["replay_ratio"] for each in seeds]
        cells = [
            f"{label}: `{curve['options']}`",
            _setup(curve["config"]),
            "; ".join(returns),
            _by_seed([each["goal_steps"] for each in seeds], "{:,}"),
            _by_seed([each["seconds"] for each in seeds], "{:.0f}"),
            _by_seed([each["steps_per_second"] for each in seeds], "{:,.0f}"),
            _by_seed([each["cores_busy"] for each in seeds], "{:.2f}"),
            _by_seed(lag, "{:.1f}"),
            _by_seed(stale, "{:.1f}"),
            _by_seed(drawn, "{:.1f}"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _setup(config: Mapping[str, Mapping[str, Any]]) -> str:
    """Pictures, if there are, environments (of each learner, or of all actors) and rollout length."""
    side, envs = config["env"].get("screen_size"), config["architecture"]["num_envs"]
    return f"{side}x{side}; " * (side is not None) + f"{envs} x {config['run']['rollout_length']}"


def _by_seed(values: Sequence[float | None], form: str) -> str:
    """The values of the seeds; a dash where there is none."""
    if all(value is None for value in values):
        return "-"
    return ", ".join("-" if value is None else form.format(value) for value in values)


def train(label: str, seed: int, work: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Finish one run. Returns its figures and its configuration."""
    directory = work / label.replace(", ", "-").replace(" ", "-").lower() / f"seed-{seed}"
    fresh, origin = not directory.exists(), provenance()
    begun, before = time.monotonic(), _cpu_seconds()
    options = [*shlex.split(SYSTEMS[label]), "--env", "pong", "--steps", str(STEPS), "--precision", "fp32"]
    curves.train(options, seed, directory, stop_at_return=None)
    busy = (_cpu_seconds() - before) / (time.monotonic() - begun)
    config = json.loads((directory / "result.json").read_text())["config"]
    return measured(directory, round(busy, 2) if fresh else None, origin), config


def _cpu_seconds() -> float:
    """Of the processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", nargs="?", choices=("train", "show"), default="train")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", metavar="WORD", help="systems whose label contains one of these words")
    parser.add_argument("--work", type=Path, default=Path("runs/table"), help="folder of the runs")
    add_out(parser)
    return parser


def main() -> None:
    """Train what the file lacks, or show the file."""
    given = _parser().parse_args()
    path = given.out / f"{NAME}.json"
    start = {**provenance(), "steps": STEPS, "cores": len(os.sched_getaffinity(0)), "goal": GOAL, "curves": {}}
    found = json.loads(path.read_text()) if path.exists() else start
    if given.verb == "show":
        print(table(found))
        return
    words = [word.lower() for word in given.only or [""]]
    labels = [label for label in SYSTEMS if any(word in label.lower() for word in words)]
    for label, seed in missing(found, labels, given.seeds):
        found = added(found, label, *train(label, seed, given.work))
        keep(NAME, found, given.out)
        redraw.draw(redraw.stored(found), GOAL, path.with_suffix(".png"))
        print(f"{path}: {label}, seed {seed}", flush=True)


if __name__ == "__main__":
    main()
