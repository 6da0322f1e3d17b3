"""Gymnasium environments side by side in one process, stepped one after the other."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from gossamer.data import Array, Step, Tree
from gossamer.envs.base import Spec, env_seeds
from gossamer.envs.single import Single
from gossamer.envs.spaces import GymEnv
from gossamer.errors import EnvironmentFailed

OnError: TypeAlias = Literal["fail", "restart"]
AT_MOST = 10  # failures of one environment without a step between them that a restart is tried after


@dataclass(frozen=True)
class Source:
    """Which environment, and what is done where it fails: it travels to the process that makes it."""

    name: str
    make: Callable[[], GymEnv]
    on_error: OnError = "fail"


class Local:
    """B environments. With `on_error="restart"` one that fails is made again: its episode is cut short after the last
    good observation, its reward of that step is 0, and the error is kept for `failures`."""

    def __init__(
        self, source: Source, num_envs: int, *, first: int = 0, asking: MutableSequence[int] | None = None
    ) -> None:
        """`first`: the index of its first environment, for errors. `asking`: where it writes (in shared memory, if a
        worker process has it) which environment it is asking, and how often it has asked any."""
        self._source, self.num_envs, self._first = source, num_envs, first
        self._asking: MutableSequence[int] = [-1, 0] if asking is None else asking
        self._envs: list[Single] = []
        self._failures: list[EnvironmentFailed] = []
        self._steps = 0
        self._in_a_row = [(0, 0)] * num_envs  # failures without a step between them, the step of the last one
        self._seeds: list[np.random.Generator] = []  # [B] for resets after a restart
        self._obs: Array | None = None  # [B, *O] as given last
        try:
            for i in range(num_envs):
                self._ask(i)
                self._envs.append(Single(source.name, source.make, first + i))
        except BaseException:
            self.close()
            raise
        self._ask(None)
        self.spec = self._envs[0].spec
        for i in range(num_envs):
            self._check_spaces(i)

    def reset(self, seed: int) -> Array:
        return self.reset_each(env_seeds(seed, self.num_envs))

    def reset_each(self, seeds: Sequence[int]) -> Array:
        """As `reset`, with a seed for each environment."""
        self._seeds = [np.random.default_rng(seed) for seed in seeds]
        self._obs = np.stack([self._begin(i, seed) for i, seed in enumerate(seeds)])
        self._ask(None)
        return self._obs

    def step(self, action: Array) -> Step:
        obs = np.empty((self.num_envs, *self.spec.obs_shape), self.spec.obs_dtype)
        reward = np.zeros(self.num_envs, np.float32)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        final_obs: Array | None = None
        self._steps += 1
        for i, a in enumerate(action.tolist()):
            self._ask(i)
            seed = None
            try:
                x, reward[i], ended, cut = self._envs[i].step(a)
            except EnvironmentFailed as error:
                seed = self._restart(i, error)
                x, ended, cut = self._last(i), False, True
            terminated[i], truncated[i] = ended, cut and not ended  # an end is an end, at the limit too
            if truncated[i]:
                final_obs = np.zeros_like(obs) if final_obs is None else final_obs
                final_obs[i] = x
            obs[i] = self._begin(i, seed) if ended or cut else x
        self._ask(None)
        self._obs = obs
        return Step(obs, reward, reward.copy(), terminated, truncated, terminated | truncated, final_obs)

    def frames(self) -> Array:
        return np.stack([env.frame() for env in self._envs])

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def calls(self) -> Sequence[tuple[int, int]]:
        """See `Watchable`."""
        index, count = self._asking
        return [(index, count)]

    def failures(self) -> tuple[EnvironmentFailed, ...]:
        """See `Restarting`."""
        failures, self._failures = tuple(self._failures), []
        return failures

    @property
    def saveable(self) -> bool:
        """Whether each environment can save its state, and no wrapper around it has a state of its own."""
        return all(env.saveable for env in self._envs)

    def save_state(self) -> Tree:  # not by the names of `Resumable`, which would promise it of all
        """Of `saveable` ones, see `Resumable`."""
        return {"envs": [env.state_dict() for env in self._envs], "obs": self._obs}

    def load_state(self, state: Tree) -> None:
        """Of `saveable` ones, see `Resumable`."""
        first = self.reset(seed=0)  # gymnasium refuses to step an environment that was never reset
        saved_obs = state.get("obs")  # None before the first reset, and in what version 0.2 saved
        self._obs = first if saved_obs is None else saved_obs
        for env, saved in zip(self._envs, state["envs"], strict=True):
            env.load_state_dict(saved)

    def _ask(self, i: int | None) -> None:
        """Say that environment `i` is asked now; None: that none is."""
        self._asking[0] = -1 if i is None else self._first + i
        self._asking[1] += 1

    def _begin(self, i: int, seed: int | None) -> Array:
        """The first observation of an episode."""
        while True:
            try:
                return self._envs[i].reset(seed)
            except EnvironmentFailed as error:
                seed = self._restart(i, error)

    def _restart(self, i: int, error: EnvironmentFailed) -> int:
        """Make environment `i` again; the seed for its reset. Raises the error unless it is to be survived."""
        if self._source.on_error == "fail":
            raise error
        count, step = self._in_a_row[i]
        count = 1 if step < self._steps - 1 else count + 1
        self._in_a_row[i] = (count, self._steps)
        if count > AT_MOST:
            error.advice = f"it was restarted {AT_MOST} times and has failed each time"
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
        """What one factory makes must be alike."""
        if (spec := self._envs[i].spec) != self.spec:
            what = f"has {_spaces(spec)}; the first one has {_spaces(self.spec)}"
            raise EnvironmentFailed(self._source.name, self._first + i, what)

    def _last(self, i: int) -> Array:
        assert self._obs is not None, "it has been stepped, so it was reset"
        last: Array = self._obs[i]
        return last


def _spaces(spec: Spec) -> str:
    return f"{spec.actions} actions and observations {list(spec.obs_shape)} of {spec.obs_dtype}"


class ResumableLocal:
    """`Local` environments that can all save their state, `VectorEnv` and `Resumable`."""

    def __init__(self, local: Local) -> None:
        self.spec, self.num_envs = local.spec, local.num_envs
        self.reset, self.step, self.frames, self.close = local.reset, local.step, local.frames, local.close
        self.calls, self.failures = local.calls, local.failures
        self.state_dict, self.load_state_dict = local.save_state, local.load_state
