"""Fills a replay memory of another library and draws from it. `benchmarks/replay.py` runs it in their environment.

cpprb keeps each picture once (`next_of`, `stack_compress`), for one environment whose steps follow each other. torchrl
and Stable-Baselines3 keep stacks: torchrl both observations of a step, Stable-Baselines3 one of them
(`optimize_memory_usage`). Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

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

PACKAGES = {"cpprb": "cpprb", "torchrl": "torchrl", "sb3": "stable-baselines3"}
Figures = dict[str, float]


def cpprb(kind: str, steps: int, seconds: float) -> Figures:
    from cpprb import PrioritizedReplayBuffer, ReplayBuffer

    if kind == "tree":
        buffer = PrioritizedReplayBuffer(LEAVES, {"x": {}}, alpha=ALPHA)
        for _ in range(LEAVES // 1000):
            buffer.add(x=np.zeros(1000), priorities=np.random.rand(1000))
        return {"sample": per_second(lambda: _weighed_cpprb(buffer), BATCH, seconds)}
    obs = np.ascontiguousarray(np.moveaxis(stacks(1, ROLLOUT)[:, 0], 1, -1))  # [T+1, H, W, C]
    parts: dict[str, Any] = {"obs": {"shape": obs.shape[1:], "dtype": np.uint8}, "action": {"dtype": np.int64}}
    parts |= {"reward": {}, "done": {}}
    kept = {"next_of": "obs", "stack_compress": "obs"}
    weighed, before = kind == "prioritised", resident()
    made = PrioritizedReplayBuffer(steps, parts, alpha=ALPHA, **kept) if weighed else ReplayBuffer(steps, parts, **kept)
    more = {"priorities": np.random.rand(ROLLOUT)} if weighed else {}

    def add(call: int) -> int:
        zeros = np.zeros(ROLLOUT)
        made.add(obs=obs[:-1], next_obs=obs[1:], action=zeros, reward=zeros, done=zeros, **more)
        if (call + 1) % (EPISODE // ROLLOUT) == 0:
            made.on_episode_end()
        return ROLLOUT

    found = filled(add, steps, before)
    draw = (lambda: _weighed_cpprb(made)) if weighed else (lambda: made.sample(BATCH))
    return {**found, "sample": per_second(draw, BATCH, seconds)}


def _weighed_cpprb(buffer: Any) -> None:
    drawn = buffer.sample(BATCH, beta=BETA)
    buffer.update_priorities(drawn["indexes"], np.random.rand(BATCH))


def torchrl(kind: str, steps: int, seconds: float) -> Figures:
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.data.replay_buffers.samplers import RandomSampler, SliceSampler

    obs = torch.from_numpy(stacks(ENVS, ROLLOUT)).flatten(0, 1)
    count = EPISODE if kind == "sequences" else ENVS * ROLLOUT
    rows = TensorDict({"action": torch.zeros(count).long(), "reward": torch.zeros(count)}, [count])
    if kind == "sequences":  # episodes of one environment, one observation for each step
        rows["obs"], batch = obs[:1].repeat(count, 1, 1, 1), SEQUENCES * LENGTH
        sampler = SliceSampler(slice_len=LENGTH, traj_key="episode", strict_length=True, cache_values=True)
    else:
        rows["obs"], rows["next", "obs"], batch = obs[:-ENVS].contiguous(), obs[ENVS:].contiguous(), BATCH
        sampler = RandomSampler()
    before = resident()
    made = TensorDictReplayBuffer(storage=LazyTensorStorage(steps), sampler=sampler, batch_size=batch)

    def add(call: int) -> int:
        if kind == "sequences":
            rows["episode"] = torch.full((count,), call)
        made.extend(rows)
        return count

    return {**filled(add, steps, before), "sample": per_second(made.sample, batch, seconds)}


def sb3(kind: str, steps: int, seconds: float) -> Figures:
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer

    space = Box(0, 255, (STACK, SIZE, SIZE), np.uint8)
    more: dict[str, Any] = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    before = resident()
    made = ReplayBuffer(steps, space, Discrete(6), "cpu", ENVS, **more)
    obs, zeros = stacks(ENVS, ROLLOUT), np.zeros(ENVS)

    def add(call: int) -> int:
        t = call % ROLLOUT
        made.add(obs[t], obs[t + 1], zeros, zeros, zeros, [{}] * ENVS)
        return ENVS

    found = filled(add, steps, before)
    return {**found, "sample": per_second(lambda: made.sample(BATCH), BATCH, seconds)}


SIDES: dict[str, Callable[[str, int, float], Figures]] = {"cpprb": cpprb, "torchrl": torchrl, "sb3": sb3}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", choices=SIDES, required=True)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = SIDES[given.side](given.kind, given.steps, given.seconds)
    print(json.dumps({**found, "version": version(PACKAGES[given.side])}))


if __name__ == "__main__":
    main()
