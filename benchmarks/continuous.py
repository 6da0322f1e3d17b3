"""Continuous control compared with Stable-Baselines3's PPO: what is learned, and how fast, on this machine's CPU.

    make bench-install && .venv/bin/pip install -e ".[mujoco]" && .venv-peers/bin/pip install "gymnasium[mujoco]"
    .venv/bin/python -m benchmarks.continuous train --sides gossamer sb3 --seeds 1 2 3
    .venv/bin/python -m benchmarks.continuous build

Sides: `gossamer` is `gossamer train paac --env ENV --algorithm ppo` with one preset for all environments, `gala` the
same with four learners; `sb3` is `PPO("MlpPolicy", env)` as it is, `zoo` has the options that RL Baselines3 Zoo
tuned for each environment (`peers/sb3_continuous.py`). All run with one torch thread for each learner, and each trains
MuJoCo's environments for 1,000,000 steps and Pendulum-v1 for 100,000.

`train` runs one after the other and skips what is there, so it can be started again at any time, and in several
processes with different seeds. The return is the mean of the last 100 training episodes (sampled actions), as both
sides report it. Speeds are those of whole trainings. Compare only those of runs on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.curves import thinned
from benchmarks.provenance import ROOT, add_out, keep, provenance

STEPS = {"Hopper-v5": 1_000_000, "HalfCheetah-v5": 1_000_000, "Walker2d-v5": 1_000_000, "Pendulum-v1": 100_000}
OURS = {"gossamer": "paac", "gala": "gala --learners 4"}
PEERS = {"sb3": "default", "zoo": "zoo"}
PEER_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
NOTES = (
    "marks: steps, seconds, mean return of the last 100 training episodes",
    "seconds: from the first step to the last, all included; torch with one thread for each learner",
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


def train(side: str, env: str, seed: int, steps: int, *, work: Path, python: Path) -> None:
    """Train once and write the result to `work`, unless it is there."""
    path = work / f"{side}-{env}-{seed}.json"
    if path.exists():
        return
    print(f"{side} {env} seed {seed}", flush=True)
    work.mkdir(parents=True, exist_ok=True)
    found = ours(side, env, seed, steps, work) if side in OURS else peers(side, env, seed, steps, python)
    path.write_text(json.dumps({"side": side, "env": env, "seed": seed, **provenance(), **found}))
    print(f"  {found['marks'][-1][2]:,.0f} after {steps:,} steps", flush=True)


def summarise(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Final returns and speeds of each side, and ratios of ours to SB3's defaults, for one environment."""
    found: dict[str, Any] = {}
    for side in (*OURS, *PEERS):
        mine = sorted((run for run in runs if run["side"] == side), key=lambda run: int(run["seed"]))
        if mine:
            rates = [_rate(run["marks"]) for run in mine]
            finals = [run["marks"][-1][2] for run in mine]
            found[side] = {
                "command": mine[0]["command"],
                "seeds": [run["seed"] for run in mine],
                "final_returns": [round(value, 1) for value in finals],
                "mean": round(statistics.mean(finals), 1),
                "steps_per_second": [round(rate) for rate in rates],
                "commits": sorted({run["commit"] for run in mine}),
                "marks": [thinned([_row(mark) for mark in run["marks"]]) for run in mine],
            }
    return found


def _row(mark: Sequence[float]) -> dict[str, Any]:
    return {"seconds": mark[0], "steps": mark[1], "mean_return": mark[2]}


def _rate(marks: Sequence[Sequence[float]]) -> float:
    """Steps per second of a whole training."""
    return (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])


def build(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of all environments."""
    envs = [env for env in STEPS if any(run["env"] == env for run in runs)]
    return {"notes": list(NOTES), "envs": {env: summarise([r for r in runs if r["env"] == env]) for env in envs}}


def plot(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the returns of all runs over steps, one panel for each environment."""
    envs = [env for env in STEPS if any(run["env"] == env for run in runs)]
    figure, panels = plt.subplots(1, len(envs), figsize=(4.5 * len(envs), 3.6), squeeze=False, layout="constrained")
    colours = dict(zip((*OURS, *PEERS), plt.rcParams["axes.prop_cycle"].by_key()["color"], strict=False))
    for panel, env in zip(panels[0], envs, strict=True):
        for run in (each for each in runs if each["env"] == env):
            marks = [mark for mark in run["marks"] if mark[2] is not None]
            steps, returns = [mark[1] for mark in marks], [mark[2] for mark in marks]
            panel.plot(steps, returns, color=colours[run["side"]], label=run["side"], linewidth=1)
        handles = {line.get_label(): line for line in panel.get_lines()}
        panel.legend(handles.values(), handles.keys())
        panel.set(title=env, xlabel="environment steps", ylabel="mean return of 100 training episodes")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train, or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "build"))
    parser.add_argument("--envs", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--sides", nargs="+", choices=(*OURS, *PEERS), default=["gossamer", "sb3"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--work", type=Path, default=Path("runs/continuous"), help="directory of the runs")
    parser.add_argument("--peer-python", type=Path, default=PEER_PYTHON, help="Python that has Stable-Baselines3")
    add_out(parser)
    given = parser.parse_args()
    if given.what == "train":
        for seed in given.seeds:
            for env in given.envs:
                for side in given.sides:
                    train(side, env, seed, STEPS[env], work=given.work, python=given.peer_python)
        return
    runs = [json.loads(path.read_text()) for path in sorted(given.work.glob("*.json"))]
    if not runs:
        parser.error(f"no runs in {given.work}")
    print(keep("continuous", {**provenance(), **build(runs)}, given.out))
    plot(runs, given.out / "continuous.png")


if __name__ == "__main__":
    main()
