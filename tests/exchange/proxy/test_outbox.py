"""What one host has for another one: nothing is lost that counts, nothing counts twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from some_messages import a_message

from gossamer.exchange.gossip.messages import Parcel
from gossamer.exchange.proxy.outbox import LONGEST, RETRY, Outbox


def parcel(sender: int, iteration: int, *receivers: int, weight: float = 1.0) -> Parcel:
    return Parcel(a_message(sender, iteration, weight=weight), receivers)


def inside(parcels: list[Parcel]) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(p.message.sender, p.message.iteration, p.receivers) for p in parcels]


def test_the_newest_message_takes_the_place_of_its_sender_s_older_one() -> None:
    box = Outbox()
    box.put(parcel(0, 1, 4, 5))
    box.put(parcel(1, 1, 4))
    box.put(parcel(0, 2, 4, 5))
    assert inside(box.take()) == [(1, 1, (4,)), (0, 2, (4, 5))]


def test_but_not_for_receivers_that_it_is_not_for() -> None:
    box = Outbox()
    box.put(parcel(0, 1, 4, 5, 6))
    box.put(parcel(0, 2, 5))
    assert inside(box.parcels) == [(0, 1, (4, 6)), (0, 2, (5,))]
    box.put(parcel(0, 3, 4, 5))
    assert inside(box.parcels) == [(0, 1, (6,)), (0, 3, (4, 5))]


def test_what_did_not_arrive_is_tried_again_unless_something_newer_waits() -> None:
    box = Outbox()
    box.put(parcel(0, 1, 4))
    box.put(parcel(1, 1, 4))
    taken = box.take()
    box.put(parcel(0, 2, 4))
    box.finish(taken, arrived=False, now=10.0)
    assert inside(box.parcels) == [(1, 1, (4,)), (0, 2, (4,))]


def test_all_are_kept_in_order_where_all_count() -> None:
    box = Outbox(newest=False)
    for k in (1, 2):
        box.put(parcel(0, k, 4))
    taken = box.take()
    box.put(parcel(0, 3, 4))
    box.finish(taken, arrived=False, now=0.0)
    assert inside(box.parcels) == [(0, k, (4,)) for k in (1, 2, 3)]


def test_one_courier_at_a_time_and_a_pause_after_a_failure() -> None:
    box = Outbox()
    assert box.ready(0.0)  # a greeting, to begin with
    assert box.take() == []
    assert not box.ready(0.0)
    assert box.pending(0.0)  # on its way
    box.finish([], arrived=True, now=0.0)
    assert not box.ready(0.0)  # nothing to take there
    assert not box.pending(0.0)
    box.put(parcel(0, 1, 4))
    assert box.ready(0.0)
    box.finish(box.take(), arrived=False, now=5.0)
    assert box.hello_due
    for now, ready in ((5.0, False), (5.0 + RETRY - 0.01, False), (5.0 + RETRY, True)):
        assert box.ready(now) == box.pending(now) == ready


def test_a_host_that_does_not_answer_is_tried_less_and_less_until_it_is_heard() -> None:
    box, pauses = Outbox(), list[float]()
    for _ in range(2000):
        box.take()
        box.finish([], arrived=False, now=100.0)
        pauses.append(box.not_before - 100.0)
    assert pauses[:5] == [2.0, 4.0, 8.0, 16.0, 16.0]
    assert pauses[-1] == LONGEST
    box.heard(101.0)
    assert box.not_before == 101.0 + RETRY
    box.heard(102.0)
    assert box.not_before == 101.0 + RETRY
    box.take()
    box.finish([], arrived=False, now=103.0)
    assert box.not_before == 103.0 + RETRY


def test_what_may_have_arrived_is_not_added_up() -> None:
    box = Outbox(newest=False, adds=True)
    box.put(parcel(0, 1, 4))
    box.put(parcel(0, 2, 4))
    for now in (0.0, 5.0):
        taken = box.take()
        assert inside(taken) == [(0, 1, (4,)), (0, 2, (4,))]
        for k in (3, 4, 5):
            box.put(parcel(0, k, 4))
        box.finish(taken, arrived=False, now=now)
    taken = box.take()  # as it was: who has it knows it by its iterations
    assert inside(taken) == [(0, 1, (4,)), (0, 2, (4,))]
    box.finish(taken, arrived=True, now=9.0)
    assert box.ready(9.0)
    rest = box.take()
    assert sum(p.message.weight for p in rest) == 6  # two times 3, 4, 5
    assert len(rest) <= 2


def test_clear_forgets_what_was_tried_too() -> None:
    box = Outbox(newest=False, adds=True)
    box.put(parcel(0, 1, 4))
    box.finish(box.take(), arrived=False, now=0.0)
    box.put(parcel(0, 2, 4))
    box.clear()
    assert box.take() == []


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([(4,), (5,), (4, 5)]), st.floats(0.1, 2)), max_size=40))
def test_adding_up_keeps_weights_and_weighted_parameters(sent: list[tuple[int, tuple[int, ...], float]]) -> None:
    box = Outbox(newest=False, adds=True)
    for k, (sender, receivers, weight) in enumerate(sent, 1):
        box.put(parcel(sender, k, *receivers, weight=weight))
    for sender in range(3):
        for receivers in ((4,), (5,), (4, 5)):
            waiting = [p.message for p in box.parcels if (p.message.sender, p.receivers) == (sender, receivers)]
            put = [(k, w) for k, (s, r, w) in enumerate(sent, 1) if (s, r) == (sender, receivers)]
            assert len(waiting) <= 2
            assert sum(m.weight for m in waiting) == pytest.approx(sum(w for _, w in put))
            total = sum((m.weight * m.parameters for m in waiting), torch.zeros(1))
            torch.testing.assert_close(
                total[:1], torch.tensor([sum(k * w for k, w in put)]), rtol=1e-4, atol=1e-4, check_dtype=False
            )
    for sender in range(3):  # the newest last, or it would look overtaken
        iterations = [p.message.iteration for p in box.parcels if p.message.sender == sender]
        assert iterations == sorted(iterations)


def test_a_sparse_message_does_not_take_the_place_of_one_with_all_parameters() -> None:
    box, whole = Outbox(), parcel(0, 1, 4)
    box.put(whole)
    for k in (2, 3):
        box.put(Parcel(replace(whole.message, iteration=k, whole=False), (4,)))
    assert inside(box.parcels) == [(0, 1, (4,)), (0, 3, (4,))]
