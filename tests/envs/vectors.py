"""Vector environments that count, for the tests: in every mode, Gymnasium's and of one's own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

PLACES = 3  # environments of a vector
places: Iterator[int] = itertools.count()  # of the next environments


class Count(gymnasium.Env[Any, Any]):
    """Observes its place, episode, age and last action. Its episodes have 2 to 4 steps and end by termination,
    truncation and both in turn. Nothing is random. Raises for a step after the end and for an action that its mask does
    not allow."""

    observation_space = Dict({"counts": Box(-1, np.inf, (4,)), "noise": Box(0, 1, (1,)), "turn": Discrete(3)})
    action_space = Discrete(4, start=5)

    def __init__(self, place: int = 0, render_mode: str | None = None) -> None:
        self._place, self._episode, self._age, self._over = place, -1, 0, True
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._episode, self._age, self._over = self._episode + 1, 0, False
        return self._seen(-1)

    def step(self, action: Any) -> Any:
        assert not self._over, "the episode has ended"
        assert self._mask()[action - 5], "the mask does not allow it"
        self._age += 1
        end = self._age == 2 + (self._place + self._episode) % 3
        terminated, truncated = end and self._episode % 3 != 1, end and self._episode % 3 != 0
        self._over = end
        obs, info = self._seen(action)
        if end:
            info |= {"is_success": terminated, "metrics": {"age": self._age}}
        return obs, float(10 * self._place + self._age), terminated, truncated, info

    def render(self) -> Any:
        return np.full((4, 6, 3), self._age, np.uint8)

    def _mask(self) -> Any:
        return np.array([(self._age + self._place) % 2, 1, 0, 1], np.int8)

    def _seen(self, action: int) -> Any:
        counts = np.array([self._place, self._episode, self._age, action], np.float32)
        return {"counts": counts, "noise": np.zeros(1), "turn": self._age % 3}, {"action_mask": self._mask()}


class Noisy(Count):
    """Shows its random numbers, too."""

    def _seen(self, action: int) -> Any:
        obs, info = super()._seen(action)
        return obs | {"noise": np.array([self.np_random.random()], np.float32)}, info


class Native(VectorEnv[Any, Any, Any]):
    """A vector of its own, which resets its environments as `mode` says. In NextStep, it knows no masks."""

    def __init__(self, num_envs: int, mode: str = "Disabled", render_mode: str | None = None) -> None:
        self.num_envs, self.render_mode, self._mode = num_envs, render_mode, AutoresetMode(mode)
        self.metadata = {"autoreset_mode": self._mode}
        self.single_observation_space, self.single_action_space = Count.observation_space, Count.action_space
        self.observation_space = batch_space(Count.observation_space, num_envs)
        self.action_space = batch_space(Count.action_space, num_envs)
        self._envs = [Count(next(places) % PLACES) for _ in range(num_envs)]
        self._rows: list[Any] = [None] * num_envs
        self._ended = np.zeros(num_envs, bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        mask = mask if self._mode is AutoresetMode.DISABLED else np.ones(self.num_envs, bool)
        self._ended[:] = False
        infos: dict[str, Any] = {}
        for i in np.flatnonzero(mask):
            self._rows[i], info = self._envs[i].reset()
            infos = self._add_info(infos, info, i)
        return self._batch(), infos

    def step(self, actions: Any) -> Any:
        rewards, flags, infos = np.zeros(self.num_envs), np.zeros((2, self.num_envs), bool), dict[str, Any]()
        for i, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            if self._ended[i] and self._mode is AutoresetMode.NEXT_STEP:
                self._rows[i], info = env.reset()
                self._ended[i] = False
            else:
                self._rows[i], rewards[i], *flags[:, i], info = env.step(action)
                self._ended[i] = flags[:, i].any()
                if self._ended[i] and self._mode is AutoresetMode.SAME_STEP:
                    infos = self._add_info(infos, {"final_obs": self._rows[i], "final_info": info}, i)
                    self._rows[i], info = env.reset()
            infos = self._add_info(infos, info, i)
        return self._batch(), rewards, *flags, infos

    def render(self) -> Any:
        return tuple(env.render() for env in self._envs)

    def _batch(self) -> Any:
        return {key: np.stack([row[key] for row in self._rows]) for key in self._rows[0]}


def sync(num_envs: int, mode: str = "NextStep", render_mode: str | None = None, kind: type = Count) -> Any:
    """Gymnasium's vector in this process."""
    each = [next(places) % PLACES for _ in range(num_envs)]
    makers = [lambda place=place: kind(place, render_mode) for place in each]
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode(mode))


def noisy(num_envs: int) -> Any:
    return sync(num_envs, kind=Noisy)


def parallel(num_envs: int, mode: str = "NextStep") -> Any:
    """Gymnasium's vector with a process for each environment."""
    each = [next(places) % PLACES for _ in range(num_envs)]
    return AsyncVectorEnv([lambda place=place: Count(place) for place in each], autoreset_mode=AutoresetMode(mode))


def unshared(num_envs: int, mode: str = "NextStep") -> Any:
    """The same without shared memory."""
    each = [next(places) % PLACES for _ in range(num_envs)]
    makers = [lambda place=place: Count(place) for place in each]
    return AsyncVectorEnv(makers, shared_memory=False, autoreset_mode=AutoresetMode(mode))


def wrapped(num_envs: int, mode: str = "NextStep") -> Any:
    return gymnasium.wrappers.vector.RecordEpisodeStatistics(sync(num_envs, mode))


def too_few(num_envs: int) -> Any:
    return sync(num_envs + 1)


def modeless(num_envs: int) -> Any:
    made = Native(num_envs)
    made.metadata = {}
    return made


def nameless(num_envs: int) -> Any:
    made = Native(num_envs)
    del made.single_observation_space
    return made


def silent(num_envs: int) -> Any:
    """Its info is None."""
    made = Native(num_envs)
    reset, step = made.reset, made.step
    made.reset = lambda **given: (reset(**given)[0], None)  # type: ignore[method-assign]
    made.step = lambda actions: (*step(actions)[:-1], None)  # type: ignore[method-assign]
    return made


def no_vector(num_envs: int) -> Any:
    return Count()


def without_number() -> Any:
    return sync(3)


class Forgets(Native):
    """Gives no last observations."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, "SameStep")

    def step(self, actions: Any) -> Any:
        *answer, infos = super().step(actions)
        infos.pop("final_obs", None)
        return *answer, infos


class Fails(Native):
    def step(self, actions: Any) -> Any:
        raise OSError("no coal left")
