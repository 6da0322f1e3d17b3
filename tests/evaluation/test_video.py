"""A film has a picture for every step, and is there whole or not at all."""

from __future__ import annotations

import gc
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import pytest
from some_runs import fill, trained

import gossamer
from gossamer.evaluation import video
from gossamer.system.errors import UserError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return trained(tmp_path / "run").directory


def pictures(path: Path) -> list[np.ndarray]:
    with imageio.get_reader(path) as reader:
        return [np.asarray(picture) for picture in reader]


def test_a_film_of_a_game(run: Path) -> None:
    film = gossamer.record(run)
    assert film.path == run / "video.mp4"
    assert film.steps == 9
    assert film.score in (-1.0, 1.0)
    shown = pictures(film.path)
    assert len(shown) == 9  # what each decision was made on
    # Catch's board is 160 x 80: enlarged by 3, to the first multiple of 400 lines or more
    assert {picture.shape[:2] for picture in shown} == {(480, 240)}


def test_the_ball_falls(run: Path) -> None:
    film = gossamer.record(run, out=run / "short.gif", max_steps=4)
    assert (film.path, film.steps, film.score) == (run / "short.gif", 4, 0.0)
    with imageio.get_reader(film.path) as reader:
        assert reader.get_meta_data()["duration"] == pytest.approx(1000 / 15, abs=10)  # GIF counts hundredths
    bright = [np.flatnonzero(picture[:400, :, 0].max(1) > 128) // 48 for picture in pictures(film.path)]
    assert [set(rows.tolist()) for rows in bright] == [{0}, {1}, {2}, {3}, {4}]  # 48 lines to a row; not the paddle's


def test_a_film_of_several_games(run: Path) -> None:
    film = gossamer.record(run, episodes=3)
    assert (film.steps, len(film.scores), film.score) == (27, 3, sum(film.scores) / 3)
    assert set(film.scores) <= {-1.0, 1.0}
    assert len(pictures(film.path)) == 27
    cut = gossamer.record(run, episodes=3, max_steps=12)
    assert (cut.steps, cut.scores) == (12, (film.scores[0], 0.0))  # the second one after three of its steps
    assert (film.cut_off, cut.cut_off) == (0, 3)
    assert gossamer.record(run, episodes=3, max_steps=9).scores == film.scores[:1]


@pytest.mark.parametrize(
    ("given", "message"),
    [({"episodes": 0}, "--episodes 0: must be at least 1"), ({"epsilon": 0.1}, "--epsilon 0.1: A2C has no epsilon")],
)
def test_games_that_cannot_be_filmed(run: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        gossamer.record(run, **given)


def test_a_seed_decides_the_game(run: Path) -> None:
    def film(seed: int) -> bytes:
        return gossamer.record(run, out=run / "a.gif", seed=seed).path.read_bytes()

    assert film(1) == film(1)
    assert any(film(1) != film(seed) for seed in (2, 3, 4))


def test_pixels_are_repeated_and_sides_even() -> None:
    frame = np.arange(3 * 5 * 3, dtype=np.uint8).reshape(3, 5, 3)
    large = video._enlarged(frame)
    assert large.shape == (402, 670, 3)  # by 134, the first that makes 3 lines 400 or more
    np.testing.assert_array_equal(large[::134, ::134], frame)
    assert video._enlarged(np.zeros((401, 401, 3), np.uint8)).shape == (400, 400, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"out": "film.avi"}, r"--out film\.avi: must end in \.mp4 or \.gif"),
        ({"out": "nowhere/film.mp4"}, r"--out nowhere/film\.mp4: there is no directory nowhere"),
        ({"max_steps": 0}, "--max-steps 0: must be at least 1"),
        ({"seed": -1}, "--seed -1: must be at least 0"),
        ({"checkpoint": "first"}, "no checkpoint 'first'"),
    ],
)
def test_what_cannot_be_is_refused(run: Path, given: dict[str, Any], message: str) -> None:
    before = sorted(run.rglob("*"))
    with pytest.raises(UserError, match=message):
        gossamer.record(run, **given)
    assert sorted(run.rglob("*")) == before


@pytest.mark.skipif(find_spec("pygame") is None, reason="the extra [gym] is not installed")
def test_a_gymnasium_environment_is_filmed(tmp_path: Path) -> None:
    film = gossamer.record(trained(tmp_path / "run", env="CartPole-v1").directory, max_steps=3)
    assert (film.steps, film.score) == (3, 3.0)
    assert [picture.shape for picture in pictures(film.path)] == [(400, 600, 3)] * 4


OWN = """
import gymnasium, numpy as np
class Own(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}
class Grey(Own):
    render_mode = "rgb_array"
    def render(self):
        return np.zeros((4, 4))
class Grows(Own):
    render_mode, height = "rgb_array", 4
    def render(self):
        self.height += 2
        return np.zeros((self.height, 4, 3), np.uint8)
class Forgets(Own):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}
    def __init__(self, render_mode=None):
        pass
if "Forgets-v0" not in gymnasium.registry:
    gymnasium.register("Forgets-v0", "own:Forgets")
"""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Grows", r"^--env own:Grows: .* changed the size of its pictures from \(6, 4, 3\) to \(8, 4, 3\): a video"),
        ("Own", r"--env own:Own: cannot be filmed: accept render_mode, .* as in examples/own_environment.py"),
        ("Forgets-v0", r"^--env own:Forgets-v0: cannot be filmed: accept render_mode, store it as self.render_mode"),
        (
            "Grey",
            r"render\(\) must return a uint8 array \[height, width, 3\], not an array of float64 with shape \(4, 4\)",
        ),
    ],
)
def test_what_cannot_be_filmed_is_refused(
    name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    run = trained(tmp_path / "run", env=f"own:{name}").directory
    with pytest.raises(UserError, match=told):
        gossamer.record(run)
    assert not (run / "video.mp4").exists()


@pytest.mark.parametrize("name", ["video.mp4", "video.gif"])
def test_a_film_that_fails_leaves_nothing(run: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = iter(range(3))

    def breaks(picture: np.ndarray) -> np.ndarray:
        if next(pictures) == 2:
            raise OSError("no coal left")
        return picture

    (run / name).write_bytes(b"the film of yesterday")
    monkeypatch.setattr(video, "_enlarged", breaks)
    before = sorted(run.rglob("*"))
    with pytest.raises(OSError, match="no coal"):
        gossamer.record(run, out=run / name)
    assert sorted(run.rglob("*")) == before
    assert (run / name).read_bytes() == b"the film of yesterday"


@pytest.mark.parametrize("name", ["video.mp4", "video.gif"])
def test_a_full_disk_leaves_no_film(run: Path, small_disk: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    fill(small_disk / "other")
    with pytest.raises(OSError, match=r"[Nn]o space left on device"):
        gossamer.record(run, out=small_disk / name)
    assert [path.name for path in small_disk.iterdir()] == ["other"]
    gc.collect()  # writers that are deleted have nothing to say
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("shape", [(4, 3000), (1, 50), (4, 40)])
def test_a_flat_picture_does_not_become_too_wide(shape: tuple[int, int]) -> None:
    height, width, _ = video._enlarged(np.zeros((*shape, 3), np.uint8)).shape
    assert height >= 2
    assert width <= max(video.MAX_WIDTH, shape[1])
