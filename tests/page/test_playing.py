"""The agent plays with the newest checkpoint, in a process of its own, while somebody watches."""

from __future__ import annotations

import base64
import json
import threading
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest
import torch
from some_runs import trained

import gossamer
from gossamer.data import Action
from gossamer.page import player as player_module
from gossamer.page import playing
from gossamer.page.pictures import SMALL, action, observation, picture, tiled
from gossamer.page.player import Player, Players
from gossamer.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, Spec
from gossamer.spaces.observations import Layout, Part

BYTES, FLOATS = np.dtype(np.uint8), np.dtype(np.float32)


def moments(directory: Path, count: int) -> list[dict[str, Any]]:
    game = playing.play(directory)
    return [next(game)[0] for _ in range(count)]


@pytest.fixture
def _no_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "give_way", lambda: None)  # this process, which goes on with other tests


@pytest.mark.usefixtures("_no_priority")
def test_games_are_played_one_after_the_other(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    found = moments(run.directory, 20)
    assert [moment["over"] for moment in found] == ([False] * 8 + [True]) * 2 + [False] * 2  # `catch` takes 9 steps
    assert [moment["game"] for moment in found] == [1] * 9 + [2] * 9 + [3] * 2
    assert [moment["steps"] for moment in found[7:11]] == [8, 9, 1, 2]
    assert found[8]["score"] in (-1.0, 1.0)
    first = found[0]
    assert (first["trained"], first["checkpoint"]) == (80, "step_000000000080")
    assert first["screen"].startswith("data:image/png;base64,")
    (choice,) = first["action"]["choices"]
    assert first["action"]["names"] == ["left", "stay", "right"]
    assert sum(choice["probabilities"]) == pytest.approx(1, abs=1e-3)
    assert 0 <= choice["taken"] < len(choice["probabilities"]) == 3


@pytest.mark.usefixtures("_no_priority")
def test_a_newer_checkpoint_is_taken_and_none_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "LOOK_SECONDS", 0.0)
    run = trained(tmp_path / "run")
    hidden = run.directory / "checkpoints" / "hidden"
    newest = run.directory / "checkpoints" / "step_000000000080"
    newest.rename(hidden)
    game = playing.play(run.directory)
    assert next(game)[0] == {"note": playing.NONE_YET}
    hidden.rename(newest)
    assert next(game)[0]["trained"] == 80
    newest.rename(hidden)  # the run has removed it: what is loaded plays on
    assert next(game)[0]["trained"] == 80
    hidden.rename(newest)
    gossamer.resume(run.directory, steps=160)
    assert next(game)[0]["trained"] == 160


@pytest.mark.usefixtures("_no_priority")
def test_another_run_in_its_place_is_played_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "LOOK_SECONDS", 0.0)
    game = playing.play(trained(tmp_path / "run").directory)
    assert len(next(game)[0]["action"]["names"]) == 3  # of catch
    trained(tmp_path / "run", env="recall", overwrite=True)
    shown = next(game)[0]
    assert (shown["trained"], len(shown["action"]["choices"][0]["probabilities"])) == (80, 2)


@pytest.mark.usefixtures("_no_priority")
def test_a_checkpoint_outside_of_the_run_is_refused(tmp_path: Path) -> None:
    run, other = trained(tmp_path / "run"), trained(tmp_path / "other", seed=2)
    (run.directory / "checkpoints").rename(run.directory / "old")
    (run.directory / "checkpoints").symlink_to(other.directory / "checkpoints")
    with pytest.raises(ValueError, match="leads out of the run directory"):
        moments(run.directory, 1)


def wait_for(player: Player, changed: threading.Condition, *names: str) -> dict[str, Any]:
    with changed:
        assert changed.wait_for(lambda: any(name in player.moment for name in names), timeout=300), player.moment
        return player.moment


def test_a_process_plays_for_all_watchers_and_ends_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player_module, "LINGER_SECONDS", 0.05)
    run, changed = trained(tmp_path / "run"), threading.Condition()
    players = Players(changed)
    with players.watched(run.directory) as player:
        assert "starting" in player.moment["note"]
        with players.watched(run.directory) as same:
            assert same is player
        assert wait_for(player, changed, "action", "error")["trained"] == 80
        time.sleep(0.2)
        assert player.running  # one still watches
    deadline = time.monotonic() + 20
    while player.running and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not player.running


def test_what_is_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    run, changed = trained(tmp_path / "run"), threading.Condition()
    config = json.loads((run.directory / "config.json").read_text())
    config["env"]["name"] = "no_such_module:make"
    (run.directory / "config.json").write_text(json.dumps(config))
    players = Players(changed)
    with players.watched(run.directory) as player:
        told = wait_for(player, changed, "error")["error"]
        assert "no_such_module" in told
        assert "\n" not in told
    players.close()


def test_pictures_are_exact_if_small() -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    kind, _, content = picture(pixels).partition(",")
    assert kind == "data:image/png;base64"
    assert np.array_equal(imageio.imread(BytesIO(base64.b64decode(content))), pixels)
    large = np.zeros((SMALL // 200 + 1, 200, 3), np.uint8)
    assert picture(large).startswith("data:image/jpeg;base64,")


def test_stacked_frames_lie_side_by_side() -> None:
    frames = np.stack([np.full((2, 3), 10 * i, np.uint8) for i in range(4)])
    assert tiled(frames).tolist() == [[0] * 3 + [10] * 3 + [20] * 3 + [30] * 3] * 2
    assert tiled(np.zeros((3, 5, 6), np.uint8)).shape == (5, 6, 3)  # colours
    assert tiled(np.array([[[0.0, 0.5, 1.0]]], np.float32)).tolist() == [[0, 128, 255]]
    assert tiled(np.array([[[-1.0, 0.0, 1.0]]], np.float32)).tolist() == [[0, 128, 255]]


def test_parts_of_an_observation_but_not_its_mask() -> None:
    layout = Layout((Part("see", (1, 2, 2), BYTES), Part("feel", (3,), FLOATS), Part("action_mask", (2,), BYTES)))
    packed = layout.pack(
        {
            "see": np.zeros((1, 1, 2, 2), np.uint8),
            "feel": np.array([[0.5, -1, 2]], np.float32),
            "action_mask": np.ones((1, 2), np.uint8),
        }
    )
    spec = Spec((layout.size,), BYTES, Discrete(2), layout=layout)
    see, feel = observation(spec, packed[0])
    assert (see["name"], see["shape"]) == ("see", [1, 2, 2])
    assert see["picture"].startswith("data:image/png")
    assert feel == {"name": "feel", "shape": [3], "numbers": [0.5, -1.0, 2.0]}


def done(space: Space, parameters: list[float], taken: Any) -> dict[str, Any]:
    spec = Spec((1,), FLOATS, space)
    answer = Action(torch.tensor([taken]), torch.zeros(1), torch.tensor([parameters]), torch.zeros(1))
    return action(spec, answer)


def test_every_kind_of_action_is_told() -> None:
    """With logits 0 and ln 3 the probabilities are 1/4 and 3/4."""
    ln3 = float(np.log(3))
    quarter = {"probabilities": [0.25, 0.75], "taken": 1}
    assert done(Discrete(2), [0.0, ln3], 1) == {"choices": [quarter], "names": []}
    third = {"probabilities": [0.3333, 0.3333, 0.3333], "taken": 0}
    assert done(MultiDiscrete((2, 3)), [0.0, ln3, 1.0, 1.0, 1.0], [1, 0])["choices"] == [quarter, third]
    assert done(MultiBinary(1), [ln3], [1])["choices"] == [quarter]
    numbers = done(Box((-1.0, -1.0), (1.0, 1.0)), [0.5, 0.0, 0.0, ln3], [0.25, -2.0])
    assert numbers == {"mean": [0.5, 0.0], "std": [1.0, 3.0], "drawn": [0.25, -2.0]}
