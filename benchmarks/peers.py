"""Training speed compared with Stable-Baselines3's A2C or DQN on Pong, on the CPU of this machine, measured in turn.

    make bench-install && .venv/bin/python -m benchmarks.peers       # A2C
    .venv/bin/python -m benchmarks.peers --algorithm dqn --warm-up 30

Both sides train, each in its own process while the machine is otherwise idle: Pong as 84x84 frames in stacks of 4, and
the Nature network. Steps are counted from the end of a warm-up to the end. The time includes everything that a side
does (Gossamer writes its metrics).

* A2C: 32 environments, rollouts of 5 steps, RMSProp and the same coefficients.
* DQN: 8 environments, 4 steps of each between updates, 8 samples for each step in batches of 32, a buffer of 100,000
  steps, Adam. The warm-up must include the 1,000 steps before learning begins. SB3 keeps one stack of pictures for each
  step (`optimize_memory_usage`).

* SB3 is set up as its documentation describes (`peers/sb3.py`), once with `DummyVecEnv`, its default, and once with
  `SubprocVecEnv`. Gossamer is compared with the better of the two, by medians. SB3 computes in float32 and has no
  option for a lower precision.
* Gossamer is the command that a user types, once with `--precision auto`, which is bfloat16 where that is
  fast, and once with `--precision fp32`. The games run in ale-py's native vector environment, which is part of
  the comparison.

A round measures each side once. Ratios are computed within a round. Writes `speed-sb3-a2c.json`, `speed-sb3-dqn.json`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.provenance import ROOT, add_out, keep, provenance
from benchmarks.watched import STUCK_SECONDS, Mark, rate, training
from gossamer.system.machine import resolve_dtype

PEER_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
PEERS = {"sb3-dummy": "dummy", "sb3-subproc": "subproc"}
OURS = {"gossamer": "auto", "gossamer-fp32": "fp32"}
GAMES = 'VecFrameStack(make_atari_env("PongNoFrameskip-v4", {envs}), 4)'


@dataclass(frozen=True)
class Workload:
    """The same training for both sides."""

    envs: int
    rollout: int
    ours: str  # options of gossamer
    theirs: str  # how `peers/sb3.py` sets SB3 up

    @property
    def command(self) -> str:
        """Ours."""
        shared = (
            "--steps 1000000000 --env pong --network nature --preprocessing gala --screen-size 84 --input unit "
            "--device cpu --anneal-steps 0"
        )
        return f"train {self.ours} --num-envs {self.envs} --rollout-length {self.rollout} {shared}"


WORKLOADS = {
    "a2c": Workload(
        32,
        5,
        "paac --algorithm a2c --optimizer rmsprop-torch --decay 0.99 --epsilon 1e-5 --learning-rate 7e-4 "
        "--gae-lambda 1.0 --value-coef 0.5 --entropy-coef 0.01 --max-grad-norm 0.5",
        'A2C("CnnPolicy", n_steps=5)',
    ),
    "dqn": Workload(
        8,
        4,
        "dqn --optimizer adam --epsilon 1e-8 --learning-rate 1e-4 --max-grad-norm 10 --n-step 1 --no-double "
        "--no-dueling --huber --buffer-size 100000 --batch-size 32 --samples-per-insert 8 --learning-starts 1000 "
        "--target-period 2500 --epsilon-start 1 --epsilon-end 0.01 --epsilon-steps 100000",
        'DQN("CnnPolicy", train_freq=4, gradient_steps=8, batch_size=32, buffer_size=100_000, learning_starts=1000, '
        "target_update_interval=10_000, optimize_memory_usage=True)",
    ),
}
NOTES = (
    "rates are agent steps per second (4 frames each) of whole training: acting, stepping, learning",
    "gossamer runs with --precision auto (see precision), gossamer-fp32 in float32 as SB3 does",
    "SB3 is the better of DummyVecEnv and SubprocVecEnv, with torch's default threads; see benchmarks/peers/",
    "--preprocessing gala: like SB3's make_atari_env, a lost life ends an episode, fire at a reset, 30 no-ops",
)


def summarise(rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Medians of all sides, the better peer, and the ratios of our sides to it, by round and as a median."""
    median = {side: statistics.median(row[side] for row in rounds) for side in rounds[0]}
    best = max(PEERS, key=lambda side: median[side])
    ratios = {side: [row[side] / row[best] for row in rounds] for side in OURS}
    return {
        "median": {side: round(value, 1) for side, value in median.items()},
        "peer": best,
        "ratio": {
            side: {"rounds": [round(r, 3) for r in values], "median": round(statistics.median(values), 3)}
            for side, values in ratios.items()
        },
    }


def measure_peer(side: str, algorithm: str, seconds: float) -> dict[str, Any]:
    """The output of `peers/sb3.py` after `seconds` of training."""
    script = ROOT / "benchmarks" / "peers" / "sb3.py"
    what = WORKLOADS[algorithm]
    options = {"algorithm": algorithm, "vec-env": PEERS[side], "seconds": seconds, "envs": what.envs}
    options["rollout"] = what.rollout
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    done = subprocess.run(
        [str(PEER_PYTHON), str(script), *words], capture_output=True, text=True, timeout=seconds + STUCK_SECONDS
    )
    if done.returncode:
        raise RuntimeError(f"{side} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_ours(side: str, algorithm: str, seconds: float) -> list[Mark]:
    """The marks in the metrics of a run of `seconds` of training."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        options = ["--precision", OURS[side], "--run-dir", str(run)]
        command = [sys.executable, "-m", "gossamer.cli", *shlex.split(WORKLOADS[algorithm].command), *options]
        with training(command, log=Path(folder, "log"), marks=run / "metrics.jsonl") as process:
            return process.wait(seconds)


def measure(algorithm: str, rounds: int, seconds: float, warm_up: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure all sides in turn, `rounds` times, each for `seconds` after the warm-up. Returns the file's content."""
    what, rows = WORKLOADS[algorithm], list[dict[str, float]]()
    peer: dict[str, Any] = {}
    for turn in range(rounds):
        row: dict[str, float] = {}
        for side in (*PEERS, *OURS):
            if side in PEERS:
                peer = measure_peer(side, algorithm, warm_up + seconds)
                marks = peer["marks"]
            else:
                marks = measure_ours(side, algorithm, warm_up + seconds)
            row[side] = round(rate(marks, warm_up), 1)
            say(f"round {turn + 1} of {rounds}: {side:14} {row[side]:8,.0f} steps/s")
        rows.append(row)
    return {
        "game": "pong",
        "seconds": seconds,
        "warm_up_seconds": warm_up,
        "gossamer": f"gossamer {what.command}",
        "precision": str(resolve_dtype("cpu", pictures=True)).removeprefix("torch."),
        "sb3": f"{what.theirs} in {GAMES.format(envs=what.envs)}",
        "sb3_versions": peer["versions"],
        "sb3_torch_threads": peer["threads"],
        "notes": list(NOTES),
        "rounds": rows,
        **summarise(rows),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0, help="measured seconds of training, after the warm-up")
    parser.add_argument("--warm-up", type=float, default=6.0, help="seconds of training before the measurement")
    parser.add_argument("--algorithm", choices=WORKLOADS, default="a2c")
    parser.add_argument("--name", help="name of the result file (default: speed-sb3-ALGORITHM)")
    add_out(parser)
    given = parser.parse_args()
    if given.rounds < 1 or given.seconds < 5 or given.warm_up < 0:
        parser.error("--rounds must be 1 or more, --seconds 5 or more (marks are 2 s apart), --warm-up 0 or more")
    if not PEER_PYTHON.exists():
        parser.error("Stable-Baselines3 is not installed: make bench-install")
    origin = provenance()
    found = measure(
        given.algorithm, given.rounds, given.seconds, given.warm_up, say=lambda text: print(text, flush=True)
    )
    print(keep(given.name or f"speed-sb3-{given.algorithm}", {**origin, **found}, given.out))
    for side, ratio in found["ratio"].items():
        print(f"{side}: {ratio['median']:.2f} times {found['peer']}")


if __name__ == "__main__":
    main()
