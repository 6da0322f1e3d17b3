"""Curves over virtual time, worked out by hand; and their picture."""

from __future__ import annotations

from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
import torch

from gossamer.exchange.gossip.records import Traffic
from gossamer.launch.simulation import Simulation
from gossamer.tools.simulate import simulate
from gossamer.tools.simulate.gossip.curves import Curves, curves, cut_distance, reached
from gossamer.tools.simulate.gossip.figures import panels_of
from gossamer.tools.simulate.gossip.members import Iteration
from gossamer.tools.simulate.gossip.scenario import GossipScenario
from gossamer.tools.simulate.ledger import Ledger
from gossamer.tools.simulate.picture import draw


def iteration(start: float, worked: float, end: float, point: tuple[float, float], *kept: Traffic) -> Iteration:
    return Iteration(int(end), start, worked, end, torch.tensor(point), kept)


def two_members() -> Ledger:
    """Member a computes all the time; b computes 1 s of each 2, and ends after 4 s."""
    ledger = Ledger(2, 8, Simulation())
    for k in range(8):
        ledger.report("a", iteration(k, 1.0, k + 1, (3.0, 4.0), Traffic(1, 1, 0)))
    for k in (0, 2):
        ledger.report("b", iteration(k, 1.0, k + 2, (3.0, 2.0), Traffic(1, 1, 2, staleness={1: 1, 5: 1})))
    return ledger


def test_curves() -> None:
    # 8 iterations: 4 intervals of 2 s. In the first two, a computes 2 s of 2 and b 1 s of 2: 3/4; then a is alone.
    found = curves(two_members())
    assert found.seconds.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert found.efficiency.tolist() == pytest.approx([0.75, 0.75, 1.0, 1.0])
    # The mean is (3, 3), of norm sqrt(18); both members are 1 away from it. One member alone has no distance.
    assert found.distance[:2].tolist() == pytest.approx([18**-0.5] * 2)
    assert np.isnan(found.distance[2:]).all()
    # b averages messages that are 1 and 5 iterations behind at 2 s and at 4 s, the ends of the first two intervals.
    assert found.staleness_mean[:2].tolist() == [3.0, 3.0]
    assert found.staleness_max[:2].tolist() == [5.0, 5.0]
    assert np.isnan(found.staleness_max[2:]).all()


def test_members_that_have_ended_count_where_a_distance_is_reached() -> None:
    ledger, message = Ledger(3, 8, Simulation()), Traffic(1, sent=2, sent_whole=1)
    for k in range(8):
        ledger.report("a", iteration(k, 1.0, k + 1, (3.0, 4.0), message))
        ledger.report("b", iteration(k, 1.0, k + 1, (3.0, 4.0 if k >= 4 else 0.0), message))
    for k in range(2):
        ledger.report("c", iteration(k, 1.0, k + 1, (3.0, 1.0), message))
    # From 5 s on, a and b are at the same place, and c ended 2 away from the mean (3, 3), whose norm is sqrt(18)
    assert reached(ledger, 0.4) is None
    there = reached(ledger, 0.5)
    assert there is not None
    assert there.seconds == pytest.approx(5.0, abs=0.03)
    assert (there.sent, there.whole) == ((5 + 5 + 2) * 2 / 3, (5 + 5 + 2) / 3)


def test_the_program_ends_with_the_last_iteration_of_the_last_member() -> None:
    ledger = two_members()
    assert not ledger.stopping()  # b is at iteration 4 of 8
    ledger.report("b", iteration(7, 1.0, 8, (3.0, 2.0)))
    assert ledger.stopping()


def test_a_member_that_comes_back_when_all_is_done_has_reached_the_end() -> None:
    ledger = two_members()
    ledger.ended("carry[0]")  # makes no progress
    assert not ledger.stopping()
    ledger.ended("b")
    assert ledger.stopping()


def test_totals() -> None:
    ledger = two_members()
    assert ledger.totals.counts == {"iterations": 10, "sent": 10, "averaged": 4}
    assert ledger.totals.seconds == {"compute": 10.0}
    assert ledger.totals.lag == {1: 2, 5: 2}
    assert cut_distance(ledger) is None  # no cut


@pytest.mark.parametrize("crashes", [[], [(1.5, "host0")], [(1.0, "host0")] * 1000])
def test_a_picture(tmp_path: Path, crashes: list[tuple[float, str]]) -> None:
    path = tmp_path / "curves.png"
    path.write_bytes(b"an old one")
    draw(path, "a title", panels_of(curves(two_members()), GossipScenario(), crashes))
    picture = imageio.imread(path)
    assert picture.shape[1] > 1200
    assert picture[..., :3].std() > 5  # something is on it
    assert [file.name for file in tmp_path.iterdir()] == ["curves.png"]


def test_a_picture_where_nothing_is_known(tmp_path: Path) -> None:
    nothing = np.full(3, np.nan)
    unknown = Curves(np.arange(1.0, 4.0), nothing, nothing, nothing, nothing)
    draw(tmp_path / "curves.png", "a title", panels_of(unknown, GossipScenario(), []))
    assert (tmp_path / "curves.png").exists()


def test_simulate_draws(tmp_path: Path) -> None:
    simulate(members=2, learners=1, iterations=6, plot=tmp_path / "curves.png")
    assert imageio.imread(tmp_path / "curves.png").shape[1] > 1200
