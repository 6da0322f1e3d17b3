"""The consensus takes records in any order between members, measures whole windows, and says what it could not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from some_gossip import Ring, windows

from gossamer.diagnostics import consensus as module
from gossamer.diagnostics.bound import consensus_distance
from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.exchange.gossip.projection import standard_error
from gossamer.exchange.gossip.records import Cut, InTransit, PolicyOutputs, Record, Tracked, Traffic
from gossamer.spaces import Discrete

VECTOR = torch.zeros(8)  # of parameters
SIZE = len(VECTOR)


class When:
    """The run's steps and seconds, as the test has them."""

    def __init__(self) -> None:
        self.steps, self.seconds = 0, 0.0

    def __call__(self) -> tuple[int, float]:
        return self.steps, self.seconds


def coin(heads: float) -> PolicyOutputs:
    """A policy that answers every observation with a toss of this coin."""
    return PolicyOutputs(
        np.arange(3, dtype=np.uint32), torch.tensor([heads, 1 - heads]).log().expand(3, 2), Discrete(2)
    )


def window(epoch: int, members: int = 2, move: float = 0.0) -> list[tuple[str, Record]]:
    """All members begin as one; the first then moves by so much in one direction."""
    records: list[tuple[str, Record]] = []
    for member in range(members):
        k = 10 * epoch
        vector = VECTOR.clone()
        vector[0] += move * (member == 0)
        gradient = torch.ones_like(vector) * (1 if member == 0 else -1)
        moved = move * (member == 0)
        everybody = tuple(range(members))
        made: list[Record] = [
            Cut(epoch, member, k, everybody, SIZE, VECTOR),
            Tracked(epoch, member, k + 1, ((member, k, 1.0),), moved),
            Cut(epoch + 1, member, k + 1, everybody, SIZE, vector, gradient, moved, coin(0.75 if moved else 0.5)),
        ]
        records += [(f"act_and_learn[{member}]", record) for record in made]
    return records


def give(consensus: ConsensusMonitor, records: list[tuple[str, Record]]) -> None:
    for worker, record in records:
        consensus.take(worker, record)


def test_a_window() -> None:
    when = When()
    when.steps, when.seconds = 1000, 7.5
    consensus = ConsensusMonitor(when=when)
    give(consensus, window(4, move=3.0))
    consensus.close()
    (found,) = consensus.windows
    assert (found["epoch"], found["members"], found["iteration"]) == (4, 2, 41)
    assert (found["steps"], found["seconds"]) == (1000, 7.5)
    assert (found["opened"], found["opened_rms"]) == (0.0, 0.0)
    assert found["distance"] == pytest.approx(1.5)  # two members 3 apart
    assert found["bound"] == pytest.approx(1.5)
    assert found["tightness"] == pytest.approx(1.0)
    assert found["gradient_cosine"] == pytest.approx(-1.0)
    assert found["gradient_cosine_neighbours"] == pytest.approx(-1.0)
    assert found["gradient_cosine_others"] is None
    # Coins of 3/4 and 1/2: KL is 3/4 ln(3/2) + 1/4 ln(1/2) one way and 1/2 ln(2/3) + 1/2 ln 2 the other
    there, back = 0.75 * np.log(1.5) + 0.25 * np.log(0.5), 0.5 * np.log(2 / 3) + 0.5 * np.log(2)
    assert found["kl"] == pytest.approx((there + back) / 2, abs=1e-7)
    assert found["kl_max"] == pytest.approx(back, abs=1e-7)
    assert found["kl_observations"] == 3
    assert (found["standard_error"], found["projection_error"]) == (0.0, pytest.approx(0.0, abs=1e-12))
    assert (consensus.incomplete, consensus.late) == (0, 0)


def test_policies_that_are_equal_have_no_divergence() -> None:
    consensus = ConsensusMonitor()
    give(consensus, window(0, members=3))
    consensus.close()
    (found,) = consensus.windows
    assert found["kl"] == pytest.approx(0.0, abs=1e-12)
    assert found["kl_max"] == pytest.approx(0.0, abs=1e-12)
    assert found["tightness"] is None  # 0 of at most 0


def test_a_member_without_a_policy_leaves_the_divergence_open() -> None:
    consensus = ConsensusMonitor()
    give(consensus, window(0, move=1.0))
    silent = [(w, replace(r, policy=None) if isinstance(r, Cut) and r.member else r) for w, r in window(2, move=1.0)]
    give(consensus, silent)
    consensus.close()
    assert [found["kl"] is None for found in consensus.windows] == [False, True]
    assert consensus.row()["gossip/kl"] == consensus.windows[0]["kl"]  # the last that is known


def test_the_error_of_projections_is_stated_and_measured() -> None:
    consensus = ConsensusMonitor()
    for epoch, true in ((0, 3.0), (2, 4.0)):  # the projected change is 3
        records = window(epoch, move=3.0)
        give(
            consensus,
            [(w, replace(r, size=10**6, moved=r.moved and true) if isinstance(r, Cut) else r) for w, r in records],
        )
    consensus.close()
    found = consensus.to_dict()
    assert [each["projection_error"] for each in found["windows"]] == pytest.approx([0.0, 0.25])
    assert found["projection"] == {
        "dimensions": 4096,
        "standard_error": standard_error(10**6),
        "measured_error": pytest.approx((0.25**2 / 2) ** 0.5),
        "margin": 4.0,
    }
    assert consensus.row()["gossip/projection_error"] == pytest.approx(0.25)


def test_what_it_costs_is_stated() -> None:
    consensus = ConsensusMonitor()
    consensus.take("a", Traffic(cpu=6.0, cpu_diagnostics=0.25))
    consensus.take("b", Traffic(cpu=4.0, cpu_diagnostics=0.25))
    assert consensus.to_dict()["cost"] == {
        "members": 10.0,
        "members_diagnostics": 0.5,
        "driver_diagnostics": 0.0,
        "share": 0.05,
    }
    give(consensus, window(0))
    consensus.close()
    cost = consensus.to_dict()["cost"]
    assert cost["driver_diagnostics"] > 0
    assert cost["share"] == pytest.approx((0.5 + cost["driver_diagnostics"]) / (10.0 + cost["driver_diagnostics"]))


@settings(deadline=None, max_examples=40)
@given(members=st.integers(1, 4), seed=st.integers(0, 2**32 - 1), order=st.randoms(use_true_random=False))
def test_records_of_members_may_come_in_any_order(members: int, seed: int, order: Any) -> None:
    ring = Ring(members, seed)
    ring.run(60)
    ring.settle()
    consensus = ConsensusMonitor()
    expected = [consensus_distance(each).bound for each in windows(ring)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WAITING", 100)
        patch.setattr(module, "OPEN", 100)
        left = {f"m[{m.rank}]": iter(m.records) for m in ring.members}
        while left:
            worker = order.choice(sorted(left))
            record = next(left[worker], None)
            if record is None:
                del left[worker]
            else:
                consensus.take(worker, record)
        consensus.close()
    found = sorted(consensus.windows, key=lambda each: each["epoch"])
    assert [each["bound"] for each in found] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert consensus.incomplete == consensus.late == 0


def without(records: list[tuple[str, Record]], kind: type, member: int) -> Iterator[tuple[str, Record]]:
    return (each for each in records if not (isinstance(each[1], kind) and each[1].member == member))  # type: ignore[attr-defined]


def test_windows_that_cannot_be_measured_are_counted() -> None:
    consensus = ConsensusMonitor()
    lost = list(without(window(0), Tracked, 1))  # where member 1 came to is not known
    strange = [(w, replace(r, members=(0, 1, 2)) if isinstance(r, Cut) and r.member else r) for w, r in window(2)]
    twice = [each for each in window(4) for _ in range(2)]
    for records in (lost, strange, twice, window(6)):
        give(consensus, records)
    consensus.close()
    assert [found["epoch"] for found in consensus.windows] == [6]
    assert consensus.incomplete == 3


def test_a_window_that_a_member_never_delivers_is_let_go() -> None:
    consensus = ConsensusMonitor()
    give(consensus, list(without(window(0), Cut, 1)))
    for epoch in range(2, 2 * module.OPEN, 2):
        give(consensus, window(epoch)[:3])
    assert (consensus.incomplete, set(consensus._open)) == (0, {0, 2, 4, 6})
    give(consensus, window(8)[:3])
    assert (consensus.incomplete, set(consensus._open)) == (1, {2, 4, 6, 8})
    give(consensus, window(0)[3:])  # too late
    assert (consensus.incomplete, set(consensus._open)) == (1, {2, 4, 6, 8})
    give(consensus, window(4)[3:])
    consensus.close()
    assert [found["epoch"] for found in consensus.windows] == [4]


def test_what_arrives_after_its_window_was_measured_is_ignored() -> None:
    consensus = ConsensusMonitor()
    give(consensus, window(0))
    consensus.take("act_and_learn[0]", InTransit(1, 1, 1, VECTOR))
    consensus.take("act_and_learn[0]", InTransit(0, 1, 1, VECTOR))
    consensus.close()
    assert len(consensus.windows) == 1
    assert consensus._open == {}


def test_the_oldest_of_too_many_windows_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, go_on, figures = threading.Event(), threading.Event(), module._figures

    def slow(window: Any) -> dict[str, Any]:
        busy.set()
        go_on.wait()
        return figures(window)

    monkeypatch.setattr(module, "_figures", slow)
    consensus = ConsensusMonitor()
    give(consensus, window(0))
    busy.wait()
    for epoch in (2, 4, 6):  # two may wait
        give(consensus, window(epoch))
    go_on.set()
    consensus.close()
    assert [found["epoch"] for found in consensus.windows] == [0, 4, 6]
    assert consensus.late == 1


def test_old_windows_are_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 6)
    monkeypatch.setattr(module, "WAITING", 10)
    consensus = ConsensusMonitor()
    for epoch in range(0, 18, 2):
        give(consensus, window(epoch))
    consensus.close()
    # The seventh, 12: of 0 2 4 6, 0 and 4 stay. The next, 14: there are six again. The ninth: of 0 4 8 10, 0 and 8 stay
    assert [found["epoch"] for found in consensus.windows] == [0, 8, 12, 14, 16]


def test_what_goes_wrong_in_evaluating_surfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(window: Any) -> dict[str, Any]:
        raise RuntimeError("no such figure")

    monkeypatch.setattr(module, "_figures", broken)
    consensus = ConsensusMonitor()
    give(consensus, window(0))
    consensus._thread.join()
    with pytest.raises(RuntimeError, match="no such figure"):
        give(consensus, window(2))
    with pytest.raises(RuntimeError, match="no such figure"):
        consensus.close()


def test_what_waits_is_left_where_something_else_went_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, go_on, figures = threading.Event(), threading.Event(), module._figures

    def slow(window: Any) -> dict[str, Any]:
        busy.set()
        go_on.wait()
        return figures(window)

    monkeypatch.setattr(module, "_figures", slow)
    consensus = ConsensusMonitor()
    for epoch in (0, 2):
        give(consensus, window(epoch))
        busy.wait()
    threading.Timer(0.05, go_on.set).start()
    consensus.abandon()
    assert [found["epoch"] for found in consensus.windows] == [0]


def test_closing_before_anything_has_come() -> None:
    consensus = ConsensusMonitor()
    consensus.close()
    assert consensus.to_dict() == consensus.row() == {}


def test_rows_have_the_traffic_since_the_last_one() -> None:
    when = When()
    consensus = ConsensusMonitor(when=when)
    when.seconds = 10.0
    # ages: 1 message of 1 to 2 ms, 3 of 4 to 8: the median's bin is the second, its middle 4 * sqrt(2) ms
    consensus.take("a", Traffic(5, 6, 3, 1, 0.5, {0: 1, 1: 2}, {0: 1}))
    consensus.take("b", Traffic(5, 6, 1, 0, 1.5, {4: 1}, {2: 3}))
    assert consensus.row() == {
        "gossip/distance": None,
        "gossip/bound": None,
        "gossip/projection_error": None,
        "gossip/kl": None,
        "gossip/kl_max": None,
        "gossip/gradient_cosine": None,
        "gossip/staleness_mean": 1.5,  # (0 + 1 + 1 + 4) / 4
        "gossip/staleness_max": 4,
        "gossip/age_ms_median": pytest.approx(4 * 2**0.5),
        "gossip/waited": 0.1,  # 2 of the 20 seconds that two members had
        "gossip/refused": 1,
        "gossip/mixed": 4,
    }
    when.seconds = 12.0
    consensus.take("a", Traffic(1, 1, 2, 0, 1.0, {4: 1, -7: 1}, {}))  # one of them by a sender that is ahead
    row = consensus.row()
    assert (row["gossip/staleness_mean"], row["gossip/mixed"], row["gossip/waited"]) == (2.0, 2, 0.25)
    assert row["gossip/age_ms_median"] is None
    assert consensus.row()["gossip/waited"] == 0.0  # no time has passed
    give(consensus, window(0, move=3.0))
    consensus.close()
    assert consensus.row()["gossip/distance"] == pytest.approx(1.5)


def test_what_is_kept_is_json_and_can_be_gone_on_from() -> None:
    when = When()
    consensus = ConsensusMonitor(when=when)
    consensus.take("a", Traffic(5, 6, 3, 1, 0.5, {10: 1, 2: 2}, {-3: 1, 12: 2}, edges={(1, 0): (3, 14)}, sent_bytes=24))
    for epoch in (0, 2):
        when.steps += 100
        give(consensus, window(epoch))
        give(consensus, list(without(window(epoch), Cut, 0)))
    consensus.close()
    kept = json.loads(json.dumps(consensus.to_dict(), allow_nan=False))
    assert kept["traffic"] == {
        "sent": 6,
        "sent_bytes": 24,
        "mixed": 3,
        "refused": 1,
        "waited": 0.5,
        "staleness": {"2": 2, "10": 1},
        "ages": {"-3": 1, "12": 2},
        "edges": [{"from": 1, "to": 0, "messages": 3, "staleness": pytest.approx(14 / 3)}],
    }
    assert list(kept["traffic"]["staleness"]) == ["2", "10"]

    again = ConsensusMonitor()
    again.load(kept, until=150)
    assert [found["steps"] for found in again.windows] == [100]
    again.take("a", Traffic(mixed=2, staleness={2: 2}, edges={(1, 0): (2, 4)}))
    assert again.totals.mixed == 5
    assert again.totals.staleness == {2: 4, 10: 1}
    assert again.totals.edges[1, 0].messages == 5
    again.close()
