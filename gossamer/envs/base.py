"""Protocols of environments: vectors of environments that step together and reset automatically."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from gossamer.data import Array, Step, Tree
from gossamer.spaces import Spec
from gossamer.system.errors import EnvironmentFailed, UserError
from gossamer.system.installation import install

if TYPE_CHECKING:
    from gymnasium import Space


class UnsupportedSpace(UserError):
    """The observation or action space is not supported."""


class UnknownEnv(UserError):
    """No environment has this name."""


class MissingExtra(UserError, ImportError):
    """An optional dependency is not installed."""


class Spaces(Protocol):
    """An environment of Gymnasium, or what is known of one."""

    @property
    def observation_space(self) -> Space[Any]: ...

    @property
    def action_space(self) -> Space[Any]: ...


@dataclass(frozen=True)
class Pair:
    """Two spaces; see `Spaces`."""

    observation_space: Space[Any]
    action_space: Space[Any]


class VectorEnv(Protocol):
    """B environments in lock-step. `step` resets automatically: `Step.obs` then belongs to the new episode."""

    spec: Spec
    num_envs: int

    def reset(self, seed: int) -> Array:
        """Start an episode in every environment; return observations [B, *O]. Equal seeds give equal environments."""

    def step(self, action: Array) -> Step:
        """Take action [B, *A] in each environment. An episode that terminates at its time limit counts as terminated
        only."""

    def frames(self) -> Array:
        """Return the current screens, [B, H, W, 3] uint8. Raises `RuntimeError` if not created with `render=True`."""

    def close(self) -> None:
        """Release processes and emulators."""


@runtime_checkable
class Resumable(Protocol):
    """Environments whose complete state, including random streams, can be saved and restored exactly."""

    def state_dict(self) -> Tree:
        """Return a nested dict of NumPy arrays, numbers, strings and lists of these."""

    def load_state_dict(self, state: Tree) -> None:
        """Restore a state of `state_dict` exactly."""


@runtime_checkable
class Watchable(Protocol):
    """Environments that report calls in progress, so that a hanging environment can be identified."""

    def calls(self) -> Sequence[tuple[int, int]]:
        """Return, for each thread or process that steps environments, the index of the environment that it is calling
        (-1: none) and a number that changes with every call. Called from another thread."""


@runtime_checkable
class Parted(Protocol):
    """Environments whose step can be begun, and waited for later: meanwhile others step."""

    def send(self, action: Array) -> None:
        """Begin a step with action [B, *A] in each environment."""

    def receive(self) -> Step:
        """Wait for its result."""


@runtime_checkable
class Restarting(Protocol):
    """Environments that can be restarted after a failure."""

    def failures(self) -> tuple[EnvironmentFailed, ...]:
        """Return the failures since the last call after which an environment was restarted."""


@runtime_checkable
class InTheMaking(Protocol):
    """Environments that other processes make after they have been returned; `reset` waits for them."""

    def made(self) -> int:
        """Return how many of them exist."""


@runtime_checkable
class Spaced(Protocol):
    """Environments with spaces of Gymnasium's. Without this, `spec` says what they are."""

    def spaces(self) -> Spaces:
        """Return the spaces of one environment."""


@runtime_checkable
class Masking(Protocol):
    """Environments that may offer action masks."""

    def gives_masks(self) -> bool:
        """Reset one environment and return whether it gives `info["action_mask"]`, which `spec` does not use yet."""


class EnvFactory(Protocol):
    """Frozen data that describes an environment. It can be serialised; `make` is called where the environment runs."""

    @property
    def name(self) -> str: ...

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """Create B = `num_envs` environments stepped by `workers` threads or processes (0: the kind's default).
        `render`: `VectorEnv.frames` will be called."""


@runtime_checkable
class Several(Protocol):
    """Factories of environments of several games."""

    @property
    def period(self) -> int:
        """The number of environments of which each game has exactly its share; so have their multiples."""

    def places(self, num_envs: int) -> list[int]:
        """A number 0 .. num_envs - 1 for each of so many environments: those of each game are spread evenly over all
        numbers. Environments of several games may have the same one."""


def one_of_each(env: EnvFactory) -> int:
    """The least number of environments that has every game in its share."""
    return env.period if isinstance(env, Several) else 1


def places(env: EnvFactory, num_envs: int) -> list[int]:
    """See `Several.places`; of one game, the environments' own numbers."""
    return env.places(num_envs) if isinstance(env, Several) else list(range(num_envs))


@runtime_checkable
class Forgetful(Protocol):
    """Environments that may have running statistics of their own."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of wrappers with running statistics, which no checkpoint has."""


@runtime_checkable
class Threaded(Protocol):
    """Factories of environments that are stepped by native threads, without the GIL."""

    def threads(self, sharing: int) -> int:
        """Return the number of threads for each of `sharing` workers that share this machine's cores."""


def threads_of(env: EnvFactory, sharing: int) -> int:
    """The number of native threads for each of `sharing` workers that share this machine's cores; 0 (the default of
    `EnvFactory.make`) for environments without native threads."""
    return env.threads(sharing) if isinstance(env, Threaded) else 0


def unknown_env(name: str, known: Iterable[str]) -> UnknownEnv:
    """Return the error for a name that is not in `known`, with the most similar known names."""
    close = near_names(name, known)
    hint = f"near: {', '.join(close)}" if close else "gossamer list shows all"
    return UnknownEnv(f"unknown environment {name!r}; {hint}")


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three of `known` that are similar to `name`, the most similar first."""
    folded = {_fold(k): k for k in known}
    return [folded[k] for k in difflib.get_close_matches(_fold(name), folded, n=3, cutoff=0.6)]


def _fold(name: str) -> str:
    """Normalise the spelling of a name: `ALE/SpaceInvaders-v5`, `space_invaders` -> `spaceinvaders`."""
    return re.sub(r"^ale/|noframeskip|deterministic|-v\d+$|[^a-z0-9]", "", name.lower())


OURS = ("classic-control", "classic_control", "toy-text", "toy_text", "box2d")  # Gymnasium's extras that [gym] includes


def not_installed(name: str, message: str) -> MissingExtra:
    """Return the error for an environment that needs a package; `message`: Gymnasium's error message."""
    if any(f"[{extra}]" in message for extra in OURS):
        package = message.split(" is not installed")[0]
        return MissingExtra(f"{name}: {package} is not installed; run {install('gym')}")
    return MissingExtra(f"{name}: {message}")


def missing_extra(what: str, extra: str) -> MissingExtra:
    """Return the error for `what`, which needs the extra `extra`, with the command to install it."""
    return MissingExtra(f"{what}: not installed; run {install(extra)}")


def check_counts(num_envs: int, workers: int) -> None:
    """Raises `ValueError` for invalid counts."""
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, not {num_envs}")
    if workers < 0:
        raise ValueError(f"workers must be 0 (default of the environment) or more, not {workers}")


def env_seeds(seed: int, num_envs: int) -> list[int]:
    """Return B distinct seeds below 2^31. With `seed + i`, runs with adjacent seeds would share environments."""
    return [int(s) for s in np.random.default_rng(seed).choice(2**31 - 1, size=num_envs, replace=False)]
