"""One Gymnasium environment: adds its name and index to its errors, and validates its return values."""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Never, TypeAlias

import numpy as np
from gymnasium import Wrapper
from gymnasium.error import DependencyNotInstalled
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, OrderEnforcing, PassiveEnvChecker

from gossamer.data import Array, Tree
from gossamer.envs.base import Resumable, not_installed
from gossamer.envs.leaves import InvalidObservation
from gossamer.envs.masks import has_mask, mask_for
from gossamer.envs.metrics import metrics_of
from gossamer.envs.spaces import GymEnv, adapt
from gossamer.spaces import Bounds
from gossamer.spaces.observations import MASK
from gossamer.system.errors import EnvironmentFailed, UserError

OnError: TypeAlias = Literal["fail", "restart"]

RESET = "reset() must return (observation, info)"
SEEDED = "reset() must take a seed: def reset(self, *, seed=None, options=None), with super().reset(seed=seed) first"
OLD_STEP = "; done of Gym before 0.26 is terminated, or truncated where a time limit ends the episode"
LARGEST_REWARD = float(np.finfo(np.float32).max)
STEP = "step() must return (observation, reward, terminated, truncated, info)"


@dataclass(frozen=True)
class EnvSource:
    """An environment's constructor and its handling. Sent to the process that creates it."""

    name: str
    make: Callable[..., Any]  # of one environment, or of a vector of `num_envs`
    on_error: OnError = "fail"
    masks: bool = False  # the environment gives `info["action_mask"]`
    bounds: Bounds = "clip"  # of continuous actions
    given: str = ""  # the arguments of `make`, as typed


class Single:
    """An environment created by `source`. Methods raise `EnvironmentFailed` if the environment raises or returns an
    invalid value, and `MissingExtra` if it needs a package that is not installed."""

    def __init__(self, source: EnvSource, index: int) -> None:
        self._name, self._source, self._index = source.name, source, index
        self._factory = f"its factory, with {source.given}," if source.given else "its factory"
        self.metrics: dict[str, float] = {}  # of the episode that ended last
        self.restart()

    def restart(self) -> None:
        """Create the environment, again if it exists."""
        self.env: GymEnv = self._ask(self._factory, self._source.make)
        try:
            self._adapter = adapt(self._name, self.env, masks=self._source.masks, bounds=self._source.bounds)
        except AttributeError as error:
            self._fail(f"must set observation_space and action_space ({error})", error)
        self.spec = self._adapter.spec

    def reset(self, seed: int | None = None) -> Array:
        """Reset and return the first observation [*O]. Without a seed, the random stream continues."""
        answer = self._ask("reset()", lambda: self.env.reset(seed=seed))
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            self._fail(f"{RESET}, not {kind(answer)}; before Gym 0.26 it was the observation alone")
        return self._observation(answer[0], answer[1], "reset()")

    def step(self, action: Any) -> tuple[Array, float, bool, bool]:
        """Take an action [*A]; return (observation [*O], reward, terminated, truncated)."""
        try:
            answer = self.env.step(self._adapter.action(action))
        except (Exception, SystemExit) as error:
            self._raise("step()", error)
        if not isinstance(answer, tuple | list) or len(answer) != 5:
            old = isinstance(answer, tuple | list) and len(answer) == 4
            self._fail(f"{STEP}, not {kind(answer)}{OLD_STEP if old else ''}")
        obs, reward, terminated, truncated, info = answer
        ended = terminated if type(terminated) is bool else self._flag("terminated", terminated)
        cut = truncated if type(truncated) is bool else self._flag("truncated", truncated)
        if ended or cut:
            self.metrics = metrics_of(info)
        return self._observation(obs, info, "step()", final=ended or cut), self._number(reward), ended, cut

    def gives_masks(self) -> bool:
        """Reset, and return whether the info has an action mask that could be used and is not."""
        answer = self._ask("reset()", lambda: self.env.reset(seed=0))
        able = mask_for(self.spec.actions) is not None and MASK not in {part.name for part in self.spec.parts}
        return able and isinstance(answer, tuple | list) and len(answer) == 2 and has_mask(answer[1])

    def frame(self) -> Array:
        """Return the screen, [H, W, 3] uint8. Raises `RuntimeError` if not created with `render=True`."""
        if self.env.render_mode != "rgb_array":
            raise RuntimeError(f"{self._name}: no screens to show: create the environment with render=True")
        picture = np.asarray(self._ask("render()", self.env.render))
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            self._fail(f"render() must return a uint8 array [height, width, 3], not {kind(picture)}")
        return picture

    def close(self) -> None:
        """Close the environment. Its errors are ignored, since it is no longer needed. So is a call of `quit()`, which
        would end the process."""
        with suppress(Exception, SystemExit):
            self.env.close()

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of its wrappers with running statistics, which no checkpoint has."""
        found, env = list[str](), self.env
        while isinstance(env, Wrapper):
            found += [type(env).__name__] * isinstance(env, NormalizeObservation | NormalizeReward)
            env = env.env
        return tuple(found)

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

    def _observation(self, value: Any, info: Any, source: str, *, final: bool = False) -> Array:
        """Return a validated observation [*O] in the dtype of `Spec`; a view if possible. `final`: its episode has
        ended."""
        try:
            return self._adapter.obs(value, info, final=final)
        except InvalidObservation as error:
            self._fail(f"{source} gave {error}", error.__cause__)

    def _number(self, reward: Any) -> float:
        if not isinstance(reward, float | int | np.number):
            array = np.asarray(reward)
            if array.size != 1 or array.dtype.kind not in "biuf":
                self._fail(f"{STEP}; the reward must be a number, not {kind(reward)}")
            reward = array.item()
        try:
            number = float(reward)
        except OverflowError:
            number = math.inf
        if not abs(number) <= LARGEST_REWARD:
            self._fail(f"{STEP}; the reward must be finite in float32, not {number}")
        return number

    def _flag(self, name: str, value: Any) -> bool:
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "biu":
            self._fail(f"{STEP}; {name} must be True or False, not {kind(value)}")
        return bool(array.item())

    def _ask(self, what: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (Exception, SystemExit) as error:
            self._raise(what, error)

    def _raise(self, what: str, error: BaseException) -> Never:
        raise_for_user(self._name, self._index, what, error)

    def _fail(self, what: str, error: BaseException | None = None) -> Never:
        fail(self._name, self._index, what, error)


def raise_for_user(name: str, index: int | None, what: str, error: BaseException) -> Never:
    """Raise the error of environment `index` (None: of all) for the user. `what`: the call that raised it."""
    if isinstance(error, UserError):  # made for the user
        raise error
    if isinstance(error, DependencyNotInstalled):
        raise not_installed(name, str(error)) from error
    if isinstance(error, TypeError) and re.search(r"reset\(\) got an unexpected keyword argument 'seed'", str(error)):
        fail(name, index, f"{SEEDED} ({error})", error)
    fail(name, index, f"{what} raised {named(error)}{place(error)}", error)


def fail(name: str, index: int | None, what: str, error: BaseException | None = None) -> Never:
    """Raise `EnvironmentFailed` for environment `index` (None: for all)."""
    trace = "".join(traceback.format_exception(error)) if error else ""
    raise EnvironmentFailed(name, index, what, trace) from error


def named(error: BaseException) -> str:
    """Return the error's type and text."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def place(error: BaseException) -> str:
    """Return the file and line that raised the error; empty for the call in this module."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return "" if frame.filename == __file__ else f" ({Path(frame.filename).name}, line {frame.lineno})"


def kind(value: Any) -> str:
    """Describe a value for an error message."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"{len(value)} values"
    return repr(value) if value is None or isinstance(value, str) else type(value).__name__
