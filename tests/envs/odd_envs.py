"""Environments whose code does more than play: they change what belongs to the whole process."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete


class Plain(gymnasium.Env):
    """Nothing to learn. Episodes have 4 steps."""

    observation_space, action_space = Box(-1, 1, (2,), np.float32), Discrete(2)
    _age = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._age = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self._age += 1
        return np.zeros(2, np.float32), 1.0, self._age == 4, False, {}


class Quits(Plain):
    def close(self) -> None:
        raise SystemExit  # as `quit()` beside `pygame.quit()`


class NoGradients(Plain):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        torch.set_grad_enabled(False)
        return super().reset(seed=seed)


class Doubles(Plain):
    def __init__(self) -> None:
        torch.set_default_dtype(torch.float64)


class Moves(Plain):
    """In a temporary folder for each episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        os.chdir(tempfile.mkdtemp())
        return super().reset(seed=seed)


class Far(Plain):
    action_space = Box(0, 1000, (2,), np.float32)  # type: ignore[assignment]


class Table(Plain):
    action_space = MultiDiscrete(np.array([[2, 3], [4, 5]]))  # type: ignore[assignment]


class Number(Plain):
    action_space = Box(-1, 1, (), np.float32)  # type: ignore[assignment]


def normalised() -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.NormalizeReward(gymnasium.wrappers.NormalizeObservation(Plain()))
