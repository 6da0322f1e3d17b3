"""Short runs of every kind, and single environments beside them, for the tests of policies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from some_runs import trained

import gossamer
from gossamer.config.build import environment, observed, task
from gossamer.data import Array
from gossamer.envs.base import env_seeds
from gossamer.envs.gym import Custom
from gossamer.evaluation.evaluate import load_policy
from gossamer.nn.memory import reset
from gossamer.storage.checkpoint import Store
from gossamer.storage.directory import load_config

ENVS = Path(__file__).parents[1] / "envs"  # environments of a user's
MADE = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from more_envs import NESTED, Doors, Shows
from some_envs import Walk

def walk(): return Walk()
def nested(): return Shows(NESTED)
def nested_tuple(): return Shows(Tuple([Discrete(3), Box(-1, 1, (2,))]), MultiDiscrete([3, 2], start=[1, 5]))
def bounded(): return Shows(Box(-2, 2, (3,)), Box(np.array([-1, 0]), np.array([0.25, 3]), dtype=np.float64))
def switches(): return Shows(Box(0, 255, (12, 12, 3), np.uint8), MultiBinary([2, 2]))
def doors(): return Doors((3, 4))
def masked_switches(): return Doors((2, 2, 2), kind="switches")
def own_mask():
    env = Doors(kind="observation")
    env.observation_space = Dict({"action_mask": Box(0, 1, (5,), np.int8), "observation": env.observation_space})
    return env
"""
KINDS: dict[str, dict[str, Any]] = {
    "discrete, from -1": {"env": "made:walk"},
    "LSTM": {"env": "made:walk", "memory": "lstm", "memory_units": 8},
    "GRU, last action and reward": {"env": "made:walk", "memory": "gru", "memory_units": 8, "last_action_reward": True},
    "Dict": {"env": "made:nested"},
    "Dict, GRU": {"env": "made:nested", "memory": "gru", "memory_units": 8},
    "Tuple, multi-discrete, last action": {"env": "made:nested_tuple", "last_action_reward": True},
    "Box, normalised": {"env": "made:bounded", "normalize_observations": True, "normalize_returns": True},
    "Box, squashed": {"env": "made:bounded", "action_bounds": "squash", "state_std": True, "separate_critic": True},
    "picture, switches, bf16": {"env": "made:switches", "precision": "bf16"},
    "masks": {"env": "made:doors", "action_masks": True},
    "masked switches": {"env": "made:masked_switches", "action_masks": True},
    "masks in the observation": {"env": "made:own_mask"},
    "Gymnasium id": {"env": "CartPole-v1"},
}


def with_envs(folder: Path, monkeypatch: Any) -> None:
    """Make the environments of KINDS importable, as the module `made`."""
    (folder / "made.py").write_text(MADE)
    monkeypatch.syspath_prepend(ENVS)
    monkeypatch.syspath_prepend(folder)


def run_of(kind: str, directory: Path, **more: Any) -> Path:
    """A short run of one of KINDS."""
    return trained(directory, **KINDS[kind], **more).directory


def single(directory: Path) -> gymnasium.Env[Any, Any]:
    """One environment of a run, as the user has it."""
    factory = environment(load_config(directory))
    made: gymnasium.Env[Any, Any] = factory.load()() if isinstance(factory, Custom) else gymnasium.make(factory.id)
    return made


def stacked(values: list[Any]) -> Any:
    """Observations of several environments as a batch, in the form of Gymnasium's vector environments."""
    if isinstance(values[0], dict):
        return {key: stacked([value[key] for value in values]) for key in values[0]}
    if isinstance(values[0], tuple):
        return tuple(stacked([value[i] for value in values]) for i in range(len(values[0])))
    return np.stack([np.asarray(value) for value in values])


class Games:
    """Environments of a user's, side by side, which begin again when an episode ends."""

    def __init__(self, directory: Path, count: int, seed: int) -> None:
        self.envs = [single(directory) for _ in range(count)]
        self.now = [env.reset(seed=s) for env, s in zip(self.envs, env_seeds(seed, count), strict=True)]

    @property
    def obs(self) -> Any:
        return stacked([obs for obs, _ in self.now])

    @property
    def mask(self) -> Any:
        infos = [info for _, info in self.now]
        return stacked([info["action_mask"] for info in infos]) if "action_mask" in infos[0] else None

    def step(self, actions: Any) -> tuple[Array, Array]:
        """Rewards and ends, [B]."""
        rewards, ends = [], []
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            obs, reward, terminated, truncated, info = env.step(action)
            self.now[i] = env.reset() if terminated or truncated else (obs, info)
            rewards.append(reward)
            ends.append(terminated or truncated)
        return np.array(rewards), np.array(ends)


def evaluated(
    directory: Path, count: int, seed: int, *, greedy: bool, member: str = "average"
) -> Iterator[tuple[Array, Array]]:
    """The policy as `evaluate` plays it: actions [B, *A] as its environments get them, and rewards [B]."""
    config = load_config(directory)
    what = task(config)
    env = observed(environment(config), config).make(count)
    policy = load_policy(
        Store(directory / "checkpoints").get("last"), what, env.spec, member=member, greedy=greedy, seed=seed
    )
    obs, memory = env.reset(seed), policy.initial_state(count)
    while True:
        answer, memory = policy(torch.from_numpy(obs), memory)
        action = answer.action.numpy()
        step = env.step(action)
        memory = reset(memory, torch.from_numpy(step.over)) if memory else memory
        yield action, step.score
        obs = step.obs


def played(policy: gossamer.TrainedPolicy, games: Games, *, last: bool) -> Iterator[tuple[Any, Array]]:
    """The same with a loaded policy and the user's environments: actions in the environments' form, and rewards."""
    more: dict[str, Any] = {}
    while True:
        actions = policy.act(games.obs, mask=games.mask, **more)
        rewards, ends = games.step(actions)
        yield actions, rewards
        more = {"begins": ends, **({"reward": rewards} if last else {})}
