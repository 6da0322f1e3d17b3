"""Continuous control compared with Stable-Baselines3's PPO: what is learned, and how fast, on this machine's CPU.

    make bench-install && .venv/bin/pip install -e ".[mujoco]" && .venv-peers/bin/pip install "gymnasium[mujoco]"
    .venv/bin/python -m benchmarks.continuous train --sides gossamer sb3 --seeds 1 2 3
    .venv/bin/python -m benchmarks.continuous build

Sides: `gossamer` is `gossamer train paac --env ENV --algorithm ppo` with one preset for all environments, `gala` the
same with four learners; `sb3` is `PPO("MlpPolicy", env)` as it is, `zoo` has the options that RL Baselines3 Zoo
tuned for each environment (`peers/sb3_continuous.py`). All run with one torch thread for each learner, and each trains
MuJoCo's environments for 1,000,000 steps and Pendulum-v1 for 100,000.

`train` runs one after the other and skips what is there, so it can be started again at any time, and in several
processes with different seeds. `build --add` keeps the runs of the result file that are not in `--work`. The return is
the mean of the last 100 training episodes (sampled actions), as both sides report it.

    .venv/bin/python -m benchmarks.continuous rates

compares speeds: the sides train in turn for a few rollouts, several rounds, on an otherwise idle machine. The speeds of
whole trainings are only recorded, because these may run side by side.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.curves import thinned
from benchmarks.provenance import ROOT, Results, add_out, keep, provenance
from benchmarks.redraw import StoredCurve, draw

Run: TypeAlias = Mapping[str, Any]  # one training

STEPS = {"Hopper-v5": 1_000_000, "HalfCheetah-v5": 1_000_000, "Walker2d-v5": 1_000_000, "Pendulum-v1": 100_000}
OURS = {"gossamer": "paac", "gala": "gala --learners 4"}
PEERS = {"sb3": "default", "zoo": "zoo"}
SIDES = (*OURS, *PEERS)
PEER_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
NOTES = (
    "marks: steps, seconds, mean return of the last 100 training episodes",
    "seconds and steps_per_second: of runs that shared the machine with others; see speed-sb3-continuous.json",
)
RATE_NOTES = (
    "steps_per_second by round: from the first report with a finished episode to the last; the sides in turn",
    "ratio: gossamer / sb3, by round and as a median; torch with one thread for each learner",
)


def ours(side: str, env: str, seed: int, steps: int, work: Path) -> dict[str, Any]:
    """Train with Gossamer; the command and the marks."""
    run = work / f"{side}-{env}-{seed}"
    options = f"{OURS[side]} --env {env} --algorithm ppo --steps {steps} --seed {seed} --threads 1"
    words = ["train", *options.split(), "--run-dir", str(run), "--overwrite"]
    subprocess.run([sys.executable, "-m", "gossamer.cli", *words], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(run)
    marks = [(row["seconds"], row["steps"], row["mean_return"]) for row in rows]
    return {"command": f"gossamer train {options}", "marks": marks}


def peers(side: str, env: str, seed: int, steps: int, python: Path) -> dict[str, Any]:
    """Train with SB3; the command and the marks."""
    script = "benchmarks/peers/sb3_continuous.py"
    options = f"--env {env} --settings {PEERS[side]} --steps {steps} --seed {seed} --threads 1"
    command = [str(python), str(ROOT / script), *options.split()]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {"command": f"python {script} {options}", **json.loads(done.stdout.splitlines()[-1])}


def run(side: str, env: str, seed: int, steps: int, given: argparse.Namespace) -> dict[str, Any]:
    """Train once: the command and the marks (seconds, steps, return)."""
    if side in OURS:
        return ours(side, env, seed, steps, given.work)
    return peers(side, env, seed, steps, given.peer_python)


def train(given: argparse.Namespace) -> None:
    """Train what is not there yet, one run after the other, and write each result to its file in `work`."""
    given.work.mkdir(parents=True, exist_ok=True)
    for seed, env, side in product(given.seeds, given.envs, given.sides):
        path = given.work / f"{side}-{env}-{seed}.json"
        if not path.exists():
            print(f"{side} {env} seed {seed}", flush=True)
            found = run(side, env, seed, STEPS[env], given)
            path.write_text(json.dumps({"side": side, "env": env, "seed": seed, **provenance(), **found}))
            print(f"  {found['marks'][-1][2]:,.0f} after {STEPS[env]:,} steps", flush=True)


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Final returns and speeds of each side, for one environment."""
    found: dict[str, Any] = {}
    for side in SIDES:
        mine = [run for run in runs if run["side"] == side]
        if mine:
            finals = [run["marks"][-1][2] for run in mine]
            found[side] = {
                "command": mine[0]["command"],
                "seeds": [run["seed"] for run in mine],
                "final_returns": [round(value, 1) for value in finals],
                "mean": round(statistics.mean(finals), 1),
                "steps_per_second": [round(_rate(run["marks"])) for run in mine],
            }
    return found


def kept(run: Run) -> Run:
    """What the result file has of a run: its origin, and at most 200 marks [steps, seconds, return]."""
    origin = {name: run[name] for name in ("side", "env", "seed", "command", "commit", "date")}
    return {**origin, "processor": run["machine"]["processor"], "marks": reordered(run["marks"])}


def reordered(marks: Sequence[Sequence[Any]]) -> list[list[float]]:
    """Marks (seconds, steps, return) as at most 200 marks [steps, seconds, return], from the first return on."""
    return thinned([{"seconds": mark[0], "steps": mark[1], "mean_return": mark[2]} for mark in marks])


def merged(found: Sequence[Run], earlier: Sequence[Run] = ()) -> list[Run]:
    """The runs found, and the earlier ones of other seeds, by environment, side and seed."""
    runs = {(run["env"], run["side"], run["seed"]): run for run in (*earlier, *found)}
    return sorted(runs.values(), key=lambda run: (list(STEPS).index(run["env"]), SIDES.index(run["side"]), run["seed"]))


def _rate(marks: Sequence[Sequence[float]]) -> float:
    """Steps per second between the first mark and the last; marks are [steps, seconds, return]."""
    return (marks[-1][0] - marks[0][0]) / (marks[-1][1] - marks[0][1])


def build(runs: Sequence[Run]) -> dict[str, Any]:
    """The figures of all environments, and the runs that they come from."""
    envs = [env for env in STEPS if any(run["env"] == env for run in runs)]
    found = {env: summarise([run for run in runs if run["env"] == env]) for env in envs}
    return {"notes": list(NOTES), "envs": found, "runs": list(runs)}


def rates(given: argparse.Namespace) -> None:
    """Measure the speed of each side in each environment, in turn, and write the figures after each round."""
    results, found = Results("speed-sb3-continuous", given.out), dict[str, dict[str, list[float]]]()
    for _ in range(given.rounds):
        for env in given.envs:
            for side in given.sides:
                marks = reordered(run(side, env, 1, given.steps, given)["marks"])
                found.setdefault(env, {}).setdefault(side, []).append(round(_rate(marks), 1))
                print(f"{side} {env} {found[env][side][-1]:,.0f} steps/s", flush=True)
        figures = {env: ratios(speeds) for env, speeds in found.items()}
        results.write({"notes": list(RATE_NOTES), "steps": given.steps, "envs": figures})


def ratios(speeds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The speeds of each side by round, and the ratio of ours to SB3's."""
    if not {"gossamer", "sb3"} <= speeds.keys():
        return {"steps_per_second": speeds}
    found = [round(a / b, 3) for a, b in zip(speeds["gossamer"], speeds["sb3"], strict=False)]
    return {"steps_per_second": speeds, "ratio": found, "median_ratio": round(statistics.median(found), 3)}


def plot(runs: Sequence[Run], path: Path) -> None:
    """Draw the returns of all runs against steps: their seconds do not compare."""
    stored = [StoredCurve(run["side"], run["env"], run["seed"], run["marks"]) for run in runs]
    draw(sorted(stored, key=lambda each: SIDES.index(each.label)), None, path, chosen=("steps",))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "build", "rates"))
    parser.add_argument("--envs", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["gossamer", "sb3"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--work", type=Path, default=Path("runs/continuous"), help="directory of the runs")
    parser.add_argument("--peer-python", type=Path, default=PEER_PYTHON, help="Python that has Stable-Baselines3")
    parser.add_argument("--add", action="store_true", help="build: keep the result file's runs of other seeds")
    parser.add_argument("--rounds", type=int, default=3, help="rates: how often each side is measured")
    parser.add_argument("--steps", type=int, default=24_576, help="rates: steps of each measurement")
    add_out(parser)
    return parser


def main() -> None:
    """Train, write the figures, or measure speeds."""
    parser = _parser()
    given = parser.parse_args()
    if given.what == "train":
        train(given)
    elif given.what == "rates":
        rates(given)
    else:
        result = given.out / "continuous.json"
        earlier = json.loads(result.read_text())["runs"] if given.add and result.exists() else []
        runs = merged([kept(json.loads(path.read_text())) for path in sorted(given.work.glob("*.json"))], earlier)
        if not runs:
            parser.error(f"no runs in {given.work}")
        print(keep("continuous", {**provenance(), **build(runs)}, given.out))
        plot(runs, given.out / "continuous.png")


if __name__ == "__main__":
    main()
