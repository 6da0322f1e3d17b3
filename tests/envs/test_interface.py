"""Interfaces survive JSON, and say the same as the environments that they are of."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import more_envs
import numpy as np
import pytest
import some_envs
from gymnasium import spaces

from gossamer.envs import resolve
from gossamer.envs.atari import PAAC, Atari
from gossamer.envs.base import UnsupportedSpace
from gossamer.envs.gym import Custom
from gossamer.envs.interface import Interface, describe
from gossamer.envs.last import LastActionReward
from gossamer.storage.files import to_json
from gossamer.system.errors import UserError

SPACES: dict[str, spaces.Space[Any]] = {
    "infinite": spaces.Box(-np.inf, np.inf, (2,), np.float64),
    "half infinite": spaces.Box(np.array([0, -np.inf]), np.array([np.inf, 0.1]), dtype=np.float32),
    "matrix": some_envs.box().action_space,
    "picture": more_envs.PICTURE,
    "discrete": spaces.Discrete(3, start=-1),
    "multi-discrete": some_envs.multi_discrete().action_space,
    "multi-binary": some_envs.multi_binary().action_space,
    "nested": more_envs.NESTED,
    "unsorted keys, a number": spaces.Dict(
        [("b", spaces.Discrete(2)), ("a", spaces.Discrete(2)), (3, spaces.Discrete(2))]
    ),
}


@pytest.mark.parametrize("kind", SPACES)
def test_every_space_survives_json(kind: str) -> None:
    before = Interface("some", SPACES[kind], SPACES["discrete"], masks=True, bounds="squash", frames_per_step=4)
    after = Interface.from_dict(json.loads(to_json(before.to_dict())))
    assert after == before
    assert repr(after.observation_space) == repr(before.observation_space)  # the order of keys, too


@pytest.mark.parametrize(
    "target",
    [
        "more_envs:nested",
        "more_envs:matrix",
        "more_envs:float_picture",
        "more_envs:two_doors",
        "some_envs:box",
        "some_envs:from_five",
    ],
)
def test_the_same_spec_as_the_environment(target: str) -> None:
    factory = Custom(target, masks="doors" in target, bounds="squash")
    env = factory.make(1)
    found = Interface.from_dict(json.loads(to_json(describe(factory, env).to_dict())))
    assert found.adapter.spec == env.spec
    assert describe(factory, LastActionReward(factory).make(1)) == found  # without the two parts


@pytest.mark.parametrize("name", ["catch", "catch-pixels", "recall", "pong"])
def test_of_environments_that_are_not_gymnasium_s(name: str) -> None:
    if name == "pong":
        pytest.importorskip("ale_py", reason="the extra [atari] is not installed")
    factory = resolve(name)
    env = factory.make(1)
    found = Interface.from_dict(json.loads(to_json(describe(factory, env).to_dict())))
    assert found.adapter.spec == env.spec
    assert (found.preset is not None) == (name == "pong")
    seen = env.reset(0)[0]
    np.testing.assert_array_equal(found.adapter.obs(seen, {}), seen)


def test_a_stack_as_long_as_a_side_stays_first() -> None:
    pytest.importorskip("ale_py", reason="the extra [atari] is not installed")
    factory = Atari("pong", replace(PAAC, size=16, stack=16))
    env = factory.make(1)
    seen = env.reset(0)[0]
    np.testing.assert_array_equal(describe(factory, env).adapter.obs(seen, {}), seen)
    assert (seen[-1] != seen[:, :, -1]).any()  # the order of axes matters


def test_other_keys_and_later_formats_are_refused() -> None:
    odd = Interface("mine", spaces.Dict([((1, 2), spaces.Discrete(2))]), spaces.Discrete(2))
    with pytest.raises(UnsupportedSpace, match=r"mine: the key \(1, 2\) of its observation_space must be text"):
        odd.to_dict()
    later = {**Interface("mine", spaces.Discrete(2), spaces.Discrete(2)).to_dict(), "format": 9}
    with pytest.raises(UserError, match="format 9: written by a later version"):
        Interface.from_dict(later)
