"""What an environment lets a policy observe and do, as data: `spec.json` of a run. With it, a policy acts without the
environment and its packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple

from gossamer import spaces
from gossamer.data import Array
from gossamer.envs.atari import Atari, AtariPreset
from gossamer.envs.base import EnvFactory, Pair, Spaced, Spaces, UnsupportedSpace, VectorEnv
from gossamer.envs.games import Games
from gossamer.envs.gym import Custom, Gym
from gossamer.envs.leaves import Picture
from gossamer.envs.pool import EnvPool
from gossamer.envs.spaces import Adapter, adapt
from gossamer.envs.trees import Leaf, is_text, texts
from gossamer.envs.union import Union
from gossamer.spaces import Bounds, Spec
from gossamer.system.errors import UserError

FORMAT, WITH_GAMES = 1, 2
WIDE, NARROW, AWAY = 10.0, 0.2, 0.5  # bounds of actions that a normal distribution hardly finds


@dataclass(frozen=True)
class Interface:
    """The spaces of one environment, and how its values are converted."""

    name: str  # as in `--env`
    observation_space: Space[Any]
    action_space: Space[Any]
    masks: bool = False  # infos have action masks, and the policy was trained with them
    bounds: Bounds = "clip"  # of continuous actions
    frames_per_step: int = 1
    preset: AtariPreset | None = None  # preprocessing of an Atari game
    games: tuple[Interface, ...] = ()  # of several games; the other fields are then those of the first
    action_names: tuple[str, ...] = ()  # only of one of several games: actions of the same name are one

    @property
    def spec(self) -> Spec:
        """Observations and actions of the network."""
        return self.union.spec if self.games else self.adapter.spec

    @cached_property
    def union(self) -> Union:
        """The union of several games."""
        return Union([game.name for game in self.games], [game.adapter.spec for game in self.games])

    @cached_property
    def adapter(self) -> Adapter:
        """The conversion of observations and actions."""
        made = adapt(self.name, self, masks=self.masks, bounds=self.bounds)
        if self.preset is not None:  # the stack comes first, even where it is as long as a side
            shape = self.observation_space.shape or made.spec.obs_shape
            observations = Leaf("", Picture(shape, (0, 1, 2)))
            made = replace(made, observations=observations, spec=replace(made.spec, obs_shape=shape))
        history = 1 if self.preset is None else self.preset.stack
        names, frames = self.action_names, self.frames_per_step
        return replace(made, spec=replace(made.spec, frames_per_step=frames, history=history, action_names=names))

    @property
    def notes(self) -> Iterator[str]:
        """What a user should know of it."""
        for part in self.left_out:
            yield f'{self.name}: the part "{part}" of the observation is left out: it is text'
        space = self.action_space
        if isinstance(space, Box) and self.bounds == "clip" and space.is_bounded():
            low, high = space.low, space.high
            if (far := (high - low > WIDE) | (high - low < NARROW) | (low > AWAY) | (high < -AWAY)).any():
                first = tuple(np.argwhere(far)[0])
                yield (
                    f"{self.name}: actions are from {low[first]:g} to {high[first]:g}, and first ones are drawn around "
                    "0 with deviation 1; --action-bounds squash fits them to their bounds"
                )

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of the parts of an observation that the network does not get: text."""
        return tuple(texts(self.observation_space))

    def to_dict(self) -> dict[str, Any]:
        """The content of `spec.json`. Raises `UnsupportedSpace` for a key of a Dict that is neither text nor an
        integer."""
        more: dict[str, Any] = {"games": [game.to_dict() for game in self.games]} if self.games else {}
        more |= {"action_names": list(self.action_names)} if self.action_names else {}
        return {
            "format": WITH_GAMES if self.games else FORMAT,
            "env": self.name,
            "observation_space": _encoded(self.name, self.observation_space),
            "action_space": _encoded(self.name, self.action_space),
            "action_masks": self.masks,
            "action_bounds": self.bounds,
            "frames_per_step": self.frames_per_step,
            "preprocessing": asdict(self.preset) if self.preset else None,
            **more,
        }

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> Interface:
        """Read a result of `to_dict`. Raises `UserError` for one of a later version; KeyError, TypeError or ValueError
        if the content is none."""
        if (form := content["format"]) not in (FORMAT, WITH_GAMES):
            raise UserError(f"format {form}: written by a later version; this one reads {FORMAT} and {WITH_GAMES}")
        preset = content["preprocessing"]
        return Interface(
            name=content["env"],
            observation_space=_decoded(content["observation_space"]),
            action_space=_decoded(content["action_space"]),
            masks=content["action_masks"],
            bounds=content["action_bounds"],
            frames_per_step=content["frames_per_step"],
            preset=None if preset is None else AtariPreset(**preset),
            games=tuple(map(Interface.from_dict, content.get("games", ()))),
            action_names=tuple(content.get("action_names", ())),
        )


def describe(factory: EnvFactory, env: VectorEnv) -> Interface:
    """The interface of environments that `factory` made; they may observe the last action and reward, too."""
    if isinstance(factory, Games):
        each = tuple(_of_one(share.env) for share in factory.shares)
        return replace(each[0], name=factory.name, games=each, action_names=())
    seen = spaces_of(env)
    found = Interface(
        factory.name,
        seen.observation_space,
        seen.action_space,
        frames_per_step=env.spec.frames_per_step,
        preset=factory.preset if isinstance(factory, Atari) else None,
    )
    return (
        replace(found, masks=factory.masks, bounds=factory.bounds)
        if isinstance(factory, Gym | Custom | EnvPool)
        else found
    )


def _of_one(factory: EnvFactory) -> Interface:
    with closing(factory.make(1)) as env:
        return replace(describe(factory, env), action_names=env.spec.action_names)


def spaces_of(env: VectorEnv) -> Spaces:
    """The spaces of one environment, as Gymnasium describes them."""
    return env.spaces() if isinstance(env, Spaced) else _plain(env.spec)


def _plain(spec: Spec) -> Pair:
    """The spaces of an environment that is not Gymnasium's: one array, and one choice."""
    assert spec.layout is None, "such an environment has observations of one array"
    assert isinstance(spec.actions, spaces.Discrete), "such an environment has discrete actions"
    low, high = (0, 255) if spec.obs_dtype == np.uint8 else (-np.inf, np.inf)
    return Pair(Box(low, high, spec.obs_shape, spec.obs_dtype.type), Discrete(spec.actions.n))


def _encoded(name: str, space: Space[Any]) -> dict[str, Any]:
    """A space as JSON."""
    match space:
        case Box():
            bounds = {"low": _bound(space.low), "high": _bound(space.high)}
            return {"kind": "box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
        case Discrete():
            return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
        case MultiDiscrete():
            sizes = {"sizes": space.nvec.tolist(), "starts": space.start.tolist()}
            return {"kind": "multi-discrete", "dtype": str(space.dtype), **sizes}
        case MultiBinary():
            return {"kind": "multi-binary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
        case Dict():
            return {"kind": "dict", "spaces": [[_key(name, k), _encoded(name, v)] for k, v in space.spaces.items()]}
        case Tuple():
            return {"kind": "tuple", "spaces": [_encoded(name, each) for each in space.spaces]}
    if is_text(space):  # it is not read, whatever its characters are
        return {"kind": "text"}
    raise UnsupportedSpace(f"{name}: {space} is not supported")


def _decoded(content: Mapping[str, Any]) -> Space[Any]:
    """Read a result of `_encoded`."""
    match content:
        case {"kind": "box", "shape": shape, "dtype": dtype, "low": low, "high": high}:
            return Box(_limit(low, shape, dtype), _limit(high, shape, dtype), dtype=np.dtype(dtype).type)
        case {"kind": "discrete", "n": n, "start": start}:
            return Discrete(n, start=start)
        case {"kind": "multi-discrete", "sizes": sizes, "starts": starts, "dtype": dtype}:
            return MultiDiscrete(np.array(sizes), dtype=np.dtype(dtype).type, start=np.array(starts))
        case {"kind": "multi-binary", "n": n}:
            return MultiBinary(n)
        case {"kind": "dict", "spaces": pairs}:
            return Dict([(key, _decoded(inner)) for key, inner in pairs])  # a list keeps its order
        case {"kind": "tuple", "spaces": inner}:
            return Tuple([_decoded(each) for each in inner])
        case {"kind": "text"}:
            return Text(1)
    raise ValueError(f"{content} is not a space")


def _key(name: str, key: Any) -> str | int:
    if isinstance(key, str):
        return str(key)
    if isinstance(key, int | np.integer):
        return int(key)
    raise UnsupportedSpace(f"{name}: the key {key!r} of its observation_space must be text or an integer")


def _bound(values: Array) -> Any:
    """A bound as one number where all are equal, else as a list. JSON has no infinity: it becomes text."""
    found = list(_numbers(values))
    return found[0] if len(set(found)) == 1 else found


def _numbers(values: Array) -> Iterator[float | str]:
    for value in values.ravel().tolist():
        yield value if np.isfinite(value) else str(value)


def _limit(bound: Any, shape: list[int], dtype: str) -> Array:
    """Read a result of `_bound`."""
    number = float if np.dtype(dtype).kind == "f" else int  # int64 has bounds that no float is equal to
    each = [number(value) for value in (bound if isinstance(bound, list) else [bound])]
    flat = np.broadcast_to(np.array(each, dtype), (int(np.prod(shape)),))
    return flat.reshape(shape)
