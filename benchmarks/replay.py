"""Replay memories compared with those of other libraries, on the CPU of this machine, measured in turn.

    make bench-install-replay && .venv/bin/python -m benchmarks.replay

Every memory is filled with stacks of four 84x84 pictures, and batches are drawn from it, each in a process of its own
with one thread. Writes `speed-replay.json`, for each library:

`uniform`      512 samples of one step, with both observations
`prioritised`  the same in proportion to priorities, which are replaced after each draw
`sequences`    32 sequences of 80 steps, with recurrent states of 2 x 512 units where there are such
`tree`         draws and changes of 512 priorities among a million, without pictures

with `steps` that it kept, `insert` (steps per second while it was filled), `sample` (samples, or steps of sequences,
per second) and `memory_gb`. A library that keeps stacks is given fewer steps, so that it fits into `--memory`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.provenance import ROOT, Results, add_out
from benchmarks.replay_workload import (
    ALPHA,
    BATCH,
    BETA,
    ENVS,
    EPISODE,
    LEAVES,
    LENGTH,
    ROLLOUT,
    SEQUENCES,
    SIZE,
    STACK,
    filled,
    per_second,
    resident,
    stacks,
)
from gossamer.algorithms.base import Prioritized, ReplayPlan
from gossamer.algorithms.dqn import n_step_errors
from gossamer.data import Trajectory
from gossamer.experience.replay.priorities import Priorities
from gossamer.experience.replay.store import ReplayStore
from gossamer.spaces import Discrete, Spec

PEER_PYTHON = ROOT / ".venv-replay" / "bin" / "python"
KINDS: Mapping[str, tuple[str, ...]] = {  # side -> what it can do
    "gossamer": ("uniform", "prioritised", "sequences", "tree"),
    "cpprb": ("uniform", "prioritised", "tree"),
    "torchrl": ("uniform", "sequences"),
    "sb3": ("uniform",),
}
PICTURES: Mapping[str, int] = {"gossamer": 1, "cpprb": 1, "torchrl": 2 * STACK, "sb3": STACK}  # stored for each step
UNITS = 512  # of a recurrent state's two vectors
NOTES = (
    "cpprb: the steps of one environment, since it rebuilds stacks from steps that follow each other",
    "torchrl and sb3 store stacks; torchrl's sequences have one observation for each step",
    "cpprb has no sequences; Stable-Baselines3 has neither sequences nor priorities",
    "torchrl's priorities need its extension, which torchrl 0.14.1 does not have for torch 2.13: not measured",
)


def rollouts(count: int, *, recurrent: bool) -> list[Trajectory]:
    """Rollouts as an actor writes them. An episode begins in the last one."""
    obs, made = torch.from_numpy(stacks(ENVS, ROLLOUT)), []
    for i in range(count):
        state = {name: torch.rand(ENVS, UNITS) for name in ("hidden", "cell") if recurrent}
        slot = Trajectory.empty(ROLLOUT, ENVS, obs.shape[2:], torch.uint8, state=state).with_chosen()
        slot.obs.copy_(obs)
        slot.reward.normal_()
        slot.begins[-1] = i == count - 1
        made.append(slot)
    return made


def ours(kind: str, steps: int, seconds: float) -> dict[str, float]:
    """The figures of Gossamer."""
    if kind == "tree":
        return {"sample": per_second(_tree(), BATCH, seconds)}
    sequences, rng = kind == "sequences", torch.Generator().manual_seed(0)
    window, batch = (LENGTH, SEQUENCES) if sequences else (1, BATCH)
    priority = Prioritized(ALPHA, BETA, n_step_errors) if kind == "prioritised" else None
    plan = ReplayPlan(steps, batch, window, 1.0, 1, priority=priority, sequences=sequences)
    spec = Spec((STACK, SIZE, SIZE), np.dtype(np.uint8), Discrete(6), history=STACK)
    given = rollouts(EPISODE // ROLLOUT if not sequences else 8, recurrent=sequences)
    before = resident()
    store = ReplayStore(spec, plan, {0: ENVS}, steps)

    def add(call: int) -> int:
        slot = given[call % len(given)]
        store.add(0, slot)
        return slot.steps

    def draw() -> None:
        drawn = store.draw(batch, rng)
        drawn.weighted(priority, store.mass, store.windows)
        store.update(drawn.keys, torch.rand(batch))

    return {**filled(add, steps, before), "sample": per_second(draw, batch * window, seconds)}


def _tree() -> Any:
    """A function that draws leaves and changes their priorities."""
    tree, rng, change = Priorities(LEAVES), torch.Generator().manual_seed(0), np.random.default_rng(0)
    tree.set(np.arange(LEAVES), change.random(LEAVES))
    return lambda: tree.set(tree.draw(BATCH, rng), change.random(BATCH))


def measured(side: str, kind: str, steps: int, seconds: float) -> dict[str, Any]:
    """The figures of one side, from a process of its own."""
    script = ["-m", "benchmarks.replay"] if side == "gossamer" else [str(ROOT / "benchmarks" / "peers" / "replay.py")]
    python = sys.executable if side == "gossamer" else str(PEER_PYTHON)
    options = {"side": side, "kind": kind, "steps": steps, "seconds": seconds}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([python, *script, *words], capture_output=True, text=True, cwd=ROOT, env=environment)
    if done.returncode:
        raise RuntimeError(f"{side}, {kind}: failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["sample"] = round(found["sample"])
    return found


def measure(steps: int, memory: float, seconds: float) -> dict[str, Any]:
    """All figures, one after the other."""
    figures: dict[str, Any] = {"notes": list(NOTES), "seconds": seconds, "sides": {}}
    for kind in KINDS["gossamer"]:
        for side, kinds in KINDS.items():
            if kind not in kinds:
                continue
            pictures = STACK if (side, kind) == ("torchrl", "sequences") else PICTURES[side]
            most = int(memory * 1e9 / (pictures * SIZE * SIZE)) // EPISODE * EPISODE
            found = measured(side, kind, min(steps, most), seconds)
            figures["sides"].setdefault(side, {})[kind] = found
            print(f"{kind:12} {side:9}", json.dumps(found), file=sys.stderr)
    return figures


def main() -> None:
    """Measure and write; with `--side` measure one memory and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000, help="that are kept")
    parser.add_argument("--memory", type=float, default=15.0, help="GB of pictures that a library may keep")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--side", choices=["gossamer"], help=argparse.SUPPRESS)
    parser.add_argument("--kind", choices=KINDS["gossamer"], help=argparse.SUPPRESS)
    add_out(parser)
    given = parser.parse_args()
    if given.side:
        torch.set_num_threads(1)
        print(json.dumps(ours(given.kind, given.steps, given.seconds)))
        return
    if not Path(PEER_PYTHON).exists():
        parser.error("run `make bench-install-replay` first")
    results = Results("speed-replay", given.out)
    results.write(measure(given.steps, given.memory, given.seconds))


if __name__ == "__main__":
    main()
