"""Trains RLlib's IMPALA on Pong until it is ended. `benchmarks/actors_peers.py` runs it in its own environment.

The set-up is RLlib's example for Pong (`rllib/examples/algorithms/impala/pong_impala.py`): its Atari wrappers (1 to 30
no-ops, every 4th frame, the maximum of the last two, a lost life ends the episode, fire at a reset), frames stacked by
connectors, rewards clipped, batches of 500 steps, its coefficients. Deviations: 84x84 frames and the Nature network,
whose linear layer is written as the same 7x7 convolution on 7x7 features; the number of runners and environments
(`--runners`, `--envs`). Two more are in RLlib's favour where there are few cores: by default its driver polls without a
pause, at a higher priority than the runners and the learner, and so keeps a core from them. Here the driver waits for
rollouts, up to 0.1 s, and all processes have the same priority. `--polling` leaves both as they are by default.

Writes marks to `--marks`: lines of JSON with `seconds` and `steps` (agent steps sampled, by its own counter).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import ray
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule
from ray.rllib.connectors.learner.frame_stacking import FrameStackingLearner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env

STACK = 4
NATURE = [[32, 8, 4, "valid"], [64, 4, 2, "valid"], [64, 3, 1, "valid"], [512, 7, 1, "valid"]]
MARK_SECONDS = 1
WAIT_SECONDS = 0.1  # of the driver, for rollouts


def make_pong(options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """`PongNoFrameskip-v4` by its new name, in RLlib's wrappers."""
    env = gymnasium.make("ale_py:ALE/Pong-v5", **options)
    return wrap_atari_for_new_api_stack(env, dim=84, framestack=None)


def config(runners: int, envs: int, wait: float) -> IMPALAConfig:
    """The configuration of the example, with the deviations above. The driver waits `wait` seconds for rollouts."""
    options = {"frameskip": 1, "full_action_space": False, "repeat_action_probability": 0.0}
    return (
        IMPALAConfig()
        .environment("pong", env_config=options, clip_rewards=True)
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=envs,
            env_to_module_connector=lambda env, spaces, device: FrameStackingEnvToModule(num_frames=STACK),
        )
        .learners(
            num_learners=1,
            learner_connector=lambda observations, actions: FrameStackingLearner(num_frames=STACK),
        )
        .training(
            train_batch_size_per_learner=500,
            timeout_s_sampler_manager=wait,
            grad_clip=30.0,
            grad_clip_by="global_norm",
            lr=0.0009,
            vf_loss_coeff=1.0,
            entropy_coeff=0.02,
        )
        .rl_module(model_config=DefaultModelConfig(conv_filters=NATURE, conv_activation="relu", vf_share_layers=True))
        .reporting(min_time_s_per_iteration=MARK_SECONDS)
        .debugging(seed=1)
    )


def mark(result: dict[str, Any]) -> dict[str, float]:
    """One line of the file of marks. The first results have no counter yet."""
    steps = result.get("env_runners", {}).get("num_env_steps_sampled_lifetime", 0)
    return {"seconds": time.perf_counter(), "steps": steps}


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--marks", type=Path, required=True, help="file to write")
    parser.add_argument("--runners", type=int, required=True)
    parser.add_argument("--envs", type=int, required=True, help="of each runner")
    parser.add_argument("--polling", action="store_true", help="RLlib's default: the driver polls, at high priority")
    given = parser.parse_args()
    if not given.polling:
        os.environ.update(RAY_worker_niceness="0")
    # Ray's CPUs are a number to schedule by: runners, learner and driver share the cores of the machine.
    folder = str(given.marks.parent / "ray")
    ray.init("local", num_cpus=given.runners + 2, include_dashboard=False, _temp_dir=folder)
    register_env("pong", make_pong)
    algorithm = config(given.runners, given.envs, 0.0 if given.polling else WAIT_SECONDS).build_algo()
    try:
        with given.marks.open("w", buffering=1) as file:
            while True:
                file.write(json.dumps(mark(algorithm.train())) + "\n")
    finally:  # an interrupt
        algorithm.stop()


if __name__ == "__main__":
    main()
