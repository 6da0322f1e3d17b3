"""One Gymnasium environment: its errors get its name and index, and its answers are checked before they are used."""

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

PASS_ON = (UserError, UnknownEnv, UnsupportedSpace, MissingExtra)  # these already are one line for the user
RESET = "reset() must return (observation, info)"
STEP = "step() must return (observation, reward, terminated, truncated, info)"


class Single:
    """An environment that `make` makes. Every method raises `EnvironmentFailed` for an error of the environment, and
    for an answer that cannot be used; `MissingExtra` where it needs a package that is not installed."""

    def __init__(self, name: str, make: Callable[[], GymEnv], index: int) -> None:
        self._name, self._make, self._index = name, make, index
        self.restart()

    def restart(self) -> None:
        """Make the environment, again if there is one."""
        self.env: GymEnv = self._ask("its factory", self._make)
        try:
            self._adapter = adapt(self._name, self.env)
            self._shape = self.env.observation_space.shape
        except AttributeError as error:
            self._fail(f"must set observation_space and action_space ({error})", error)
        self.spec = self._adapter.spec

    def reset(self, seed: int | None = None) -> Array:
        """The first observation of an episode, [*O]; without a seed the random stream goes on."""
        answer = self._ask("reset()", lambda: self.env.reset(seed=seed))
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            self._fail(f"{RESET}, not {_kind(answer)}")
        return self._observation(answer[0], "reset()")

    def step(self, action: int) -> tuple[Array, float, bool, bool]:
        """Take action 0..A-1: (observation, reward, terminated, truncated)."""
        try:
            answer = self.env.step(self._adapter.first_action + action)
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
        """What it shows, [H, W, 3] uint8; `RuntimeError` unless it was made to be shown."""
        if self.env.render_mode != "rgb_array":
            raise RuntimeError(f"{self._name}: no screens to show: make the environment with render=True")
        picture = np.asarray(self._ask("render()", self.env.render))
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            self._fail(f"render() must return a uint8 array [height, width, 3], not {_kind(picture)}")
        return picture

    def close(self) -> None:
        """Let it go. What it raises then is ignored: nothing depends on it any more."""
        with suppress(Exception):
            self.env.close()

    @property
    def saveable(self) -> bool:
        """Whether it can save its whole state: no wrapper around it may have one, but those that only check its use."""
        return isinstance(self._unchecked, Resumable)

    def state_dict(self) -> Tree:
        """Of a saveable one, see `Resumable`."""
        return self._ask("state_dict()", lambda: self._resumable.state_dict())

    def load_state_dict(self, state: Tree) -> None:
        """Of a saveable one, see `Resumable`."""
        self._ask("load_state_dict()", lambda: self._resumable.load_state_dict(state))

    @property
    def _unchecked(self) -> GymEnv:
        env: GymEnv = self.env
        while isinstance(env, (OrderEnforcing, PassiveEnvChecker)):
            env = env.env
        return env

    @property
    def _resumable(self) -> Resumable:
        env = self._unchecked
        assert isinstance(env, Resumable), "asked of saveable ones only"
        return env

    def _observation(self, obs: Any, source: str) -> Array:
        """[*O] of the specification's dtype; a view where it can be."""
        spec = self.spec
        try:
            array = np.asarray(obs)
        except ValueError as error:  # nested lists of different lengths
            self._fail(f"{source} gave an observation that is no array ({error})", error)
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
        """Of another dtype than the specification's: the same numbers in it, or an error."""
        pixels, kind = self.spec.obs_dtype == np.uint8, array.dtype.kind
        if kind not in ("biu" if pixels else "biuf"):
            wanted = "uint8 pixels" if pixels else "numbers"
            self._fail(f"{source} gave an observation of {array.dtype}; its observation_space has {wanted}")
        if pixels and array.size and not 0 <= array.min() <= array.max() <= 255:
            self._fail(f"{source} gave pixels from {array.min()} to {array.max()}; they must lie in 0..255")
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite, which is refused next
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
        """Raise what `error` means for the user."""
        if isinstance(error, PASS_ON):
            raise error
        if isinstance(error, DependencyNotInstalled):
            raise not_installed(self._name, str(error)) from error
        self._fail(f"{what} raised {type(error).__name__}: {error}{place(error)}", error)

    def _fail(self, what: str, error: BaseException | None = None) -> Never:
        trace = "".join(traceback.format_exception(error)) if error else ""
        raise EnvironmentFailed(self._name, self._index, what, trace) from error


def _finite(vector: Array) -> bool:
    if vector.size <= 100:  # a tenth of the time that NumPy takes for a few numbers; float64 does not overflow
        return math.isfinite(sum(vector.tolist()))
    return bool(np.isfinite(vector).all())


def place(error: BaseException) -> str:
    """The file and line that raised it, unless that is our call."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return "" if frame.filename == __file__ else f" ({Path(frame.filename).name}, line {frame.lineno})"


def _kind(value: Any) -> str:
    """A value as an error names it."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"{len(value)} values"
    return repr(value) if value is None or isinstance(value, str) else type(value).__name__
