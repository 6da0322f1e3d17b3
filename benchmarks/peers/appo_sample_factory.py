"""Trains Sample Factory's APPO on Pong until it is ended. `benchmarks/actors_peers.py` runs it in its own environment.

The set-up is the faster one of Sample Factory's page on Atari ("Better parameters"): asynchronous learning, double
buffering, rollouts of 32 steps, batches of 1,024, observations and returns normalised. Deviations: on the CPU, one pass
over each sample (one epoch, of one batch), and the number of workers and environments (`--workers`, `--envs`). The rest
is its example `sf_examples.atari`: `PongNoFrameskip-v4`, 1 to 30 no-ops, every 4th frame, the maximum of the last two,
a lost life ends the episode, fire at a reset, rewards clipped, 84x84 grey in stacks of 4, the Nature network.

Writes marks to `--marks`: lines of JSON with `seconds` and `steps` (agent steps trained on, by its own counter).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import ale_py  # registers the games, also in the processes that it starts, which import this file
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from sf_examples.atari.atari_utils import make_atari_env
from sf_examples.atari.train_atari import parse_atari_args

MARK_SECONDS = 0.5


class Marks(AlgoObserver):
    """Writes the steps so far, at most once in `MARK_SECONDS`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._last = float("-inf")

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        now = time.perf_counter()
        if runner.env_steps and now - self._last >= MARK_SECONDS:
            self._file.write(json.dumps({"seconds": now, "steps": runner.env_steps[0]}) + "\n")
            self._last = now


def make_pong(name: str, *given: Any, **more: Any) -> Any:
    """The environment of the example."""
    assert ale_py
    return make_atari_env(name, *given, **more)


def main() -> int:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--marks", type=Path, required=True, help="file to write")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--envs", type=int, required=True, help="of each worker")
    given = parser.parse_args()
    register_env("atari_pong", make_pong)
    options = {
        "env": "atari_pong",
        "experiment": "pong",
        "train_dir": given.marks.parent / "train",
        "device": "cpu",
        "seed": 1,
        "num_workers": given.workers,
        "num_envs_per_worker": given.envs,
        "worker_num_splits": 2,
        "rollout": 32,
        "batch_size": 1024,
        "num_batches_per_epoch": 1,
        "num_epochs": 1,
        "normalize_input": True,
        "normalize_returns": True,
        "serial_mode": False,
        "async_rl": True,
        "summaries_use_frameskip": False,  # count agent steps
        "train_for_env_steps": 10**9,
    }
    _, runner = make_runner(parse_atari_args([f"--{name}={value}" for name, value in options.items()]))
    runner.register_observer(Marks(given.marks))
    return runner.init() or runner.run()


if __name__ == "__main__":  # its processes import this file too
    sys.exit(main())
