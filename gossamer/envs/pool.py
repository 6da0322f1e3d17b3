"""EnvPool's environments (`envpool:Pong-v5`), which native threads step (Weng et al. 2022, arXiv 2206.10558)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymVector

from gossamer.data import Array
from gossamer.envs.base import VectorEnv, check_counts, missing_extra, unknown_env
from gossamer.envs.batched import Batched
from gossamer.envs.single import EnvSource, OnError
from gossamer.spaces import Bounds
from gossamer.system.errors import UserError
from gossamer.system.kwargs import FLAG, check_among, text
from gossamer.system.processes import cores

MODULE = "envpool"
OURS = ("num_envs", "batch_size", "num_threads", "seed", "env_seed", "max_num_players", "render_mode")
UNCLIPPED = "reward"  # key of the info of Atari games: the reward, where `reward_clip` clips that of the step


@dataclass(frozen=True)
class EnvPool:
    """A task of EnvPool (`Pong-v5`) and its options (`stack_num`, `reward_clip`)."""

    task: str
    kwargs: tuple[tuple[str, Any], ...] = ()
    on_error: OnError = "fail"  # restarts are refused
    masks: bool = False  # of the infos
    bounds: Bounds = "clip"  # of continuous actions

    @property
    def name(self) -> str:
        return f"{MODULE}:{self.task}"

    def threads(self, sharing: int) -> int:
        """See `Threaded`: an equal share of the cores."""
        return max(1, cores() // sharing)

    def check(self) -> None:
        """Raises `MissingExtra` without EnvPool, `UnknownEnv` for a task that it lacks, and `UserError` for an option
        that the task or Gossamer does not have."""
        if importlib.util.find_spec(MODULE) is None:
            raise missing_extra(f"{self.name} is an environment of EnvPool; the extra for these", MODULE)
        envpool = _module()
        tasks = envpool.list_all_envs()
        if self.task not in tasks:
            raise unknown_env(self.name, [f"{MODULE}:{task}" for task in tasks])
        takes = [name for name in envpool.make_spec(self.task).config._fields if name not in OURS]
        for name, value in self.kwargs:
            if name in OURS:
                raise UserError(f"{FLAG} {text({name: value})}: Gossamer sets it; leave it out")
        check_among(self.name, takes, dict(self.kwargs))
        if self.on_error == "restart":
            raise UserError(f"--on-env-error restart: {self.name} cannot be restarted; use fail")

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """Create environments stepped by `workers` native threads (0: one per core). Raises as `check`."""
        check_counts(num_envs, workers)
        self.check()
        threads = min(workers or cores(), num_envs)
        make = partial(Pool, self.task, dict(self.kwargs), threads, "rgb_array" if render else None)
        source = EnvSource(self.name, make, masks=self.masks, bounds=self.bounds, given=text(dict(self.kwargs)))
        return Batched(source, num_envs, unclipped=UNCLIPPED)


class Pool(GymVector[Any, Any, Any]):
    """Environments of EnvPool, of which some can be reset. `reset` with a seed makes them anew: EnvPool takes seeds
    nowhere else."""

    def __init__(
        self, task: str, options: Mapping[str, Any], threads: int, render_mode: str | None, num_envs: int
    ) -> None:
        given = {**options, "num_threads": threads, **({"render_mode": render_mode} if render_mode else {})}
        self._make = partial(_module().make, task, env_type="gymnasium", num_envs=num_envs, **given)
        self._engine = self._make(seed=0)
        self.single_observation_space = self._engine.observation_space
        self.single_action_space = self._engine.action_space
        self.num_envs, self.render_mode = num_envs, render_mode
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self._obs: Any = None  # [B, ...] the last ones

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if options is not None and "reset_mask" in options:
            part, info = self._engine.reset(np.flatnonzero(options["reset_mask"]).astype(np.int32))
            self._obs = _put(self._obs, part, info["env_id"])
            return self._obs, {}
        self._engine.close()
        self._engine = self._make(seed=seed)
        self._obs, info = self._engine.reset()
        return self._obs, info

    def step(self, actions: Any) -> Any:
        answer = self._engine.step(actions)
        self._obs = answer[0]
        return answer

    def render(self) -> Any:
        return self._engine.render(np.arange(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        self._engine.close()


def _module() -> Any:
    return importlib.import_module(MODULE)


def _put(into: Any, part: Any, rows: Array) -> Any:
    """A copy of the arrays [B, ...] of `into` with these rows from `part`."""
    if isinstance(into, Mapping):
        return {key: _put(each, part[key], rows) for key, each in into.items()}
    if isinstance(into, tuple):
        return tuple(_put(each, other, rows) for each, other in zip(into, part, strict=True))
    found = into.copy()
    found[rows] = part
    return found
