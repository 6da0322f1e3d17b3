"""Spaces as JSON: integers that no float is equal to."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gymnasium.spaces import Box

from gossamer.envs.interface import _decoded, _encoded


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.uint8], ids=lambda each: each.__name__)
def test_the_bounds_of_integers_are_exact(dtype: type) -> None:
    limits = np.iinfo(dtype)
    for low, high in ((limits.min, limits.max), (0, limits.max), (0, 3)):
        space = Box(low, high, (2,), dtype)
        assert _decoded(json.loads(json.dumps(_encoded("mine", space)))) == space


def test_infinite_bounds_stay_infinite() -> None:
    space = Box(np.array([-np.inf, 0]), np.array([1.5, np.inf]), dtype=np.float64)
    assert _decoded(json.loads(json.dumps(_encoded("mine", space)))) == space
