"""Trains Stable-Baselines3's A2C or DQN on Pong for some seconds. `benchmarks/peers.py` runs it in SB3's environment.

The set-up follows SB3's documentation for Atari: `make_atari_env` with its standard wrappers (1 to 30 no-ops, every 4th
frame, the maximum of the last two, 84x84 luminance, rewards clipped, a lost life ends the episode, fire at a reset), a
stack of 4, `A2C("CnnPolicy", n_steps=5)`, which is the Nature network with RMSProp, or `DQN("CnnPolicy")`, which is it
with Adam, with 8 samples for each step, and torch's default thread count.
Prints one JSON object: `marks`, pairs (seconds, steps) taken between two updates; versions; threads.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version

import ale_py
import gymnasium
import torch
from stable_baselines3 import A2C, DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack

VEC_ENVS = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}
BATCH, USES = 32, 8  # samples of an update of DQN, and samples for each step
PACKAGES = ("stable-baselines3", "torch", "numpy", "gymnasium", "ale-py", "opencv-python-headless")


class Marks(BaseCallback):
    """Records the steps so far, at most twice a second. Ends training when the records span `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.marks: list[tuple[float, int]] = []

    def _on_rollout_start(self) -> None:
        now = time.perf_counter()
        if not self.marks or now - self.marks[-1][0] >= 0.5:
            self.marks.append((now, self.num_timesteps))

    def _on_step(self) -> bool:
        return self.marks[-1][0] - self.marks[0][0] < self.seconds


def agent(algorithm: str, env: VecEnv, rollout: int) -> BaseAlgorithm:
    """The agent, which acts for so many steps of each environment between updates."""
    if algorithm == "a2c":
        return A2C("CnnPolicy", env, n_steps=rollout, ent_coef=0.01, seed=1, device="cpu")
    return DQN(
        "CnnPolicy",
        env,
        train_freq=rollout,
        gradient_steps=env.num_envs * rollout * USES // BATCH,
        batch_size=BATCH,
        buffer_size=100_000,
        learning_starts=1000,
        target_update_interval=10_000,
        exploration_fraction=1e-4,  # of 10^9 steps
        exploration_final_eps=0.01,
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
        seed=1,
        device="cpu",
    )


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", choices=("a2c", "dqn"), required=True)
    parser.add_argument("--vec-env", choices=VEC_ENVS, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="seconds of training, including the warm-up")
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--rollout", type=int, required=True)
    given = parser.parse_args()
    gymnasium.register_envs(ale_py)
    games = make_atari_env("PongNoFrameskip-v4", n_envs=given.envs, seed=1, vec_env_cls=VEC_ENVS[given.vec_env])
    env = VecFrameStack(games, n_stack=4)
    model = agent(given.algorithm, env, given.rollout)
    model.learn(10**9, callback=(marks := Marks(given.seconds)))
    env.close()
    versions = {name: version(name) for name in PACKAGES}
    print(json.dumps({"marks": marks.marks, "versions": versions, "threads": torch.get_num_threads()}))


if __name__ == "__main__":  # SubprocVecEnv's workers import this file too
    main()
