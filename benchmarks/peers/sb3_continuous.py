"""Trains Stable-Baselines3's PPO on a continuous-control environment. `benchmarks/continuous.py` runs it in SB3's own
environment.

`--settings default` is `PPO("MlpPolicy", env)` as SB3 installs it. `zoo` has the options of RL Baselines3 Zoo
(hyperparams/ppo.yml, commit 00128b5d), tuned for each environment separately; those of Hopper, HalfCheetah and Walker2d
are for version 3 of the environments. Prints one JSON object: `marks`, triples (seconds, steps, mean return of the last
100 training episodes) taken at the start of each rollout; versions; threads.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

PACKAGES = ("stable-baselines3", "torch", "numpy", "gymnasium", "mujoco")
WIDE: dict[str, Any] = {
    "log_std_init": -2,
    "ortho_init": False,
    "activation_fn": nn.ReLU,
    "net_arch": {"pi": [256, 256], "vf": [256, 256]},
}
ZOO: dict[str, dict[str, Any]] = {
    "Hopper-v5": {
        "batch_size": 32, "n_steps": 512, "gamma": 0.999, "learning_rate": 9.80828e-05, "ent_coef": 0.00229519,
        "clip_range": 0.2, "n_epochs": 5, "gae_lambda": 0.99, "max_grad_norm": 0.7, "vf_coef": 0.835671,
        "policy_kwargs": WIDE,
    },
    "HalfCheetah-v5": {
        "batch_size": 64, "n_steps": 512, "gamma": 0.98, "learning_rate": 2.0633e-05, "ent_coef": 0.000401762,
        "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8, "vf_coef": 0.58096,
        "policy_kwargs": WIDE,
    },
    "Walker2d-v5": {
        "batch_size": 32, "n_steps": 512, "gamma": 0.99, "learning_rate": 5.05041e-05, "ent_coef": 0.000585045,
        "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.95, "max_grad_norm": 1, "vf_coef": 0.871923,
    },
    "Pendulum-v1": {
        "n_steps": 1024, "gamma": 0.9, "learning_rate": 1e-3, "ent_coef": 0.0, "clip_range": 0.2, "n_epochs": 10,
        "gae_lambda": 0.95, "use_sde": True, "sde_sample_freq": 4,
    },
}  # fmt: skip
NORMALIZED = {"Hopper-v5", "HalfCheetah-v5", "Walker2d-v5"}
ENVS = {"Pendulum-v1": 4}  # side by side; otherwise 1


class Marks(BaseCallback):
    """Records progress at the start of each rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[tuple[float, int, float | None]] = []

    def mark(self) -> None:
        """Add a record."""
        episodes = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        self.marks.append(
            (time.perf_counter(), self.model.num_timesteps, float(np.mean(episodes)) if episodes else None)
        )

    def _on_rollout_start(self) -> None:
        self.mark()

    def _on_step(self) -> bool:
        return True


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", required=True)
    parser.add_argument("--settings", choices=("default", "zoo"), required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True, help="of torch")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    zoo = given.settings == "zoo"
    env: Any = make_vec_env(given.env, n_envs=ENVS.get(given.env, 1) if zoo else 1, seed=given.seed)
    options = ZOO[given.env] if zoo else {}
    if zoo and given.env in NORMALIZED:
        env = VecNormalize(env, gamma=options["gamma"])
    model = PPO("MlpPolicy", env, seed=given.seed, device="cpu", **options)
    model.learn(given.steps, callback=(marks := Marks()))
    marks.mark()
    env.close()
    versions = {name: version(name) for name in PACKAGES}
    print(json.dumps({"marks": marks.marks, "versions": versions, "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
