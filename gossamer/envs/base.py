"""What the library asks of environments: many of them, stepped together, reset by themselves."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gossamer.data import Array, Step, Tree
from gossamer.errors import EnvironmentFailed


class UnsupportedSpace(ValueError):
    """An observation or action space the library cannot learn yet."""


class UnknownEnv(ValueError):
    """No environment has this name."""


class MissingExtra(ImportError):
    """An optional dependency is not installed."""


@dataclass(frozen=True)
class Spec:
    """The shape of one environment, as far as a network and a report need it."""

    obs_shape: tuple[int, ...]  # O: [C, H, W] for pictures, [N] for vectors
    obs_dtype: np.dtype[Any]  # uint8 for pictures
    actions: int  # A: discrete actions
    frames_per_step: int = 1  # emulator frames to a step

    @property
    def pixels(self) -> bool:
        """Whether observations are pictures (then a convolutional network is the default)."""
        return len(self.obs_shape) == 3


class VectorEnv(Protocol):
    """B environments in lock-step. `step` resets by itself: `Step.obs` then belongs to the new episode."""

    spec: Spec
    num_envs: int

    def reset(self, seed: int) -> Array:
        """Begin an episode everywhere; [B, *O]. The same seed gives the same environments."""

    def step(self, action: Array) -> Step:
        """Take action [B] int64 in each environment. What ends just when it is cut short counts as terminated only."""

    def frames(self) -> Array:
        """What is on the screens now, [B, H, W, 3] uint8; `RuntimeError` if not made with `render=True`."""

    def close(self) -> None:
        """Free processes and emulators."""


@runtime_checkable
class Resumable(Protocol):
    """An environment whose whole state, random streams included, can be saved: then resume is exact."""

    def state_dict(self) -> Tree:
        """Nested dict of NumPy arrays, numbers, strings and lists of these."""

    def load_state_dict(self, state: Tree) -> None:
        """Go on exactly where `state_dict` was taken."""


@runtime_checkable
class Watchable(Protocol):
    """Environments that say which of them is being asked, so that one that does not answer can be named."""

    def calls(self) -> Sequence[tuple[int, int]]:
        """For each thread or process that asks them: which environment it is asking now (-1: none), and a number that
        changes with every call. Called from another thread."""


@runtime_checkable
class Restarting(Protocol):
    """Environments that are restarted where they fail."""

    def failures(self) -> tuple[EnvironmentFailed, ...]:
        """What went wrong and was survived by a restart, since the last call."""


class EnvFactory(Protocol):
    """Frozen data that says which environment; made where it is used, so that it can travel."""

    @property
    def name(self) -> str: ...

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """B = `num_envs` environments stepped by `workers` threads or processes (0: what suits the kind).
        `render`: `VectorEnv.frames` will be asked for."""


def unknown_env(name: str, known: Iterable[str]) -> UnknownEnv:
    """The error for a name that is none of `known`, with the nearest of them."""
    close = near_names(name, known)
    hint = f"near: {', '.join(close)}" if close else "gossamer list shows all"
    return UnknownEnv(f"unknown environment {name!r}; {hint}")


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """At most three of `known` that `name` may have been meant to be, nearest first."""
    folded = {_fold(k): k for k in known}
    return [folded[k] for k in difflib.get_close_matches(_fold(name), folded, n=3, cutoff=0.6)]


def _fold(name: str) -> str:
    """Spellings of one environment, alike: `ALE/SpaceInvaders-v5`, `space_invaders` -> `spaceinvaders`."""
    return re.sub(r"^ale/|noframeskip|deterministic|-v\d+$|[^a-z0-9]", "", name.lower())


OURS = ("classic-control", "classic_control", "toy-text", "toy_text", "box2d")  # Gymnasium's extras that are in [gym]


def not_installed(name: str, told: str) -> MissingExtra:
    """The error for an environment that needs a package; `told`: what Gymnasium says of it."""
    if any(f"[{extra}]" in told for extra in OURS):
        package = told.split(" is not installed")[0]
        return MissingExtra(f'{name}: {package} is not installed; run pip install "gossamer[gym]"')
    return MissingExtra(f"{name}: {told}")


def missing_extra(what: str, extra: str) -> MissingExtra:
    """The error for `what` that comes with the extra `extra`, with the command that installs it."""
    return MissingExtra(f'{what}: not installed; run pip install "gossamer[{extra}]"')


def check_counts(num_envs: int, workers: int) -> None:
    """Raises `ValueError` unless there is something to step."""
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, not {num_envs}")
    if workers < 0:
        raise ValueError(f"workers must be 0 (what suits the environment) or more, not {workers}")


def env_seeds(seed: int, num_envs: int) -> list[int]:
    """[B] distinct seeds below 2^31. Not `seed + i`: then runs with neighbouring seeds would share environments."""
    return [int(s) for s in np.random.default_rng(seed).choice(2**31 - 1, size=num_envs, replace=False)]


def cores() -> int:
    """Processor cores that this process may use (a container or `taskset` may leave it fewer than there are)."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
