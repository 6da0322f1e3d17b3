"""Two games with contradictory dynamics, importable by a name: `some_games:Small`, `some_games:Large`.

Four lights; one is on. In `Small` the action of the light's number gives 1, in `Large` that of the opposite light gives
1000; other actions give nothing. An episode has 8 steps, so the best returns are 8 and 8000. `Large` has a fifth action
without effect, and gives its state, as `Small` does."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

LIGHTS, LENGTH = 4, 8


class Lights(gymnasium.Env):
    """The rules of both. The game can be seen: the last number of the observation is 1 in `Large`."""

    def __init__(self, reward: float, opposite: bool, actions: int) -> None:
        self.observation_space = Box(0, 1, (LIGHTS + 1,), np.float32)
        self.action_space = Discrete(actions)
        self._reward, self._opposite = reward, opposite
        self._light = self._age = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._age = 0
        return self._next(), {}

    def step(self, action: int) -> Any:
        assert self.action_space.contains(action), action
        wanted = (self._light + 2) % LIGHTS if self._opposite else self._light
        reward = self._reward if action == wanted else 0.0
        self._age += 1
        return self._next(), reward, self._age == LENGTH, False, {}

    def state_dict(self) -> Any:
        return {"rng": self.np_random.bit_generator.state, "light": self._light, "age": self._age}

    def load_state_dict(self, state: Any) -> None:
        self.np_random.bit_generator.state = state["rng"]
        self._light, self._age = state["light"], state["age"]

    def _next(self) -> Any:
        self._light = int(self.np_random.integers(LIGHTS))
        obs = np.zeros(LIGHTS + 1, np.float32)
        obs[self._light], obs[-1] = 1, self._opposite
        return obs


def Small() -> Lights:  # noqa: N802  named as a class is
    return Lights(1.0, opposite=False, actions=4)


def Large() -> Lights:  # noqa: N802
    return Lights(1000.0, opposite=True, actions=5)


class Plain(gymnasium.Env[Any, Any]):
    """Two actions, which are always valid."""

    observation_space = gymnasium.spaces.Box(0, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), 1.0, False, False, {}


class Masked(Plain):
    """The second action is never valid."""

    mask: ClassVar[dict[str, Any]] = {"action_mask": np.array([1, 0], np.int8)}

    def reset(self, **given: Any) -> Any:
        return super().reset(**given)[0], self.mask

    def step(self, action: Any) -> Any:
        return *super().step(action)[:-1], self.mask


Small2 = Small  # another name of it
