"""How many steps training needs with more environments, under the rule for rollouts and learning rate of
`gossamer.presets.fitting`: Pong with 16 to 256 of them, APPO and PAAC with PPO.

    .venv/bin/python -m benchmarks.envs_scaling
    .venv/bin/python -m benchmarks.envs_scaling --env catch-pixels --goal 0.9 --steps 400000   # a minute for each run

Trains one run after the other until the mean return of the last 100 games is the goal, and writes
`pong-envs-scaling.json` after each run. It can be started again at any time: finished runs are skipped and an
interrupted one is resumed. Methods that are not trained stay in the file as they are. For each method and number of
environments:

* `options`: what the rule makes of this number.
* `commit`: that trained it.
* `seeds`: see `benchmarks.curves`; `median_goal_steps` until the goal, null if most seeds did not reach it.
* `growth`: that median as a multiple of the one with the first number of `--envs`, the tuned one. The rule is good if
  it stays below 1.3.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.curves import load, median, train
from benchmarks.provenance import add_out, keep, provenance
from gossamer.config.resolve import Choices, Composition
from gossamer.presets.fitting import TUNED_CORES, fit
from gossamer.system.options import flag
from gossamer.system.resources import Resources

METHODS = {"appo": "appo", "paac": "paac --algorithm ppo"}
ENVS = (16, 64, 128, 256)


def sizes(method: str, env: str, num_envs: int) -> dict[str, Any]:
    """The options that the rule gives for so many environments."""
    architecture, *rest = shlex.split(METHODS[method])
    tuned = Composition(Choices(architecture, env, rest[1] if rest else None)).tuned()
    values = {**tuned, "num_envs": num_envs}
    return {"num_envs": num_envs, **fit(tuned, values, {"num_envs"}, Resources(TUNED_CORES))}


def words(method: str, env: str, chosen: dict[str, Any], steps: int) -> list[str]:
    """The options of a run."""
    own = [word for name, value in chosen.items() for word in (flag(name), str(value))]
    return [*shlex.split(METHODS[method]), "--env", env, *own, "--steps", str(steps), "--log", "none"]


def figures(runs: dict[tuple[str, int], list[Path]], env: str, goal: float, commit: str) -> dict[str, Any]:
    """By method and number of environments, of the runs that have ended."""
    found: dict[str, Any] = {}
    for (method, num_envs), directories in runs.items():
        seeds = [load(directory, goal) for directory in directories if (directory / "result.json").exists()]
        if seeds:
            steps = median([seed["goal_steps"] for seed in seeds])
            chosen = sizes(method, env, num_envs)
            entry = {"options": chosen, "commit": commit, "median_goal_steps": steps, "seeds": seeds}
            found.setdefault(method, {})[str(num_envs)] = entry
    for entries in found.values():
        base = next(iter(entries.values()))["median_goal_steps"]
        for entry in entries.values():
            steps = entry["median_goal_steps"]
            entry["growth"] = round(steps / base, 3) if steps and base else None
    return found


def kept(path: Path, goal: float, methods: Sequence[str]) -> dict[str, Any]:
    """The entries of the file with this goal, of other methods."""
    found = json.loads(path.read_text()) if path.exists() else {}
    if found.get("goal") != goal:
        return {}
    return {
        method: {envs: {"commit": found["commit"], **entry} for envs, entry in entries.items()}
        for method, entries in found["methods"].items()
        if method not in methods
    }


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="pong")
    parser.add_argument("--goal", type=float, default=18.0)
    parser.add_argument("--methods", choices=list(METHODS), nargs="+", default=list(METHODS))
    parser.add_argument("--envs", type=int, nargs="+", default=list(ENVS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=1_500_000, help="of a run that does not reach the goal")
    parser.add_argument("--work", type=Path, default=Path("runs/envs-scaling"), help="directory of the runs")
    add_out(parser)
    given = parser.parse_args()
    origin, runs = provenance(), dict[tuple[str, int], list[Path]]()
    name = f"{given.env}-envs-scaling"
    others = kept(given.out / f"{name}.json", given.goal, given.methods)
    for seed in given.seeds:
        for method in given.methods:
            for num_envs in given.envs:
                directory = given.work / given.env / method / str(num_envs) / f"seed-{seed}"
                train(
                    words(method, given.env, sizes(method, given.env, num_envs), given.steps),
                    seed,
                    directory,
                    given.goal,
                )
                runs.setdefault((method, num_envs), []).append(directory)
                methods = others | figures(runs, given.env, given.goal, origin["commit"])
                found = {"goal": given.goal, "seconds_compare": not others, "methods": methods}
                path = keep(name, {**origin, **found}, given.out)
    print(path)


if __name__ == "__main__":
    main()
