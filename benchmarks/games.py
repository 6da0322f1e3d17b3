"""Several games by one network: the share of what a network for each game reaches with as many steps of that game.

    python -m benchmarks.games train                     # what the result file lacks, one run at a time
    python -m benchmarks.games train --only impala --labels pong normalised --seeds 1
    python -m benchmarks.games show                      # the file as a table in Markdown

For each system and seed: a run of each game alone, a run of all games with their values normalised, and one without.
The latter two have the steps of all single runs together. The share of a game is (return - random) / (return alone -
random), with the returns of the last 100 training episodes, and those of random play of Wang et al. 2016.

A run is added to the result file when it ends, so `train` can be stopped and started again, and called for other labels
at the same time. A run that was interrupted goes on from its last checkpoint. Only returns are compared: `seconds` and
`steps_per_second` are those of the cores that `machine` and `affinity` say, perhaps beside another run.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import curves
from benchmarks.provenance import add_out, keep, provenance
from gossamer.reporting.human import reference

NAME = "games"
GAMES = ("pong", "breakout", "boxing")
STEPS = 1_000_000  # of each game
SYSTEMS: Mapping[str, str] = {"paac ppo": "paac --algorithm ppo", "impala": "impala"}
TOGETHER: Mapping[str, str] = {"normalised": "", "not normalised": "--no-normalize-returns"}


def runs(systems: Sequence[str], seeds: Sequence[int], steps: int) -> Iterator[tuple[str, str, int, str]]:
    """System, label and seed of each run, and its options; all runs of a seed before the next seed."""
    for seed in seeds:
        for system in systems:
            for game in GAMES:
                yield system, game, seed, f"{SYSTEMS[system]} --env {game} --steps {steps}"
            for label, more in TOGETHER.items():
                env, total = ",".join(GAMES), steps * len(GAMES)
                yield system, label, seed, f"{SYSTEMS[system]} --env {env} --steps {total} {more}".strip()


def measured(directory: Path) -> dict[str, Any]:
    """The figures of a finished run: the return of each of its games."""
    result = json.loads((directory / "result.json").read_text())
    games = {name.removeprefix("return/"): value for name, value in result.items() if name.startswith("return/")}
    returns = games or {result["config"]["env"]["name"]: result["mean_return"]}
    times = {name: result[name] for name in ("steps", "seconds", "steps_per_second")}
    return {"returns": returns, **times, "affinity": len(os.sched_getaffinity(0))}


def known(file: Path) -> dict[str, Any]:
    """The figures of the result file: system -> label -> seed -> run."""
    return json.loads(file.read_text())["figures"] if file.exists() else {}


def add(file: Path, system: str, label: str, seed: int, run: Mapping[str, Any]) -> None:
    """Add a run to the result file, which another call may have changed."""
    found = known(file)
    found.setdefault(system, {}).setdefault(label, {})[str(seed)] = dict(run)
    ordered = {
        name: {each: found[name][each] for each in (*GAMES, *TOGETHER) if each in found[name]}
        for name in SYSTEMS
        if name in found
    }
    keep(NAME, {**run["origin"], "figures": ordered}, file.parent)


def shares(found: Mapping[str, Any], system: str, label: str, seed: str) -> dict[str, float | None]:
    """The share of each game that a run of all games reaches; None where the single run is missing, or no better than
    random play."""
    together, reached = found[system][label][seed]["returns"], dict[str, float | None]()
    for game in GAMES:
        alone = found[system].get(game, {}).get(seed)
        random, _ = reference(game) or (0.0, 1.0)
        gained = 0.0 if alone is None else alone["returns"][game] - random
        reached[game] = (together[game] - random) / gained if gained > 0 else None
    return reached


def table(found: Mapping[str, Any]) -> Iterator[str]:
    """The result file in Markdown."""
    yield f"| system | values | seed | {' | '.join(GAMES)} | least |"
    yield f"|---|---|---|{'---|' * (len(GAMES) + 1)}"
    for system in found:
        for label in TOGETHER:
            for seed in found[system].get(label, {}):
                each = shares(found, system, label, seed)
                known = [value for value in each.values() if value is not None]
                cells = ["-" if value is None else f"{value:.2f}" for value in each.values()]
                least = f"{min(known):.2f}" if len(known) == len(GAMES) else "-"
                yield f"| {system} | {label} | {seed} | {' | '.join(cells)} | {least} |"


def main() -> None:
    """Train what is missing, or show what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("train", "show"))
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="SYSTEM")
    labels = (*GAMES, *TOGETHER)
    parser.add_argument("--labels", nargs="+", choices=labels, default=list(labels), metavar="LABEL")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=STEPS, help="of each game")
    parser.add_argument("--work", type=Path, default=Path("runs/games"), help="directory of the runs")
    add_out(parser)
    given = parser.parse_args()
    file = given.out / f"{NAME}.json"
    if given.verb == "train":
        for system, label, seed, options in runs(given.only, given.seeds, given.steps):
            done = known(file).get(system, {}).get(label, {}).get(str(seed), {})
            if label not in given.labels or done.get("options") == options:
                continue
            directory, origin = given.work / system / label / f"seed-{seed}", provenance()
            curves.train(shlex.split(options), seed, directory, None)
            add(file, system, label, seed, {"options": options, **measured(directory), "origin": origin})
    print("\n".join(table(known(file))))


if __name__ == "__main__":
    main()
