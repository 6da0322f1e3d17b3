"""What a member keeps of itself: windows, cuts at jumps of the epoch, messages from before a cut, counts."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from some_messages import a_message
from torch import Tensor

from gossamer.exchange.gossip.projection import DIMENSIONS
from gossamer.exchange.gossip.records import Cut, InTransit, PolicyOutputs, Tracked, Traffic
from gossamer.exchange.gossip.tracker import Tracker
from gossamer.spaces import Discrete

EVERYBODY = (0, 1)


def vector(value: float) -> Tensor:
    return torch.full((4,), float(value))


POLICY = PolicyOutputs(np.zeros(1, np.uint32), torch.zeros(1, 2), Discrete(2))


def a_tracker(period: int, window: int, gradient: Callable[[], Tensor] = lambda: vector(5)) -> Tracker:
    return Tracker(0, period, window, gradient, lambda: POLICY)


def kept(tracker: Tracker) -> list[object]:
    """All records but the counts."""
    *records, traffic = tracker.take(1.0)
    assert isinstance(traffic, Traffic)
    return records


def alone(tracker: Tracker, k: int) -> None:
    """An iteration with no message."""
    tracker.stepped(k, vector(k), vector(k - 1))
    tracker.arrived(k, vector(k), [], EVERYBODY)
    tracker.mixed(k, [], [], 0.0)


def test_windows_open_and_close_at_their_iterations() -> None:
    now = [0]
    tracker = a_tracker(10, 3, gradient=lambda: vector(-now[0]))
    tracker.cut(0, vector(0), EVERYBODY)
    is_open = []
    for k in range(1, 25):
        now[0] = k
        alone(tracker, k)
        is_open.append(tracker.open)
    records = kept(tracker)
    cuts = [r for r in records if isinstance(r, Cut)]
    assert [(c.epoch, c.iteration) for c in cuts] == [(0, 0), (1, 3), (2, 10), (3, 13), (4, 20), (5, 23)]
    assert [None if c.gradient is None else float(c.gradient[0]) for c in cuts] == [None, -3, None, -13, None, -23]
    assert [float(c.parameters[0]) for c in cuts] == [0, 3, 10, 13, 20, 23]
    assert all((c.member, c.members, c.size) == (0, EVERYBODY, 4) for c in cuts)
    assert [c.moved for c in cuts] == [None, 6.0] * 3  # from 0 to 3, 10 to 13, 20 to 23 in four elements
    assert [c.policy for c in cuts] == [None, POLICY] * 3
    steps = [r for r in records if isinstance(r, Tracked)]
    assert [(s.epoch, s.iteration) for s in steps] == [(e, k) for e in (0, 2, 4) for k in range(5 * e + 1, 5 * e + 4)]
    assert all(s.parents == ((0, s.iteration - 1, 1.0),) and s.moved == pytest.approx(2.0) for s in steps)
    assert [k for k, now in enumerate(is_open, 1) if now] == [1, 2, 10, 11, 12, 20, 21, 22]


def test_a_message_of_a_later_epoch_makes_a_cut_before_it_is_taken_in() -> None:
    tracker = a_tracker(10, 3)
    tracker.cut(0, vector(0), EVERYBODY)
    tracker.arrived(1, vector(1), [a_message(1, 7, epoch=3)], EVERYBODY)
    cuts = [r for r in kept(tracker) if isinstance(r, Cut)]
    assert [(c.epoch, c.iteration, float(c.parameters[0])) for c in cuts] == [
        (0, 0, 0),
        (1, 1, 1),
        (2, 1, 1),
        (3, 1, 1),
    ]
    assert [c.gradient is None for c in cuts] == [True, False, True, False]
    assert tracker.epoch == 3
    assert not tracker.open


def test_messages_from_before_a_cut_are_part_of_it() -> None:
    tracker = a_tracker(10, 3)
    tracker.cut(0, vector(0), EVERYBODY)
    tracker.epoch = 1
    late, same = a_message(1, 9, epoch=1), a_message(2, 10, epoch=2)
    tracker.arrived(10, vector(1), [late, same], EVERYBODY)
    (transit,) = [r for r in kept(tracker) if isinstance(r, InTransit)]
    assert (transit.epoch, transit.member, transit.iteration) == (2, 1, 9)
    assert torch.equal(transit.parameters, late.parameters)
    tracker.arrived(11, vector(1), [a_message(1, 10, epoch=1)], EVERYBODY)
    assert [r.iteration for r in kept(tracker) if isinstance(r, InTransit)] == [10]
    tracker.arrived(13, vector(1), [a_message(1, 10, epoch=1)], EVERYBODY)  # closed: nobody asks
    assert not [r for r in kept(tracker) if isinstance(r, InTransit)]


def test_what_was_mixed_is_what_the_next_step_came_from() -> None:
    tracker = a_tracker(10, 5)
    tracker.cut(0, vector(0), EVERYBODY)
    messages = [a_message(1, 0), a_message(2, 3)]
    tracker.arrived(1, vector(1), messages, EVERYBODY)
    tracker.mixed(1, messages, [0.25, 0.5], noise=0.125)
    tracker.stepped(2, vector(4), vector(1))
    (step,) = [r for r in kept(tracker) if isinstance(r, Tracked)]
    assert step == Tracked(0, 0, 2, ((0, 1, 0.25), (1, 0, 0.25), (2, 3, 0.5)), 6.125)  # ||(3, 3, 3, 3)|| and the noise


def test_counts_since_the_last_look() -> None:
    tracker = a_tracker(0, 0)
    now = time.time()
    tracker.sent, tracker.refused = 3, 2
    tracker.mixed(7, [a_message(1, 7, published=now), a_message(2, 5, published=now - 3)], [0.25, 0.25], 0.0)
    tracker.mixed(8, [a_message(1, 6, published=now + 5)], [0.5], 0.0)  # a clock that goes ahead of ours
    with tracker.waiting(False):
        pass
    (traffic,) = tracker.take(0.5)
    assert isinstance(traffic, Traffic)
    assert (traffic.iterations, traffic.sent, traffic.mixed, traffic.refused) == (2, 3, 3, 2)
    assert traffic.staleness == {0: 1, 2: 2}
    assert sum(count for count, _ in traffic.edges.values()) == 3
    assert sum(staleness for _, staleness in traffic.edges.values()) == 4
    assert sum(traffic.ages.values()) == 3
    assert traffic.ages[11] == 1  # 2,048 to 4,095 ms
    assert (traffic.waited, traffic.weight) == (0.0, 0.5)
    assert tracker.take(1.0) == (Traffic(),)


def test_only_waits_that_had_a_reason_are_counted() -> None:
    tracker = a_tracker(0, 0)
    for really in (True, False):
        with tracker.waiting(really):
            time.sleep(0.01)
        (traffic,) = tracker.take(1.0)
        assert isinstance(traffic, Traffic)
        assert (traffic.waited > 0) == really


def test_without_a_period_nothing_is_kept() -> None:
    tracker = a_tracker(0, 32)
    tracker.cut(0, vector(0), EVERYBODY)
    for k in range(1, 40):
        alone(tracker, k)
    tracker.arrived(40, vector(1), [a_message(1, 7, epoch=3)], EVERYBODY)
    assert not tracker.open
    assert kept(tracker) == []


@pytest.mark.parametrize(("period", "window"), [(10, 10), (10, 0), (10, 11)])
def test_a_window_has_to_fit(period: int, window: int) -> None:
    with pytest.raises(ValueError, match=f"window of {window}"):
        a_tracker(period, window)


def test_no_whole_parameter_vector_is_kept_in_a_record() -> None:
    """Of 300,000 parameters, 1.2 MB to a vector: three projections and a policy, whatever happens in the window."""
    tracker = a_tracker(10, 4, gradient=lambda: torch.ones(300_000))
    tracker.cut(0, torch.zeros(300_000), EVERYBODY)
    for k in range(1, 10):
        before = tracker.start(torch.zeros(300_000))
        tracker.stepped(k, torch.ones(300_000), before)
        late = replace(a_message(1, k, epoch=-1), parameters=torch.ones(300_000))
        tracker.arrived(k, torch.ones(300_000), [late], EVERYBODY)
        tracker.mixed(k, [late], [0.5], 0.0)
    records = kept(tracker)
    opening, closing = (r for r in records if isinstance(r, Cut))
    assert isinstance(opening, Cut)
    assert isinstance(closing, Cut)
    assert opening.parameters.shape == closing.parameters.shape == (DIMENSIONS,)
    assert closing.gradient is not None
    assert closing.gradient.shape == (DIMENSIONS,)
    transits = [r for r in records if isinstance(r, InTransit)]
    assert [r.parameters.shape for r in transits] == [(DIMENSIONS,)] * 3
    assert len(pickle.dumps(records)) < 1.1 * 4 * DIMENSIONS * 6


def test_a_window_that_a_member_did_not_open_has_no_gradient_or_policy() -> None:
    # A member that starts again takes over its neighbours' epoch; here they are within a window
    tracker = a_tracker(10, 3)
    tracker.epoch = 1
    tracker.cut(4, vector(4), EVERYBODY)
    (cut,) = kept(tracker)
    assert isinstance(cut, Cut)
    assert (cut.gradient, cut.moved, cut.policy) == (None, None, None)
    assert not tracker.open


def test_what_a_step_starts_from_is_a_copy_in_one_buffer() -> None:
    tracker = a_tracker(10, 3)
    live = vector(1)
    before = tracker.start(live)
    live.fill_(7)
    assert torch.equal(before, vector(1))
    assert tracker.start(live) is before
    assert torch.equal(before, live)


def test_the_time_of_records_is_part_of_the_thread_s() -> None:
    tracker = a_tracker(10, 3, gradient=lambda: torch.randn(1_000_000).sort().values[:4])
    tracker.cut(0, vector(0), EVERYBODY)
    for k in range(1, 5):
        alone(tracker, k)
    *_, traffic = tracker.take(1.0)
    assert isinstance(traffic, Traffic)
    assert 0 < traffic.cpu_diagnostics <= traffic.cpu
    *_, traffic = tracker.take(1.0)
    assert isinstance(traffic, Traffic)
    assert traffic.cpu_diagnostics == 0.0
