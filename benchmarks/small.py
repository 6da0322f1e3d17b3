"""Speed on small environments, compared with Stable-Baselines3's PPO, on this machine's CPU.

    make bench-install
    .venv/bin/python -m benchmarks.small --rounds 5

Sides, in turn: `same`, Gossamer's PPO under paac with SB3's numbers of environments, passes and minibatches and its
network (two layers of 64, a critic of its own, one network for all parts of a Dict); `default`, the same with the
default network, which has layers for each part of a Dict; `sb3`. All have one torch thread.

A speed is that of the whole training; imports and the making of environments do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.provenance import ROOT, Results, add_out

ENVS = {"CartPole-v1": "CartPole-v1", "Pendulum-v1": "Pendulum-v1", "mixed": "benchmarks.mixed:make"}
COMMON = "--algorithm ppo --num-envs 16 --rollout-length 128 --epochs 10 --num-minibatches 8 --threads 1"
NETWORKS = {"same": "--network mlp --separate-critic --no-normalize-observations --no-normalize-returns", "default": ""}
SIDES = (*NETWORKS, "sb3")
PATHS = {**os.environ, "PYTHONPATH": str(ROOT)}  # both sides import `benchmarks.mixed`
PEER_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
NOTES = (
    "steps_per_second by round, the sides in turn; ratio: of the sides to sb3, by round and as a median",
    "16 environments, rollouts of 128, 10 passes, minibatches of 256, one torch thread",
)


def ours(env: str, network: str, steps: int) -> float:
    """Train with Gossamer; steps per second."""
    with tempfile.TemporaryDirectory() as folder:
        joined = " --join-vectors" if (env, network) == ("mixed", "same") else ""
        options = f"paac --env {ENVS[env]} {COMMON} {NETWORKS[network]}{joined} --steps {steps} --seed 1"
        words = ["train", *options.split(), "--run-dir", f"{folder}/run"]
        subprocess.run([sys.executable, "-m", "gossamer.cli", *words], check=True, stdout=subprocess.DEVNULL, env=PATHS)
        result = json.loads(Path(folder, "run", "result.json").read_text())
    return float(result["steps"] / result["seconds"])


def peer(env: str, steps: int, python: Path) -> float:
    """Train with SB3; steps per second."""
    command = [str(python), str(ROOT / "benchmarks/peers/sb3_small.py"), "--env", env, "--steps", str(steps)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=PATHS)
    found = json.loads(done.stdout.splitlines()[-1])
    return float(found["steps"] / found["seconds"])


def ratios(speeds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The speeds of one environment, and how they compare with SB3's."""
    found: dict[str, Any] = {"steps_per_second": {side: [round(s) for s in of] for side, of in speeds.items()}}
    for side in speeds.keys() - {"sb3"}:
        by_round = [round(a / b, 2) for a, b in zip(speeds[side], speeds.get("sb3", ()), strict=False)]
        if by_round:
            found[side] = {"ratio": by_round, "median": statistics.median(by_round)}
    return found


def main() -> None:
    """Measure, and write the figures after each round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", choices=ENVS, default=list(ENVS))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--steps", type=int, default=40_960, help="of each training")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-python", type=Path, default=PEER_PYTHON, help="Python that has Stable-Baselines3")
    add_out(parser)
    given = parser.parse_args()
    results, found = Results("speed-sb3-small", given.out), dict[str, dict[str, list[float]]]()
    for _ in range(given.rounds):
        for env in given.envs:
            for side in given.sides:
                made = peer(env, given.steps, given.peer_python) if side == "sb3" else ours(env, side, given.steps)
                found.setdefault(env, {}).setdefault(side, []).append(made)
                print(f"{env} {side} {made:,.0f} steps/s", flush=True)
        figures = {env: ratios(speeds) for env, speeds in found.items()}
        results.write({"notes": list(NOTES), "steps": given.steps, "envs": figures})


if __name__ == "__main__":
    main()
