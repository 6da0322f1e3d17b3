"""Mailboxes: what lies in them, in which order, and how long one waits for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from some_messages import LAYOUT, a_message, answer, begun, told

from gossamer.exchange import LayoutMismatch, Mailboxes
from gossamer.exchange.gossip.mailboxes import UNREAD
from gossamer.runtime import WouldBlock


def test_the_latest_message_of_each_sender_counts() -> None:
    post = Mailboxes(3)
    for k in (1, 2):
        post.send(a_message(0, k), [2])
        post.send(a_message(1, k + 4), [2])
    assert told(post.collect(2, {}, 0).messages) == [(0, 2), (1, 6)]
    assert post.collect(2, {}, 0).messages == ()  # read once


def test_all_messages_count_in_the_order_of_iterations() -> None:
    post = Mailboxes(3, newest=False)
    for sender, k in ((0, 1), (0, 2), (1, 1), (0, 3), (1, 3)):
        post.send(a_message(sender, k), [2])
    assert told(post.collect(2, {}, 0).messages) == [(0, 1), (1, 1), (0, 2), (0, 3), (1, 3)]


def test_the_mailbox_of_a_stalled_receiver_is_bounded_and_conserves_mass() -> None:
    post = Mailboxes(3, newest=False, adds=True)
    for k in range(1, 101):
        for sender in (0, 1):
            post.send(a_message(sender, k, value=2.0 * k, weight=0.5 * k, error=0.25), [2])
    found = post.collect(2, {}, 0).messages
    for sender in (0, 1):
        mine = [m for m in found if m.sender == sender]
        assert len(mine) <= UNREAD
        assert mine[-1].iteration == 100
        # sum of k / 2 over 1..100: 5050 / 2; of k / 2 * 2k: 100 * 101 * 201 / 6; all whole numbers or halves
        assert sum(m.weight for m in mine) == pytest.approx(2525)
        assert float(sum(m.weight * m.parameters for m in mine)[0]) == pytest.approx(338_350)
        assert [m.error for m in mine] == pytest.approx([0.25] * len(mine))
    assert found[0].iteration > 1  # merged ones count as the newest of them


def test_a_few_unread_messages_are_kept_apart() -> None:
    post = Mailboxes(2, newest=False, adds=True)
    for k in range(1, UNREAD + 1):
        post.send(a_message(0, k), [1])
    assert told(post.collect(1, {}, 0).messages) == [(0, k) for k in range(1, UNREAD + 1)]


def test_a_retried_message_counts_once_also_after_its_sender_has_left() -> None:
    post = Mailboxes(2, newest=False, adds=True)
    post.send(a_message(0, 2), [1])
    post.leave(0)
    post.send(a_message(0, 2), [1])
    assert told(post.collect(1, {}, 0).messages) == [(0, 2)]
    post.send(a_message(0, 2), [1])
    assert post.collect(1, {}, 0).messages == ()
    post.admit([0])  # restarted, and perhaps behind where it was
    post.send(a_message(0, 1), [1])
    assert told(post.collect(1, {}, 0).messages) == [(0, 1)]


def test_in_lock_step_all_messages_are_kept() -> None:
    post = Mailboxes(2, newest=False)
    for k in range(1, 4 * UNREAD):
        post.send(a_message(0, k), [1])
    for k in range(1, 4 * UNREAD):
        assert told(post.collect(1, {}, 0, k).messages) == [(0, k)]


def test_a_message_goes_to_whom_it_is_for() -> None:
    post = Mailboxes(4)
    post.send(a_message(0, 1), [1, 3])
    assert [len(post.collect(rank, {}, 0).messages) for rank in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize("newest", [True, False])
def test_what_was_overtaken_or_comes_twice_is_dropped(newest: bool) -> None:
    post = Mailboxes(2, newest=newest)
    for k in (5, 4, 5):
        post.send(a_message(0, k), [1])
    assert told(post.collect(1, {}, 0).messages) == [(0, 5)]
    post.send(a_message(0, 5), [1])  # although it has been read
    post.send(a_message(0, 3), [1])
    assert post.collect(1, {}, 0).messages == ()
    post.send(a_message(0, 6), [1])
    assert told(post.collect(1, {}, 0).messages) == [(0, 6)]


def test_later_messages_stay_for_later() -> None:
    post = Mailboxes(3, newest=False)
    for k in (1, 2, 3, 4):
        post.send(a_message(0, k), [2])
        post.send(a_message(1, k), [2])
    assert told(post.collect(2, {}, 0, 1).messages) == [(0, 1), (1, 1)]
    assert told(post.collect(2, {}, 0, 3).messages) == [(0, 2), (1, 2), (0, 3), (1, 3)]
    assert told(post.collect(2, {}, 0).messages) == [(0, 4), (1, 4)]


def test_one_waits_for_the_message_that_is_needed() -> None:
    post = Mailboxes(3)
    with pytest.raises(WouldBlock):
        post.collect(2, {0: 1}, 0)
    call = begun(post, "collect", 2, {0: 2, 1: 1}, 0)
    next(call)
    for sender, k in ((0, 1), (1, 9)):
        post.send(a_message(sender, k), [2])
        next(call)  # not yet
    post.send(a_message(0, 3), [2])  # later will do
    assert told(answer(call).messages) == [(0, 3), (1, 9)]
    assert post.collect(2, {0: 3, 1: 9}, 0).messages == ()  # has come, although it was read before


@pytest.mark.parametrize("to", [[1], []])
def test_one_does_not_wait_for_what_was_sent_to_others_or_to_nobody(to: list[int]) -> None:
    post = Mailboxes(3)
    call = begun(post, "collect", 2, {0: 4}, 0)
    next(call)
    post.send(a_message(0, 3), to)
    next(call)
    post.send(a_message(0, 4), to)
    assert answer(call).messages == ()


def test_how_far_others_are_may_be_known_without_a_message() -> None:
    post = Mailboxes(3)
    call = begun(post, "collect", 2, {0: 4}, 0)
    next(call)
    post.passed({0: 3})
    next(call)
    post.passed({0: 4, 7: 9})
    post.passed({0: 1})  # old news
    assert answer(call).messages == ()
    assert post.last == {0: 4, 1: 0, 2: 0}


def test_who_is_gone_is_not_waited_for() -> None:
    post = Mailboxes(3)
    post.send(a_message(0, 1), [2])
    call = begun(post, "collect", 2, {0: 5}, 0)
    next(call)
    post.leave(0)
    found = answer(call)
    assert (told(found.messages), found.members, found.view) == ([(0, 1)], (1, 2), 1)  # what it sent stays to be read
    assert post.collect(2, {0: 9}, found.view).messages == ()


@pytest.mark.parametrize("change", ["leave", "admit", "dismiss"])
def test_a_change_of_members_ends_the_wait(change: str) -> None:
    post = Mailboxes(4)
    post.leave(3)
    call = begun(post, "collect", 2, {0: 5}, 1)
    next(call)
    post.leave(3)  # no change
    next(call)
    {"leave": lambda: post.leave(1), "admit": lambda: post.admit([3]), "dismiss": lambda: post.dismiss([1])}[change]()
    assert answer(call).view == 2
    with pytest.raises(WouldBlock):  # of the new view
        post.collect(2, {0: 5}, 2)
    assert post.collect(2, {0: 5}, 1).view == 2  # who has not heard of it does not wait


def test_who_comes_back_starts_anew() -> None:
    post = Mailboxes(2)
    post.send(a_message(0, 50), [1])
    post.collect(1, {}, 0)
    post.dismiss([0])
    post.admit([0])
    assert post.collect(1, {0: 60}, 2).messages == ()  # not waited for until it says something
    post.send(a_message(0, 1), [1])
    assert told(post.collect(1, {0: 1}, 2).messages) == [(0, 1)]
    with pytest.raises(WouldBlock):
        post.collect(1, {0: 2}, 2)


def test_after_a_restart_nobody_is_waited_for_that_has_said_nothing() -> None:
    post = Mailboxes(3)
    post.send(a_message(1, 40), [0])
    post.join(0, LAYOUT, again=True)
    assert post.collect(0, {2: 30}, 0).messages
    with pytest.raises(WouldBlock):
        post.collect(0, {1: 41}, 0)


def test_what_comes_late_from_one_that_is_gone_makes_nobody_wait_for_it_when_it_is_back() -> None:
    post = Mailboxes(2)
    post.dismiss([0])
    post.send(a_message(0, 5), [1])
    post.admit([0])
    assert told(post.collect(1, {0: 9}, 2).messages) == [(0, 5)]


def test_refused_packets_are_told_to_one_member() -> None:
    post = Mailboxes(2)
    post.refused = 3
    assert [post.collect(rank, {}, 0).refused for rank in (1, 0, 1)] == [3, 0, 0]


def test_all_take_part_from_the_start() -> None:
    post = Mailboxes(3)
    assert post.members == (0, 1, 2)
    post.send(a_message(0, 1), [1])
    found = post.join(1, LAYOUT)
    assert (found.messages, found.members, found.view) == ((), (0, 1, 2), 0)
    assert told(post.collect(1, {}, 0).messages) == [(0, 1)]  # came before it joined


def test_members_with_other_models_are_not_let_in() -> None:
    post = Mailboxes(2)
    post.join(0, LAYOUT)
    post.join(1, LAYOUT)
    with pytest.raises(LayoutMismatch, match="member 1"):
        post.join(1, b"another!")


def test_a_sparse_message_does_not_replace_one_with_all_parameters() -> None:
    """A member that comes back begins from one with all parameters."""
    post = Mailboxes(2)
    whole = a_message(0, 1)
    post.send(whole, [1])
    for k in (2, 3):
        post.send(replace(whole, iteration=k, whole=False), [1])
    assert told(post.collect(1, {}, 0).messages) == [(0, 1), (0, 3)]
    post.send(replace(whole, iteration=4, whole=False), [1])
    post.send(replace(whole, iteration=5), [1])
    assert told(post.collect(1, {}, 0).messages) == [(0, 5)]
