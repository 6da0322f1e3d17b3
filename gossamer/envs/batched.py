"""Vector environments of the user's (`gymnasium.vector.VectorEnv`), which step all of their environments in one call.

Gymnasium has three ways to begin a new episode after one has ended (`metadata["autoreset_mode"]`). A policy here sees
the same with each: the step that ends an episode gives its last observation, and the first one of the next.

* Disabled: the environments whose episodes have ended are reset at once, by `reset(options={"reset_mask": ...})`.
* SameStep: `step` has reset them; their last observations are in `info["final_obs"]`.
* NextStep: the next `step` would ignore their actions. Gymnasium's own `SyncVectorEnv` and `AsyncVectorEnv` are reset
  by a mask before it. Others may not know masks: see `Apart`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Never, TypeAlias

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from gossamer.data import Array, Step
from gossamer.envs.base import Pair, Spaces, env_seeds
from gossamer.envs.leaves import InvalidObservation
from gossamer.envs.masks import has_mask, mask_for
from gossamer.envs.metrics import METRICS, SUCCESS, metrics_of
from gossamer.envs.single import LARGEST_REWARD, RESET, STEP, EnvSource, fail, kind, raise_for_user
from gossamer.envs.spaces import adapt
from gossamer.spaces.observations import MASK
from gossamer.system.errors import UserError

GymVector: TypeAlias = VectorEnv[Any, Any, Any]
LAST = "final_obs"  # key of the info
NAMES = "num_envs, single_observation_space and single_action_space"
LARGEST = 2**30  # of seeds: a vector adds the number of an environment


def batched(source: EnvSource, num_envs: int) -> Batched | Apart:
    """The environments of `source.make(num_envs=B)`."""
    one = Batched(source, num_envs)
    if num_envs == 1 or not one.steps_to_reset:
        return one
    one.close()
    return Apart([Batched(source, 1) for _ in range(num_envs)])


class Batched:
    """The B environments of one vector. Methods raise `EnvironmentFailed` if it raises or returns an invalid value."""

    def __init__(self, source: EnvSource, num_envs: int, *, unclipped: str = "") -> None:
        """`unclipped`: key of the info with the rewards before they were clipped, where there are such."""
        self._name, self.num_envs, self._unclipped, self._asking = source.name, num_envs, unclipped, [-1, 0]
        with_arguments = f", with {source.given}," if source.given else ""
        self._env: GymVector = self._ask(f"its factory{with_arguments}", lambda: source.make(num_envs=num_envs))
        self._mode = self._checked_mode()
        self._action: Any = None  # [B, *] the last one
        pair = self._single_spaces()
        self._adapter, self._spaces = adapt(source.name, pair, masks=source.masks, bounds=source.bounds), pair
        self.spec = self._adapter.spec

    @property
    def steps_to_reset(self) -> bool:
        """Whether only a step resets an environment whose episode has ended."""
        made = self._env.unwrapped
        # Without shared memory Gymnasium's processes reset once more with the step that follows a reset
        knows_masks = isinstance(made, SyncVectorEnv) or (isinstance(made, AsyncVectorEnv) and made.shared_memory)
        return self._mode is AutoresetMode.NEXT_STEP and not knows_masks

    def reset(self, seed: int) -> Array:
        first = int(np.random.default_rng(seed).integers(LARGEST))
        return self._begun(self._reset(seed=first), np.ones(self.num_envs, bool))

    def step(self, action: Array) -> Step:
        self._action = self._adapter.actions(action)
        answer = self._ask("step()", lambda: self._env.step(self._action))
        if not isinstance(answer, tuple | list) or len(answer) != 5:
            self._fail(f"{STEP}, not {kind(answer)}")
        value, reward, terminated, truncated, info = answer
        reward = self._numbers(reward)
        unclipped = info.get(self._unclipped) if isinstance(info, Mapping) else None
        score = reward.copy() if unclipped is None else self._numbers(unclipped)
        terminated, truncated = self._flags("terminated", terminated), self._flags("truncated", truncated)
        truncated = truncated & ~terminated  # termination takes precedence at the time limit
        over = terminated | truncated
        same = self._mode is AutoresetMode.SAME_STEP
        obs = self._observations("step()", value, info, unmasked=over & (not same))
        final_obs: Array | None = None
        if truncated.any():
            final_obs = np.zeros_like(obs)
            final_obs[truncated] = self._last(info, truncated) if same else obs[truncated]
        if over.any() and not same:
            obs = np.array(obs)  # the vector may use its memory again
            obs[over] = self._begun(self._again(over), over)[over]
        metrics = {i: each for i in np.flatnonzero(over).tolist() if (each := self._metrics(info, i))}
        return Step(obs, reward, score, terminated, truncated, over, final_obs, metrics)

    def frames(self) -> Array:
        if self._env.render_mode != "rgb_array":
            raise RuntimeError(f"{self._name}: no screens to show: create the environment with render=True")
        pictures = np.asarray(self._ask("render()", self._env.render))
        if pictures.dtype != np.uint8 or pictures.ndim != 4 or pictures.shape[::3] != (self.num_envs, 3):
            self._fail(f"render() must return {self.num_envs} uint8 arrays [height, width, 3], not {kind(pictures)}")
        return pictures

    def close(self) -> None:
        with suppress(UserError):  # it is no longer needed
            self._ask("close()", self._env.close)

    def calls(self) -> Sequence[tuple[int, int]]:
        """See `Watchable`. The first environment stands for all."""
        index, count = self._asking
        return [(index, count)]

    def spaces(self) -> Spaces:
        """See `Spaced`."""
        return self._spaces

    def gives_masks(self) -> bool:
        """See `Masking`."""
        able = mask_for(self.spec.actions) is not None and MASK not in {part.name for part in self.spec.parts}
        return able and has_mask(self._reset(seed=0)[1])

    def _single_spaces(self) -> Pair:
        try:
            return Pair(self._env.single_observation_space, self._env.single_action_space)
        except AttributeError as error:
            self._fail(f"it must have {NAMES} ({error})", error)

    def _checked_mode(self) -> AutoresetMode:
        if not hasattr(self._env, "num_envs"):
            self._fail(f"it must have {NAMES}")
        if self._env.num_envs != self.num_envs:
            self._fail(f"its factory made {self._env.num_envs} environments for num_envs={self.num_envs}")
        try:
            return AutoresetMode(self._env.metadata.get("autoreset_mode"))
        except ValueError:
            modes = ", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode)
            self._fail(f'its metadata["autoreset_mode"] must say how episodes begin: {modes}')

    def _reset(self, **given: Any) -> Any:
        answer = self._ask("reset()", lambda: self._env.reset(**given))
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            self._fail(f"{RESET}, not {kind(answer)}")
        return answer

    def _again(self, over: Array) -> Any:
        """Begin new episodes in these environments [B]; the observations of all and their info."""
        if not self.steps_to_reset:
            return self._reset(options={"reset_mask": over.copy()})
        value, _, _, _, info = self._ask("step()", lambda: self._env.step(self._action))
        return value, info

    def _begun(self, answer: Any, begun: Array) -> Array:
        """The observations [B, *O] of an answer of `reset`, valid where an episode has begun [B]."""
        return self._observations("reset()", *answer, unmasked=~begun)

    def _last(self, info: Any, truncated: Array) -> Array:
        """The last observations [K, *O] of these environments [B], which `step` has reset."""
        if not isinstance(info, Mapping) or LAST not in info:
            self._fail(f'step() gave no info["{LAST}"], the last observations of truncated episodes, as SameStep needs')
        rows = {i: _row(info[LAST], i) for i in np.flatnonzero(truncated).tolist()}
        infos = {i: _entries(info.get("final_info"), i) for i in rows}
        try:
            return np.stack([self._adapter.obs(row, infos[i], final=True) for i, row in rows.items()])
        except InvalidObservation as error:
            self._fail(f'step() gave, in info["{LAST}"], {error}', error)

    def _observations(self, source: str, value: Any, info: Any, *, unmasked: Array) -> Array:
        """Observations [B, *O]. `unmasked` [B]: no action follows them, so that they may have no action mask."""
        try:
            masks = self._masks(info, unmasked) if self._adapter.asks_mask else None
            return self._adapter.batch(value, self.num_envs, masks, unmasked)
        except InvalidObservation as error:
            self._fail(f"{source} gave {error}", error)

    def _masks(self, info: Any, unmasked: Array) -> Array:
        """The valid actions [B, M] of `info["action_mask"]`. Raises `InvalidObservation`."""
        mask = self._adapter.mask
        assert mask is not None, "the adapter asks for it"
        read = (mask.last if free else mask.read for free in unmasked.tolist())
        return np.stack([of_each(_entries(info, i)) for i, of_each in enumerate(read)])

    def _metrics(self, info: Any, i: int) -> dict[str, float]:
        """The metrics of the episode of environment `i` that has ended."""
        same = self._mode is AutoresetMode.SAME_STEP and isinstance(info, Mapping)
        return metrics_of(_entries(info.get("final_info") if same else info, i))

    def _numbers(self, reward: Any) -> Array:
        array = np.asarray(reward)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "biuf":
            self._fail(f"{STEP}; the rewards must be {self.num_envs} numbers, not {kind(reward)}")
        if not (fits := abs(array) <= LARGEST_REWARD).all():
            index = int(np.flatnonzero(~fits)[0])
            self._fail(f"{STEP}; the reward must be finite in float32, not {array[index]}", index=index)
        return array.astype(np.float32)

    def _flags(self, name: str, value: Any) -> Array:
        array = np.asarray(value)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "biu":
            self._fail(f"{STEP}; {name} must be {self.num_envs} times True or False, not {kind(value)}")
        return array.astype(bool)

    def _ask(self, what: str, ask: Callable[[], Any]) -> Any:
        self._asking = [0, self._asking[1] + 1]
        try:
            return ask()
        except (Exception, SystemExit) as error:
            raise_for_user(self._name, None, what, error)
        finally:
            self._asking = [-1, self._asking[1] + 1]

    def _fail(self, what: str, error: BaseException | None = None, *, index: int | None = None) -> Never:
        fail(self._name, index, what, error)


class Apart:
    """B vectors of one environment each, since a vector of B would waste a step of each environment whose episode has
    ended: it takes an action, and only resets. A vector of one can be stepped once more at once."""

    def __init__(self, vectors: Sequence[Batched]) -> None:
        self._vectors, self.num_envs, self.spec = vectors, len(vectors), vectors[0].spec
        self.spaces = vectors[0].spaces

    def reset(self, seed: int) -> Array:
        seeds = env_seeds(seed, self.num_envs)
        return np.concatenate([each.reset(its) for each, its in zip(self._vectors, seeds, strict=True)])

    def step(self, action: Array) -> Step:
        steps = [each.step(action[i : i + 1]) for i, each in enumerate(self._vectors)]
        names = ("obs", "reward", "score", "terminated", "truncated", "over")
        columns = {name: np.concatenate([getattr(step, name) for step in steps]) for name in names}
        final_obs: Array | None = None
        if columns["truncated"].any():
            final_obs = np.concatenate([np.zeros_like(s.obs) if s.final_obs is None else s.final_obs for s in steps])
        metrics = {i: step.metrics[0] for i, step in enumerate(steps) if step.metrics}
        return Step(**columns, final_obs=final_obs, metrics=metrics)

    def frames(self) -> Array:
        return np.concatenate([each.frames() for each in self._vectors])

    def close(self) -> None:
        for each in self._vectors:
            each.close()

    def calls(self) -> Sequence[tuple[int, int]]:
        """See `Watchable`."""
        every = [each.calls()[0] for each in self._vectors]
        asked = next((i for i, (index, _) in enumerate(every) if index >= 0), -1)
        return [(asked, sum(count for _, count in every))]


def _row(value: Any, i: int) -> Any:
    """What environment `i` has of values [B], or of a dict of them."""
    return {key: _row(each, i) for key, each in value.items()} if isinstance(value, Mapping) else value[i]


def _entries(info: Any, i: int) -> dict[str, Any]:
    """The action mask and the metrics of environment `i` in the info of all."""
    found = dict[str, Any]()
    for key in (MASK, SUCCESS, METRICS):
        if isinstance(info, Mapping) and key in info and (f"_{key}" not in info or info[f"_{key}"][i]):
            found[key] = _row(info[key], i)
    if isinstance(own := found.get(METRICS), Mapping):  # `_name` says which environments have `name`
        found[METRICS] = {name: value for name, value in own.items() if own.get(f"_{name}", True) and name[0] != "_"}
    return found
