"""Continuous actions out of range: clipped, squashed, or passed on."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from gossamer.envs.base import UnsupportedSpace
from gossamer.envs.gym import Custom, Gym
from gossamer.spaces import Bounds, Box

LN_3 = math.log(3)  # tanh(ln 3) = (3 - 1/3) / (3 + 1/3) = 0.8


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ("clip", [[1.0, LN_3], [-2.0, 0.0], [2.0, 4.0]]),
        # low + (high - low) (tanh(u) + 1) / 2: in [-2, 2] twice tanh(u), in [0, 4] twice tanh(u) + 2
        ("squash", [[2 * math.tanh(1), 3.6], [-1.6, 0.4], [2.0, 4.0]]),
        ("none", [[1.0, LN_3], [-LN_3 * 9, -LN_3], [50.0, 50.0]]),
    ],
)
def test_actions_out_of_range(bounds: Bounds, expected: list[list[float]]) -> None:
    drawn = np.array([[1.0, LN_3], [-LN_3 * (1 if bounds == "squash" else 9), -LN_3], [50.0, 50.0]], np.float32)
    np.testing.assert_allclose(Box((-2.0, 0.0), (2.0, 4.0), bounds).to_env(drawn), expected, rtol=1e-6)


@pytest.mark.parametrize("bounds", ["clip", "squash"])
def test_bounds_are_kept_exactly(bounds: Bounds) -> None:
    # The float32 next to -0.1 and to 0.3 lie outside of [-0.1, 0.3]
    assert float(np.float32(-0.1)) < -0.1
    assert float(np.float32(0.3)) > 0.3
    found = Box((-0.1,), (0.3,), bounds).to_env(np.array([[-100.0], [100.0]], np.float32))
    assert found.tolist() == [[-0.1], [0.3]]


@pytest.mark.parametrize("bounds", ["clip", "squash", "none"])
def test_random_actions_are_uniform_for_the_environment(bounds: Bounds) -> None:
    box = Box((-2.0, 0.0), (2.0, 4.0), bounds)
    found = box.to_env(box.random(np.random.default_rng(0), 40_000))
    # a uniform number in an interval of length 4: deviation 4 / sqrt(12) = 1.155; standard error of the mean 0.006
    np.testing.assert_allclose(found.mean(0), [0.0, 2.0], atol=0.03)
    np.testing.assert_allclose(found.std(0), 4 / math.sqrt(12), atol=0.02)
    assert (found >= [-2, 0]).all()
    assert (found <= [2, 4]).all()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("bounds", "expected"), [("clip", [-1.0, 2.0, 0.5, 2.0]), ("squash", [math.tanh(-3), 2 * math.tanh(3), None, 2.0])]
)
def test_the_environment_gets_them(
    bounds: Bounds, expected: list[float | None], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "envs"))
    env = Custom("some_envs:box", bounds=bounds).make(2, workers=workers)  # float64 [2, 2]: [-1, 1], [-2, 2] by column
    env.reset(seed=0)
    drawn = np.array([[-3.0, 3.0, 0.5, 99.0]] * 2, np.float32)
    wanted = [math.tanh(0.5) if number is None else number for number in expected]
    np.testing.assert_allclose(env.step(drawn).obs, [wanted] * 2, rtol=1e-6)
    env.close()


def test_actions_pass_on_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "envs"))
    env = Custom("some_envs:box", bounds="none").make(1)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"step\(\) raised AssertionError: array\(\[\[-3\."):
        env.step(np.array([[-3.0, 0.0, 0.0, 0.0]], np.float32))


def test_bounds_must_be_finite_to_be_squashed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "envs"))
    told = r"some_envs:half_open: --action-bounds squash: needs finite bounds, not Box\(0.0, inf, .*; use clip$"
    with pytest.raises(UnsupportedSpace, match=told):
        Custom("some_envs:half_open", bounds="squash").make(1)
    assert Gym("Pendulum-v1", bounds="squash").make(1).spec.actions == Box((-2.0,), (2.0,), "squash")
