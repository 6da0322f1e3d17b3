"""IMPALA compared with Sample Factory's APPO and RLlib's IMPALA on Pong, on the CPU of this machine, measured in turn.

    make bench-install-actors && .venv/bin/python -m benchmarks.actors_peers

All sides train with actors and a learner apart, each in processes of its own while the machine is otherwise idle: Pong
as 84x84 frames in stacks of 4, the Nature network, one pass over each sample, no memory. Steps are counted from the end
of a warm-up to the end. The time includes everything that a side does (metrics, checkpoints).

* The peers are set up as their own documentation describes (`peers/appo_sample_factory.py`, `peers/impala_rllib.py`),
  each with two numbers of processes and environments for two cores. RLlib's driver waits for rollouts, which is faster
  where there are few cores; a third set-up has its default, to poll without a pause. Gossamer is compared with each,
  and the best set-up of a peer, by medians, is named. Both peers compute in float32.
* Gossamer is the command that a user types, once with `--precision auto`, which is bfloat16 where that is
  fast, and once with `--precision fp32`.

A round measures each side once. Ratios are computed within a round. `cores` is CPU seconds per second of all processes
of a side: how busy the cores are. Writes `speed-impala-libraries.json` after each round.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.provenance import ROOT, Results, add_out
from benchmarks.watched import rate, training
from gossamer.system.machine import resolve_dtype

OURS = {"impala": "auto", "impala-fp32": "fp32"}
COMMAND = (
    "train impala --env pong --network nature --num-envs 32 --rollout-length 20 --steps 1000000000 --device cpu "
    "--preprocessing gala --screen-size 84 --input unit"
)
NOTES = (
    "rates are agent steps per second (4 frames each) of whole training: acting, stepping, learning",
    "impala runs with --precision auto (see precision), impala-fp32 in float32 as the peers do",
    "all sides: one pass over each sample, no memory, rewards clipped, a lost life ends an episode, fire at a reset, "
    "up to 30 no-ops",
    "losses differ: V-trace (Gossamer, RLlib), PPO with GAE on returns and observations that are normalised by their "
    "running statistics (Sample Factory)",
    "batches differ: 640 steps (Gossamer, 32 environments x 20), 1,024 (Sample Factory), 500 (RLlib), as documented",
    "RLlib's steps are those sampled; its learner trained on all of them where this was looked at",
    "RLlib's driver waits for rollouts instead of polling, and Ray's workers have normal priority: faster on two cores "
    "(with --polling both are as by default)",
    "emulators differ: Sample Factory needs gymnasium below 1 and numpy below 2, and with them ale-py 0.10",
)


@dataclass(frozen=True)
class Peer:
    """A library that is compared with, in a virtual environment of its own."""

    folder: str  # of the virtual environment, under the root of the repository
    script: str  # under benchmarks/peers
    setups: tuple[str, ...]  # options of the script, by which processes and environments differ
    packages: tuple[str, ...]  # whose versions are kept

    @property
    def python(self) -> Path:
        return ROOT / self.folder / "bin" / "python"

    def command(self, options: str, marks: Path) -> list[str]:
        """What trains and writes `marks`."""
        script = ROOT / "benchmarks" / "peers" / self.script
        return [str(self.python), str(script), *shlex.split(options), "--marks", str(marks)]

    def versions(self) -> dict[str, str]:
        """The installed versions of `packages`."""
        path = [str(each) for each in (ROOT / self.folder).glob("lib/python*/site-packages")]
        found = {each.name.lower().replace("_", "-"): each.version for each in distributions(path=path)}
        return {name: found[name] for name in (*self.packages, "torch", "numpy", "gymnasium", "ale-py")}


PEERS = {
    "sample-factory": Peer(
        folder=".venv-sample-factory",
        script="appo_sample_factory.py",
        setups=("--workers 2 --envs 16", "--workers 2 --envs 8"),
        packages=("sample-factory", "faster-fifo"),
    ),
    "rllib": Peer(
        folder=".venv-rllib",
        script="impala_rllib.py",
        setups=("--runners 2 --envs 8", "--runners 2 --envs 16", "--runners 2 --envs 8 --polling"),
        packages=("ray",),
    ),
}
SIDES = (*OURS, *(f"{name} {setup}" for name, peer in PEERS.items() for setup in peer.setups))


def command(side: str, folder: Path) -> tuple[list[str], Path]:
    """What trains a side with its output in `folder`, and the file of its marks."""
    name, _, options = side.partition(" ")
    if name in PEERS:
        return PEERS[name].command(options, folder / "marks.jsonl"), folder / "marks.jsonl"
    given = ["--precision", OURS[name], "--run-dir", str(folder / "run")]
    return [sys.executable, "-m", "gossamer.cli", *shlex.split(COMMAND), *given], folder / "run" / "metrics.jsonl"


def measure(side: str, seconds: float, warm_up: float) -> dict[str, float]:
    """Steps per second and busy cores of a side, for `seconds` after the warm-up."""
    with tempfile.TemporaryDirectory(prefix="peer-", ignore_cleanup_errors=True) as folder:
        words, file = command(side, Path(folder))
        with training(words, log=Path(folder, "log"), marks=file) as run:
            run.wait(warm_up)
            began, before = perf_counter(), run.cpu_seconds()
            marks = run.wait(warm_up + seconds)
            cores = (run.cpu_seconds() - before) / (perf_counter() - began)
    return {"rate": rate(marks, warm_up), "cores": cores}


def figures(rounds: Sequence[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Rates and busy cores by round, medians, the best set-up of each peer, and the ratios of our sides to each."""
    median = {side: statistics.median(each[side]["rate"] for each in rounds) for side in SIDES}
    sides = {
        side: {
            "steps_per_second": [round(each[side]["rate"]) for each in rounds],
            "median": round(median[side]),
            "cores": [round(each[side]["cores"], 2) for each in rounds],
        }
        for side in SIDES
    }
    best = {
        name: max((f"{name} {each}" for each in peer.setups), key=median.__getitem__) for name, peer in PEERS.items()
    }
    peers = [side for side in SIDES if side not in OURS]
    ratios = {f"{ours} / {side}": _ratio(rounds, ours, side) for ours in OURS for side in peers}
    return {**sides, "best": best, "ratio": ratios}


def _ratio(rounds: Sequence[dict[str, dict[str, float]]], ours: str, peer: str) -> dict[str, Any]:
    values = [each[ours]["rate"] / each[peer]["rate"] for each in rounds]
    return {"median": round(statistics.median(values), 3), "rounds": [round(value, 3) for value in values]}


def setup(seconds: float, warm_up: float) -> dict[str, Any]:
    """What is measured, for the file."""
    return {
        "game": "pong",
        "seconds": seconds,
        "warm_up_seconds": warm_up,
        "gossamer": f"gossamer {COMMAND}",
        "precision": str(resolve_dtype("cpu", pictures=True)).removeprefix("torch."),
        "versions_of": {name: peer.versions() for name, peer in PEERS.items()},
        "notes": list(NOTES),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=45.0, help="measured seconds of training, after the warm-up")
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds of training before the measurement")
    add_out(parser)
    given = parser.parse_args()
    if given.rounds < 1 or given.seconds < 5 or given.warm_up < 0:
        parser.error("--rounds must be 1 or more, --seconds 5 or more (marks are 2 s apart), --warm-up 0 or more")
    if missing := [name for name, peer in PEERS.items() if not peer.python.exists()]:
        parser.error(f"{' and '.join(missing)} not installed: make bench-install-actors")
    # A shell that runs this with & makes it ignore SIGINT. The trainings, which SIGINT ends, would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    results, rounds = Results("speed-impala-libraries", given.out), list[dict[str, dict[str, float]]]()
    for turn in range(given.rounds):
        row: dict[str, dict[str, float]] = {}
        for side in SIDES:
            row[side] = measure(side, given.seconds, given.warm_up)
            said = f"{row[side]['rate']:8,.0f} steps/s, {row[side]['cores']:.2f} cores"
            print(f"round {turn + 1} of {given.rounds}: {side:36} {said}", flush=True)
        rounds.append(row)
        results.write({**setup(given.seconds, given.warm_up), **figures(rounds)})
    print(results.path)


if __name__ == "__main__":
    main()
