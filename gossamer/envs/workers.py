"""Gymnasium environments written in Python, side by side: in this process, or in n_w worker processes with n_e / n_w
environments each, as in PAAC (Clemente et al. 2017, section 4). Both give the same trajectories."""

from __future__ import annotations

import multiprocessing.connection
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, MultiBinary, MultiDiscrete, Space
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from gossamer.data import Array, Step, Tree
from gossamer.envs.base import Resumable, VectorEnv, check_counts, env_seeds
from gossamer.envs.spaces import GymEnv, adapt


def vectorise(name: str, make: Callable[[], GymEnv], num_envs: int, workers: int) -> VectorEnv:
    """`num_envs` environments that `make` makes, stepped by `workers` processes; by this one if `workers` is 0 or 1.

    This process is the default because small environments are stepped in less time than it takes to wake a process,
    and because only here can their state be saved. Raises `ValueError` where the environments do not divide by the
    workers, `UnsupportedSpace` for spaces the library does not have.
    """
    check_counts(num_envs, workers)
    if workers > 1:
        return Workers(name, make, num_envs, workers)
    local = Local(name, make, num_envs)
    saveable = local.saveable()
    return local if saveable is None else ResumableLocal(local, saveable)


class Local:
    """B environments stepped one after the other in this process."""

    def __init__(self, name: str, make: Callable[[], GymEnv], num_envs: int) -> None:
        self._name, self.num_envs = name, num_envs
        self._envs = [make() for _ in range(num_envs)]
        self._adapter = adapt(name, self._envs[0])
        self.spec = self._adapter.spec

    def reset(self, seed: int) -> Array:
        return self.reset_each(env_seeds(seed, self.num_envs))

    def reset_each(self, seeds: Sequence[int]) -> Array:
        """As `reset`, with a seed for each environment."""
        return np.stack([self._obs(env.reset(seed=s)[0]) for env, s in zip(self._envs, seeds, strict=True)])

    def step(self, action: Array) -> Step:
        obs = np.empty((self.num_envs, *self.spec.obs_shape), self.spec.obs_dtype)
        reward = np.empty(self.num_envs, np.float32)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        final_obs: Array | None = None
        for i, (env, a) in enumerate(zip(self._envs, action.tolist(), strict=True)):
            x, reward[i], ended, cut, _ = env.step(self._adapter.first_action + a)
            terminated[i], truncated[i] = ended, cut and not ended  # an end is an end, at the limit too
            if truncated[i]:
                final_obs = np.zeros_like(obs) if final_obs is None else final_obs
                final_obs[i] = self._obs(x)
            if ended or cut:
                x, _ = env.reset()
            obs[i] = self._obs(x)
        return Step(obs, reward, reward.copy(), terminated, truncated, terminated | truncated, final_obs)

    def frames(self) -> Array:
        if any(env.render_mode != "rgb_array" for env in self._envs):
            raise RuntimeError(f"{self._name}: no screens to show: make the environment with render=True")
        return np.stack([np.asarray(env.render()) for env in self._envs])

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def saveable(self) -> list[Resumable] | None:
        """The environments, if each can save its state and no wrapper around it has a state of its own."""
        inner = [_unchecked(env) for env in self._envs]
        resumable: list[Resumable] = [env for env in inner if isinstance(env, Resumable)]
        return resumable if len(resumable) == len(inner) else None

    def _obs(self, obs: Any) -> Array:
        return self._adapter.obs(obs).astype(self.spec.obs_dtype, copy=False)


def _unchecked(env: GymEnv) -> GymEnv:
    """Without the wrappers that only check how it is used."""
    while isinstance(env, (OrderEnforcing, PassiveEnvChecker)):
        env = env.env
    return env


class ResumableLocal:
    """`Local` environments that can all save their state, `VectorEnv` and `Resumable`."""

    def __init__(self, local: Local, saveable: list[Resumable]) -> None:
        self._local, self._saveable = local, saveable
        self.spec, self.num_envs = local.spec, local.num_envs
        self.reset, self.step, self.frames, self.close = local.reset, local.step, local.frames, local.close

    def state_dict(self) -> Tree:
        return {"envs": [env.state_dict() for env in self._saveable]}

    def load_state_dict(self, state: Tree) -> None:
        self._local.reset(seed=0)  # gymnasium refuses to step an environment that was never reset
        for env, saved in zip(self._saveable, state["envs"], strict=True):
            env.load_state_dict(saved)


class Workers:
    """B environments in `workers` processes, B / workers in each, that write to shared memory.

    The processes come from a fork server: a fork of this one would take along whatever its other threads hold. As
    with any spawned process, a script that makes these needs its `if __name__ == "__main__":`.
    """

    def __init__(self, name: str, make: Callable[[], GymEnv], num_envs: int, workers: int) -> None:
        if num_envs % workers:
            raise ValueError(
                f"num_envs ({num_envs}) must divide by workers ({workers}): each process steps as many environments; "
                f"{num_envs - num_envs % workers or workers} would do"
            )
        probe = make()
        self.spec = adapt(name, probe).spec
        probe.close()
        self._name, self.num_envs = name, num_envs
        size = num_envs // workers
        blocks = [partial(_start, name, make, i, size, os.getpid()) for i in range(workers)]
        self._vector = AsyncVectorEnv(blocks, copy=False, context=_context(), autoreset_mode=AutoresetMode.DISABLED)
        self._actions = (workers, size)

    def reset(self, seed: int) -> Array:
        seeds = env_seeds(seed, self.num_envs)
        shared, _ = self._alive(lambda: self._vector.reset(options={"seeds": seeds}))
        return self._whole(shared["obs"])

    def step(self, action: Array) -> Step:
        shared, *_ = self._alive(lambda: self._vector.step(action.reshape(self._actions)))
        terminated = self._whole(shared["terminated"]).astype(bool)
        truncated = self._whole(shared["truncated"]).astype(bool)
        reward = self._whole(shared["reward"])
        final_obs = self._whole(shared["final_obs"]) if truncated.any() else None
        return Step(
            self._whole(shared["obs"]), reward, reward.copy(), terminated, truncated, terminated | truncated, final_obs
        )

    def frames(self) -> Array:
        pictures: tuple[Array, ...] = self._alive(lambda: self._vector.call("frames"))
        return np.concatenate(pictures)

    def close(self) -> None:
        self._alive(self._vector.close)

    def _whole(self, shared: Array) -> Array:
        """[workers, B / workers, ...] that the processes will write to again -> [B, ...] of our own."""
        return shared.reshape(self.num_envs, *shared.shape[2:]).copy()

    def _alive(self, ask: Callable[[], Any]) -> Any:
        """Ask the processes. `RuntimeError` for an error of an environment, and if a process has died."""
        try:
            return ask()
        except (EOFError, ConnectionError) as error:
            processes = self._vector.processes
            multiprocessing.connection.wait([process.sentinel for process in processes], timeout=1)
            codes = [process.exitcode for process in processes]
            for process in processes:
                process.kill()
            self._vector.closed = True  # nobody is left to close
            raise RuntimeError(f"{self._name}: a worker process died (exit codes {codes}; None: still ran)") from error


def _context() -> str:
    """How worker processes start. The fork server imports this module once for all of them."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"
    multiprocessing.get_context("forkserver").set_forkserver_preload([__name__])
    return "forkserver"


def _start(name: str, make: Callable[[], GymEnv], index: int, size: int, parent: int) -> _Block:
    if os.getpid() != parent:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C is the parent's to handle: it saves first
    return _Block(name, make, index, size)


class _Block(gymnasium.Env[dict[str, Any], Array]):
    """The K environments of one process as a single one whose observation is their whole step: so gymnasium's own
    `AsyncVectorEnv` carries it."""

    def __init__(self, name: str, make: Callable[[], GymEnv], index: int, size: int) -> None:
        self._name, self._local = name, Local(name, make, size)
        self._mine = slice(index * size, (index + 1) * size)
        spec = self._local.spec
        low, high = (0, 255) if spec.obs_dtype == np.uint8 else (-np.inf, np.inf)
        obs = Box(low, high, (size, *spec.obs_shape), spec.obs_dtype.type)
        shared: dict[str, Space[Any]] = {
            "obs": obs,
            "final_obs": obs,
            "reward": Box(-np.inf, np.inf, (size,), np.float32),
            "terminated": MultiBinary(size),
            "truncated": MultiBinary(size),
        }
        self.observation_space = Dict(shared)
        self.action_space = MultiDiscrete([spec.actions] * size)
        self._blank = np.zeros(obs.shape, spec.obs_dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options is not None
        seeds: list[int] = options["seeds"][self._mine]
        obs = self._readable(lambda: self._local.reset_each(seeds))
        nothing = np.zeros(len(seeds), np.float32)
        shared = {"obs": obs, "final_obs": self._blank, "reward": nothing, "terminated": nothing, "truncated": nothing}
        return shared, {}

    def step(self, action: Array) -> Any:
        step = self._readable(lambda: self._local.step(action))
        shared = {
            "obs": step.obs,
            "final_obs": self._blank if step.final_obs is None else step.final_obs,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
        }
        return shared, 0.0, False, False, {}

    def frames(self) -> Array:
        pictures: Array = self._readable(self._local.frames)
        return pictures

    def close(self) -> None:
        self._local.close()

    def _readable(self, act: Callable[[], Any]) -> Any:
        """An error that cannot be pickled would leave the parent waiting for ever: send its text instead."""
        try:
            return act()
        except Exception as error:
            raise RuntimeError(f"{self._name}: {type(error).__name__}: {error} (in a worker process)") from error
