"""Gymnasium environments in one process, stepped sequentially."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gossamer.data import Array, Step, Tree
from gossamer.envs.base import Spaces, env_seeds
from gossamer.envs.single import EnvSource, Single
from gossamer.spaces import Spec
from gossamer.system.errors import EnvironmentFailed

AT_MOST = 10  # consecutive restarts of one environment without a successful step


class Local:
    """B environments. With `on_error="restart"`, an environment that fails is created again. Its episode is truncated
    at the last valid observation, the reward of that step is 0, and `failures` returns the error."""

    def __init__(
        self, source: EnvSource, num_envs: int, *, first: int = 0, asking: MutableSequence[int] | None = None
    ) -> None:
        """`first`: index of the first environment, for errors. `asking` [2]: output, the index of the environment being
        called and the number of calls so far; in shared memory if a worker process owns the environments. Raises
        `EnvironmentFailed` if the factory fails or its environments have different spaces."""
        self._source, self.num_envs, self._first = source, num_envs, first
        self._asking: MutableSequence[int] = [-1, 0] if asking is None else asking
        self._envs: list[Single] = []
        self._failures: list[EnvironmentFailed] = []
        self._steps = 0
        self._in_a_row = [(0, 0)] * num_envs  # [B] (consecutive failures, step of the last one)
        self._seeds: list[np.random.Generator] = []  # [B] for resets after a restart
        self._obs: Array | None = None  # [B, *O] last observations
        try:
            for i in range(num_envs):
                self._ask(i)
                self._envs.append(Single(source, first + i))
        except BaseException:
            self.close()
            raise
        self._ask(None)
        self.spec = self._envs[0].spec
        for i in range(num_envs):
            self._check_spaces(i)

    @property
    def statistics(self) -> tuple[str, ...]:
        """See `Forgetful`."""
        return self._envs[0].statistics

    def reset(self, seed: int) -> Array:
        return self.reset_each(env_seeds(seed, self.num_envs))

    def reset_each(self, seeds: Sequence[int]) -> Array:
        """Like `reset`, with one seed per environment."""
        self._seeds = [np.random.default_rng(seed) for seed in seeds]
        self._obs = np.stack([self._begin(i, seed) for i, seed in enumerate(seeds)])
        self._ask(None)
        return self._obs

    def step(self, action: Array) -> Step:
        obs = np.empty((self.num_envs, *self.spec.obs_shape), self.spec.obs_dtype)
        reward = np.zeros(self.num_envs, np.float32)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        final_obs: Array | None = None
        metrics = dict[int, dict[str, float]]()
        self._steps += 1
        for i, a in enumerate(action.tolist() if action.ndim == 1 else action):
            self._ask(i)
            seed = None
            try:
                x, reward[i], ended, cut = self._envs[i].step(a)
                if (ended or cut) and self._envs[i].metrics:
                    metrics[i] = self._envs[i].metrics
            except EnvironmentFailed as error:
                seed = self._restart(i, error)
                x, ended, cut = self._last(i), False, True
            terminated[i], truncated[i] = ended, cut and not ended  # termination takes precedence at the time limit
            if truncated[i]:
                final_obs = np.zeros_like(obs) if final_obs is None else final_obs
                final_obs[i] = x
            obs[i] = self._begin(i, seed) if ended or cut else x
        self._ask(None)
        self._obs = obs
        over = terminated | truncated
        return Step(obs, reward, reward.copy(), terminated, truncated, over, final_obs, metrics)

    def frames(self) -> Array:
        pictures = []
        for i, env in enumerate(self._envs):
            self._ask(i)
            pictures.append(env.frame())
        self._ask(None)
        return np.stack(pictures)

    def close(self) -> None:
        for i, env in enumerate(self._envs):
            self._ask(i)
            env.close()
        self._ask(None)

    def calls(self) -> Sequence[tuple[int, int]]:
        """See `Watchable`."""
        index, count = self._asking
        return [(index, count)]

    def failures(self) -> tuple[EnvironmentFailed, ...]:
        """See `Restarting`."""
        failures, self._failures = tuple(self._failures), []
        return failures

    def gives_masks(self) -> bool:
        """See `Masking`."""
        self._ask(0)
        gives = self._envs[0].gives_masks()
        self._ask(None)
        return gives

    def spaces(self) -> Spaces:
        """See `Spaced`."""
        return self._envs[0].env

    @property
    def saveable(self) -> bool:
        """Whether each environment can save its state, and no wrapper around it has a state of its own."""
        return all(env.saveable for env in self._envs)

    def save_state(self) -> Tree:  # not named `state_dict`, since not every instance is `Resumable`
        """Return the state of `saveable` environments, see `Resumable`."""
        return {"envs": [env.state_dict() for env in self._envs], "obs": self._obs}

    def load_state(self, state: Tree) -> None:
        """Restore the state of `saveable` environments, see `Resumable`."""
        first = self.reset(seed=0)  # gymnasium refuses to step an environment before its first reset
        saved_obs = state.get("obs")  # None before the first reset, and in states saved by version 0.2
        self._obs = first if saved_obs is None else saved_obs
        for env, saved in zip(self._envs, state["envs"], strict=True):
            env.load_state_dict(saved)

    def _ask(self, i: int | None) -> None:
        """Record in `asking` that environment `i` is being called; None: no environment."""
        self._asking[0] = -1 if i is None else self._first + i
        self._asking[1] += 1

    def _begin(self, i: int, seed: int | None) -> Array:
        """Reset environment `i` and return its first observation."""
        while True:
            self._ask(i)
            try:
                return self._envs[i].reset(seed)
            except EnvironmentFailed as error:
                seed = self._restart(i, error)

    def _restart(self, i: int, error: EnvironmentFailed) -> int:
        """Restart environment `i`; return the seed for its reset. Raises the error unless a restart is allowed."""
        if self._source.on_error == "fail":
            raise error
        count, step = self._in_a_row[i]
        count = 1 if step < self._steps - 1 else count + 1
        self._in_a_row[i] = (count, self._steps)
        if count > AT_MOST:
            error.advice = f"it was restarted {AT_MOST} times and failed each time"
            raise error
        self._failures.append(error)
        self._envs[i].close()
        try:
            self._envs[i].restart()
        except EnvironmentFailed as again:
            return self._restart(i, again)
        self._check_spaces(i)
        return int(self._seeds[i].integers(2**31))

    def _check_spaces(self, i: int) -> None:
        """Check that all environments have equal spaces."""
        if (spec := self._envs[i].spec) != self.spec:
            what = f"has {_spaces(spec)}; the first one has {_spaces(self.spec)}"
            raise EnvironmentFailed(self._source.name, self._first + i, what)

    def _last(self, i: int) -> Array:
        assert self._obs is not None, "reset() must precede step()"
        last: Array = self._obs[i]
        return last


def _spaces(spec: Spec) -> str:
    return f"{spec.actions} and observations {spec.shapes} of {spec.obs_dtype}"


@dataclass(frozen=True)
class LocalRecipe:
    """Makes `Local` environments in worker processes; see `Recipe`."""

    source: EnvSource

    modules: ClassVar[tuple[str, ...]] = ()  # only the process of an environment imports a user's modules

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def restarts(self) -> bool:
        return self.source.on_error == "restart"

    def spec(self) -> Spec:
        """Make one environment, and close it."""
        one = Single(self.source, 0)
        one.close()
        return one.spec

    def make(self, num_envs: int, first: int, asking: MutableSequence[int]) -> Local:
        return Local(self.source, num_envs, first=first, asking=asking)


class ResumableLocal:
    """`Local` environments that are all saveable; implements `VectorEnv` and `Resumable`."""

    def __init__(self, local: Local) -> None:
        self.spec, self.num_envs = local.spec, local.num_envs
        self.reset, self.step, self.frames, self.close = local.reset, local.step, local.frames, local.close
        self.calls, self.failures, self.gives_masks = local.calls, local.failures, local.gives_masks
        self.spaces = local.spaces
        self.state_dict, self.load_state_dict = local.save_state, local.load_state
