"""The last action and reward as parts of the observation (IMPALA: Espeholt et al. 2018; R2D2: Kapturowski et al. 2019).

They say what has just been done and received, which a network with a memory cannot see otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gossamer.data import Array, Step
from gossamer.envs.base import (
    EnvFactory,
    InTheMaking,
    Restarting,
    Resumable,
    Spaces,
    UnsupportedSpace,
    VectorEnv,
    Watchable,
    one_of_each,
    places,
    threads_of,
)
from gossamer.envs.interface import spaces_of
from gossamer.spaces import Discrete, MultiDiscrete, Space, Spec
from gossamer.spaces.observations import WHOLE, Layout, Part, one_hots

ACTION, REWARD = "last_action", "last_reward"  # names of the parts
FLOATS = np.dtype(np.float32)


@dataclass(frozen=True)
class LastActionReward:
    """The environments of a factory, which observe the last action and reward, too."""

    env: EnvFactory

    @property
    def name(self) -> str:
        return self.env.name

    @property
    def period(self) -> int:
        """See `Several`."""
        return one_of_each(self.env)

    def places(self, num_envs: int) -> list[int]:
        """See `Several`."""
        return places(self.env, num_envs)

    def threads(self, sharing: int) -> int:
        """See `Threaded`."""
        return threads_of(self.env, sharing)

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """See `EnvFactory.make`. Raises `UnsupportedSpace` if the observation has parts of these names."""
        env = self.env.make(num_envs, workers=workers, render=render)
        if taken := {ACTION, REWARD} & {part.name for part in env.spec.parts}:
            env.close()
            raise UnsupportedSpace(f"{self.name}: the observation has a key {min(taken)}; use --no-last-action-reward")
        return LastVector(env)


class LastParts:
    """Adds two parts to observations: `last_action`, numbers [N], with a one-hot vector for each choice, and
    `last_reward` [1], the reward for learning. Both are zero at the first observation of an episode."""

    def __init__(self, spec: Spec) -> None:
        """`spec`: of the environment; the attribute `spec` is that with the two parts."""
        self._given = spec.layout
        self._inner = spec.layout or Layout((Part(WHOLE, spec.obs_shape, spec.obs_dtype),))
        width = as_numbers(spec.actions, np.zeros((1, *spec.actions.shape), spec.actions.dtype)).shape[1]
        self._last = Layout((Part(ACTION, (width,), FLOATS), Part(REWARD, (1,), FLOATS)))
        layout = Layout((*self._inner.parts, *self._last.parts))
        self.spec = replace(spec, obs_shape=(layout.size,), obs_dtype=np.dtype(np.uint8), layout=layout, bounds=None)

    def none(self, count: int) -> Array:
        """The bytes [count, size] of the two parts at the start of an episode."""
        return np.zeros((count, self._last.size), np.uint8)

    def pack(self, action: Array, reward: Array) -> Array:
        """The bytes [B, size] of the last action [B, *A] and reward [B]."""
        return self._last.pack({ACTION: as_numbers(self.spec.actions, action), REWARD: reward[:, None]})

    def added(self, obs: Array, last: Array) -> Array:
        """Append the bytes of the two parts to observations [B, *O]."""
        packed = obs if self._given else self._inner.pack({WHOLE: obs})
        return np.concatenate([packed, last], axis=1)


class LastVector:
    """B environments that observe the last action and reward, too (see `LastParts`).

    The wrapper has no state. It is `Resumable`, `Watchable`, `Restarting` and `InTheMaking` if the environments are."""

    def __init__(self, env: VectorEnv) -> None:
        self._env, self.num_envs, self._parts = env, env.num_envs, LastParts(env.spec)
        self.spec = self._parts.spec
        self.frames, self.close = env.frames, env.close
        # Instance attributes, so that `isinstance` finds a protocol's methods if the environments have them.
        if isinstance(env, Watchable):
            self.calls = env.calls
        if isinstance(env, Restarting):
            self.failures = env.failures
        if isinstance(env, InTheMaking):
            self.made = env.made
        if isinstance(env, Resumable):
            self.state_dict, self.load_state_dict = env.state_dict, env.load_state_dict

    def reset(self, seed: int) -> Array:
        return self._parts.added(self._env.reset(seed), self._parts.none(self.num_envs))

    def step(self, action: Array) -> Step:
        step = self._env.step(action)
        last = self._parts.pack(action, step.reward)
        final_obs = None if step.final_obs is None else self._parts.added(step.final_obs, last)
        last[step.over] = 0
        return replace(step, obs=self._parts.added(step.obs, last), final_obs=final_obs)

    def spaces(self) -> Spaces:
        """See `Spaced`: without the two parts."""
        return spaces_of(self._env)


def as_numbers(space: Space, actions: Array) -> Array:
    """Actions [B, *A] as inputs of a network [B, N] float32: one-hot vectors of choices, else the numbers."""
    match space:
        case Discrete(n):
            return one_hots(actions[:, None], (n,), FLOATS)
        case MultiDiscrete(sizes):
            return one_hots(actions, sizes, FLOATS)
    return actions.astype(FLOATS)
