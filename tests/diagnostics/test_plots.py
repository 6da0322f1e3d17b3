"""The picture is drawn of whatever there is, and is there whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import pytest
from matplotlib.figure import Figure

from gossamer.diagnostics import plots
from gossamer.diagnostics.plots import draw


def window(steps: int, **figures: float | None) -> dict[str, Any]:
    known = {"distance": 1.0, "distance_rms": 0.5, "bound": 3.0, "tightness": 1 / 3, "kl": 0.01, "kl_max": 0.02}
    cosines = {"gradient_cosine_neighbours": 0.1, "gradient_cosine_others": None}
    return {"steps": steps, "members": 3, **known, **cosines, **figures}


NOTHING: dict[str, Any] = {"staleness": {}, "ages": {}}
LITTLE = {"staleness": {"0": 3, "2": 1}, "ages": {"-3": 1, "11": 2}}
MUCH = {"staleness": {str(k): 1 for k in range(-300, 300)}, "ages": {"0": 1}}


@pytest.mark.parametrize(
    ("windows", "traffic"),
    [
        ([], NOTHING),
        ([], LITTLE),
        ([window(10)], NOTHING),
        ([window(10), window(20, kl=None, kl_max=None)], MUCH),
        ([window(10, distance=0.0, distance_rms=0.0, bound=0.0, tightness=None, kl=0.0, kl_max=0.0)], LITTLE),
    ],
)
def test_a_picture_of_whatever_there_is(tmp_path: Path, windows: list[Any], traffic: dict[str, Any]) -> None:
    draw({"windows": windows, "traffic": traffic}, tmp_path / "gossip.png")
    picture = imageio.imread(tmp_path / "gossip.png")
    assert picture.shape[0] > 700
    assert picture.shape[1] > 1200
    assert picture[..., :3].std() > 5  # something is on it
    assert [path.name for path in tmp_path.iterdir()] == ["gossip.png"]


def test_the_title_says_how_exact_the_distances_are() -> None:
    projection = {"dimensions": 4096, "standard_error": 0.0114, "measured_error": None}
    assert plots._title({"windows": [], "projection": projection}) == "no observation window was completed"
    found = plots._title({"windows": [window(10)], "projection": projection})
    assert found == "3 members, 1 observation window; distances from 4,096 random projections (error 1.1%)"
    projection["measured_error"] = 0.0093
    found = plots._title({"windows": [window(10)] * 2, "projection": projection})
    assert found.endswith("from 4,096 random projections (error 1.1%, measured 0.9%)")
    exact = {**projection, "standard_error": 0.0}
    assert plots._title({"windows": [window(10)], "projection": exact}) == "3 members, 1 observation window"
    assert plots._title({"windows": [window(10)]}) == "3 members, 1 observation window"  # written before 0.2


def bars(traffic: dict[str, int]) -> dict[str, float]:
    """Labelled bars of the histogram of staleness: where they begin -> percent."""
    axes = Figure().add_subplot()
    plots._staleness(axes, traffic)
    heights = [patch.get_height() for patch in axes.patches]  # type: ignore[attr-defined]
    return {label.get_text(): heights[int(label.get_position()[0])] for label in axes.get_xticklabels()}


def test_staleness_has_a_bar_for_each_iteration_while_these_are_few() -> None:
    assert bars({"-1": 1, "0": 4, "2": 5}) == {"-1": 10.0, "0": 40.0, "1": 0.0, "2": 50.0}


def test_staleness_has_wider_bars_where_there_are_many() -> None:
    # -50 to 49 are 100 iterations, in bars of 3: from -51 with 2 of them, and one from 0
    found = bars({str(k): 1 for k in range(-50, 50)})
    assert found["-51"] == 2.0
    assert all(int(first) % 3 == 0 for first in found)


@pytest.mark.parametrize(("milliseconds", "text"), [(0.25, "250µs"), (1, "1ms"), (512, "512ms"), (4096, "4s")])
def test_times_are_short(milliseconds: float, text: str) -> None:
    assert plots._time(milliseconds) == text


def test_a_picture_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(figure: Figure, path: Path, **_: object) -> None:
        path.write_bytes(b"half a picture")
        raise OSError("no ink left")

    (tmp_path / "gossip.png").write_bytes(b"the old one")
    monkeypatch.setattr(Figure, "savefig", fails)
    with pytest.raises(OSError, match="no ink"):
        draw({"windows": [], "traffic": NOTHING}, tmp_path / "gossip.png")
    assert (tmp_path / "gossip.png").read_bytes() == b"the old one"
    assert len(list(tmp_path.iterdir())) == 1
