"""Trains Stable-Baselines3's PPO on a small environment. `benchmarks/small.py` runs it in SB3's own environment.

16 environments, rollouts of 128 steps, 10 passes, minibatches of 256, one torch thread; the rest is SB3's default.
Prints one JSON object: `steps`, and the `seconds` of training.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.mixed import Mixed


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", required=True)
    parser.add_argument("--steps", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    mixed = given.env == "mixed"
    env = make_vec_env(Mixed if mixed else given.env, n_envs=16, seed=1)
    policy = "MultiInputPolicy" if mixed else "MlpPolicy"
    model = PPO(policy, env, n_steps=128, n_epochs=10, batch_size=256, seed=1, device="cpu")
    began = time.perf_counter()
    model.learn(given.steps)
    print(json.dumps({"steps": model.num_timesteps, "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
