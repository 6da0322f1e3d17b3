"""Screens become what ale-py's native preprocessing makes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gossamer.data import Array
from gossamer.envs.atari import PAAC, Atari
from gossamer.envs.base import env_seeds
from gossamer.export.screens import Screens, coverage, grey, resized
from gossamer.system.errors import UserError


def test_each_wanted_pixel_is_the_mean_of_what_it_covers() -> None:
    # 3 pixels become 2: each covers one and a half
    np.testing.assert_allclose(coverage(3, 2), [[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]])
    np.testing.assert_allclose(coverage(210, 84).sum(axis=1), 1)
    picture = np.arange(36, dtype=np.uint8).reshape(6, 6)
    means = [[picture[i : i + 2, j : j + 2].mean() for j in (0, 2, 4)] for i in (0, 2, 4)]
    np.testing.assert_array_equal(resized(picture, 3, 3), np.rint(means))
    rows = [[picture[i : i + 2, j : j + 3].mean() for j in (0, 3)] for i in (0, 2, 4)]
    np.testing.assert_array_equal(resized(picture, 3, 2), np.rint(rows))


def test_a_game_begins_with_black_and_the_newest_picture_is_the_last() -> None:
    screens = Screens(replace(PAAC, size=2, stack=3))
    first, second = np.full((4, 4), 10, np.uint8), np.full((4, 4), 30, np.uint8)
    assert screens.reset(first)[:, 0, 0].tolist() == [0, 0, 10]
    assert screens.step(second, first)[:, 0, 0].tolist() == [0, 10, 30]
    assert screens.step(first, second)[:, 0, 0].tolist() == [10, 30, 30]  # the maximum of both
    assert screens.reset(first)[:, 0, 0].tolist() == [0, 0, 10]


@pytest.mark.parametrize("wrong", [np.zeros((4, 4, 3)), np.zeros((4, 4, 4), np.uint8), np.zeros(4, np.uint8)])
def test_what_is_no_screen_is_refused(wrong: Array) -> None:
    with pytest.raises(UserError, match=r"screen: .* give uint8 \[H, W, 3\]"):
        grey(wrong)


@pytest.mark.parametrize(
    ("game", "size", "width"),
    [("pong", 84, None), ("seaquest", 42, None), ("journey_escape", 84, None), ("pong", 210, None), ("pong", 42, 40)],
)
def test_equal_to_the_native_preprocessing_but_for_rounding(game: str, size: int, width: int | None) -> None:
    ale_py = pytest.importorskip("ale_py", reason="the extra [atari] is not installed")
    preset = replace(PAAC, size=size, width=width, noop_max=0)
    env, screens = Atari(game, preset).make(1, workers=1), Screens(preset)
    native = [env.reset(3)[0]]
    ale = ale_py.ALEInterface()
    ale.setLoggerMode(ale_py.LoggerMode.Error)
    ale.setInt("random_seed", env_seeds(3, 1)[0])
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    found, actions = [screens.reset(ale.getScreenRGB())], ale.getMinimalActionSet()
    for action in np.random.default_rng(0).integers(0, len(actions), 40).tolist():
        for _ in range(3):
            ale.act(actions[action])
        before = ale.getScreenRGB()
        ale.act(actions[action])
        found.append(screens.step(ale.getScreenRGB(), before))
        native.append(env.step(np.array([action])).obs[0])
    difference = np.abs(np.array(found, np.int64) - np.array(native))
    assert difference.max() <= 1
    assert (difference != 0).mean() < 1e-3
    assert (native[-1][-1] != native[0][-1]).any()  # something moved
