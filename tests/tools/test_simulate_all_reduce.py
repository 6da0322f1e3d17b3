"""`simulate a2c`: figures that can be worked out, seeds, crashes, plots, and bad values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gossamer.system.errors import UserError
from gossamer.tools.simulate import simulate

FREE: dict[str, Any] = {"bandwidth": "inf", "latency": "0ms", "jitter": 0.0}
SMALL: dict[str, Any] = {"hosts": 4, "iterations": 12}


def test_a_seed_determines_all_figures_but_real_time() -> None:
    one, again, other = (simulate("a2c", **SMALL, crash_rate="60/h", seed=seed) for seed in (1, 1, 2))
    assert {**one, "seconds": 0} == {**again, "seconds": 0}
    assert one["updates"] != other["updates"]


@pytest.mark.parametrize("learners", [1, 2])
def test_without_a_network_s_time_each_update_takes_that_of_acting_and_computing(learners: int) -> None:
    found = simulate("a2c", **SMALL, **FREE, learners=learners)
    assert found["updates"] == pytest.approx(1 / 0.060, rel=1e-3)  # 40 ms + 20 ms
    assert found["steps"] == pytest.approx(80 * 4 * learners / 0.060, rel=1e-3)
    assert (found["acting"], found["averaging"]) == (pytest.approx(2 / 3, abs=1e-3), 0.0)
    assert found["bound_by"] == "learners"


def test_an_exchange_takes_the_time_of_its_bytes_and_round_trips() -> None:
    # Each of 4 hosts sends slices of 1 MB / 4 to 3 others and takes 3: 6 x 0.25 MB at 10 MB/s are 150 ms at least.
    # Calls one after the other: 2 x 3 with two latencies of 5 ms each are 60 ms more, some of it while links are busy.
    given = {**SMALL, "jitter": 0.0, "latency": "5ms", "bandwidth": "10MB/s", "message_size": "1MB"}
    found = simulate("a2c", **given)
    assert 0.150 < found["exchange"] < 0.240
    assert found["sent"] == pytest.approx(found["updates"] * 6 * 0.25e6, rel=1e-3)
    assert simulate("a2c", **{**given, "bandwidth": "20MB/s"})["exchange"] < found["exchange"] - 0.05


def test_crashes_change_the_group() -> None:
    found = simulate("a2c", **{**SMALL, "iterations": 200}, crash_rate="300/h", down="20s")
    assert found["crashes"] > 0
    assert found["changes"] > 0
    assert 0 < found["stopped"] < 30


def test_a_plot_is_written(tmp_path: Path) -> None:
    simulate("a2c", plot=tmp_path / "plot.png", **SMALL)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hosts": 1}, "--hosts 1: must be at least 2"),
        ({"down": "inf"}, "--down inf: must be finite"),
        ({"hosts": 4096}, "--iterations 20: 671,088,640 calls between hosts, too many"),
        ({"act_time": "0s"}, "--act-time 0 us: must be at least 1 us"),
    ],
)
def test_bad_values_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        simulate("a2c", **given)
