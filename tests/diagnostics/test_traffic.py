"""Traffic on the edges of the gossip graph."""

from __future__ import annotations

from collections import Counter

import pytest

from gossamer.diagnostics.traffic import NEWEST, Edge, Totals, staleness
from gossamer.exchange.gossip.records import Traffic


def test_few_messages_have_their_plain_mean() -> None:
    edge = Edge().after(1, 4).after(3, 0).after(4, 12)
    assert (edge.messages, edge.staleness) == (8, pytest.approx((4 + 0 + 12) / 8))


def test_an_edge_forgets_old_messages() -> None:
    edge = Edge().after(1000, 5000)
    assert edge.staleness == 5.0
    edge = edge.after(NEWEST // 2, NEWEST // 2)  # staleness 1: half of the newest messages
    assert edge.staleness == pytest.approx(3.0)
    assert edge.after(NEWEST, 0).staleness == 0.0


def test_a_sender_that_is_ahead_is_not_stale() -> None:
    assert staleness({}) == (None, None)
    assert staleness({-3: 1, 0: 1, 4: 2}) == (2.0, 4)  # (0 + 0 + 4 + 4) / 4
    assert staleness({-3: 2}) == (0.0, 0)


def test_members_that_drift_apart_have_a_histogram_that_stays_small() -> None:
    totals = Totals()
    for behind in range(-100_000, 100_001):
        totals.add(Traffic(mixed=1, staleness=Counter({behind: 1})))
    assert totals.staleness.total() == 200_001
    assert all(totals.staleness[behind] == 1 for behind in range(-256, 257))
    assert len(totals.staleness) < 3_000
    mean, most = staleness(totals.staleness)
    assert mean == pytest.approx(100_000 * 100_001 / 2 / 200_001, rel=1 / 256)
    assert most is not None
    assert 100_000 <= most <= 100_000 * (1 + 1 / 128)
