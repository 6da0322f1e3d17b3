"""One Gymnasium environment: adds its name and index to its errors, and validates its return values."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Never

import numpy as np
from gymnasium.error import DependencyNotInstalled
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

from gossamer.data import Array, Tree
from gossamer.envs.base import MissingExtra, Resumable, UnknownEnv, UnsupportedSpace, not_installed
from gossamer.envs.spaces import GymEnv, adapt
from gossamer.errors import EnvironmentFailed, UserError

PASS_ON = (UserError, UnknownEnv, UnsupportedSpace, MissingExtra)  # raised unchanged: they are made for the user
RESET = "reset() must return (observation, info)"
STEP = "step() must return (observation, reward, terminated, truncated, info)"


class Single:
    """An environment created by `make`. Methods raise `EnvironmentFailed` if the environment raises or returns an
    invalid value, and `MissingExtra` if it needs a package that is not installed."""

    def __init__(self, name: str, make: Callable[[], GymEnv], index: int) -> None:
        self._name, self._make, self._index = name, make, index
        self.restart()

    def restart(self) -> None:
        """Create the environment, again if it exists."""
        self.env: GymEnv = self._ask("its factory", self._make)
        try:
            self._adapter = adapt(self._name, self.env)
            self._shape = self.env.observation_space.shape
        except AttributeError as error:
            self._fail(f"must set observation_space and action_space ({error})", error)
        self.spec = self._adapter.spec

    def reset(self, seed: int | None = None) -> Array:
        """Reset and return the first observation [*O]. Without a seed, the random stream continues."""
        answer = self._ask("reset()", lambda: self.env.reset(seed=seed))
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            self._fail(f"{RESET}, not {_kind(answer)}")
        return self._observation(answer[0], "reset()")

    def step(self, action: Any) -> tuple[Array, float, bool, bool]:
        """Take an action [*A]; return (observation [*O], reward, terminated, truncated)."""
        try:
            answer = self.env.step(self._adapter.action(action))
        except (Exception, SystemExit) as error:
            self._raise("step()", error)
        if not isinstance(answer, tuple | list) or len(answer) != 5:
            self._fail(f"{STEP}, not {_kind(answer)}")
        obs, reward, terminated, truncated, _ = answer
        return (
            self._observation(obs, "step()"),
            self._number(reward),
            terminated if type(terminated) is bool else self._flag("terminated", terminated),
            truncated if type(truncated) is bool else self._flag("truncated", truncated),
        )

    def frame(self) -> Array:
        """Return the screen, [H, W, 3] uint8. Raises `RuntimeError` if not created with `render=True`."""
        if self.env.render_mode != "rgb_array":
            raise RuntimeError(f"{self._name}: no screens to show: create the environment with render=True")
        picture = np.asarray(self._ask("render()", self.env.render))
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            self._fail(f"render() must return a uint8 array [height, width, 3], not {_kind(picture)}")
        return picture

    def close(self) -> None:
        """Close the environment. Its errors are ignored, since it is no longer needed."""
        with suppress(Exception):
            self.env.close()

    @property
    def saveable(self) -> bool:
        """Whether it is `Resumable` and no wrapper could have a state of its own."""
        return isinstance(self._unchecked, Resumable)

    def state_dict(self) -> Tree:
        """Return the state of a saveable environment, see `Resumable`."""
        return self._ask("state_dict()", lambda: self._resumable.state_dict())

    def load_state_dict(self, state: Tree) -> None:
        """Restore the state of a saveable environment, see `Resumable`."""
        self._ask("load_state_dict()", lambda: self._resumable.load_state_dict(state))

    @property
    def _unchecked(self) -> GymEnv:
        """The environment without the wrappers that only check its use."""
        env: GymEnv = self.env
        while isinstance(env, (OrderEnforcing, PassiveEnvChecker)):
            env = env.env
        return env

    @property
    def _resumable(self) -> Resumable:
        env = self._unchecked
        assert isinstance(env, Resumable), "the environment must be saveable"
        return env

    def _observation(self, obs: Any, source: str) -> Array:
        """Return a validated observation [*O] in the dtype of `Spec`; a view if possible."""
        spec = self.spec
        try:
            array = np.asarray(obs)
        except ValueError as error:  # nested lists of different lengths
            self._fail(f"{source} gave an observation that is not an array ({error})", error)
        if array.shape != self._shape:
            self._fail(f"{source} gave an observation of shape {array.shape}; its observation_space has {self._shape}")
        if array.dtype != spec.obs_dtype:
            array = self._converted(array, source)
        if array.ndim == 1:
            if spec.obs_dtype.kind == "f" and not _finite(array):
                bad = np.flatnonzero(~np.isfinite(array)).tolist()
                self._fail(f"{source} gave an observation that is not finite: component {bad[0]} is {array[bad[0]]}")
            return array
        array = array.transpose(self._adapter.axes)
        return array if array.ndim == len(spec.obs_shape) else array[None]

    def _converted(self, array: Array, source: str) -> Array:
        """Convert an observation to the dtype of `Spec`. Fails if that could change its values."""
        pixels, kind = self.spec.obs_dtype == np.uint8, array.dtype.kind
        if kind not in ("biu" if pixels else "biuf"):
            wanted = "uint8 pixels" if pixels else "numbers"
            self._fail(f"{source} gave an observation of {array.dtype}; its observation_space has {wanted}")
        if pixels and array.size and not 0 <= array.min() <= array.max() <= 255:
            self._fail(f"{source} gave pixels from {array.min()} to {array.max()}; they must lie in 0..255")
        with np.errstate(over="ignore"):  # float32 overflow gives infinity, which the caller rejects
            return array.astype(self.spec.obs_dtype)

    def _number(self, reward: Any) -> float:
        if isinstance(reward, float | int | np.number):
            return float(reward)
        array = np.asarray(reward)
        if array.size != 1 or array.dtype.kind not in "biuf":
            self._fail(f"{STEP}; the reward must be a number, not {_kind(reward)}")
        return float(array.item())

    def _flag(self, name: str, value: Any) -> bool:
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "biu":
            self._fail(f"{STEP}; {name} must be True or False, not {_kind(value)}")
        return bool(array.item())

    def _ask(self, what: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (Exception, SystemExit) as error:
            self._raise(what, error)

    def _raise(self, what: str, error: BaseException) -> Never:
        """Raise the error for the user."""
        if isinstance(error, PASS_ON):
            raise error
        if isinstance(error, DependencyNotInstalled):
            raise not_installed(self._name, str(error)) from error
        self._fail(f"{what} raised {type(error).__name__}: {error}{place(error)}", error)

    def _fail(self, what: str, error: BaseException | None = None) -> Never:
        trace = "".join(traceback.format_exception(error)) if error else ""
        raise EnvironmentFailed(self._name, self._index, what, trace) from error


def _finite(vector: Array) -> bool:
    if vector.size <= 100:  # ten times as fast as NumPy for small vectors; the float64 sum cannot overflow
        return math.isfinite(sum(vector.tolist()))
    return bool(np.isfinite(vector).all())


def place(error: BaseException) -> str:
    """Return the file and line that raised the error; empty for the call in this module."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return "" if frame.filename == __file__ else f" ({Path(frame.filename).name}, line {frame.lineno})"


def _kind(value: Any) -> str:
    """Describe a value for an error message."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"{len(value)} values"
    return repr(value) if value is None or isinstance(value, str) else type(value).__name__
