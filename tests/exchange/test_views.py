"""Who forms a group of hosts, when, and of which hosts; and what a host refuses that is in a later one."""

from __future__ import annotations

from typing import Any

import numpy as np
from some_messages import answer, begun

from gossamer.exchange.all_reduce.between import chosen
from gossamer.exchange.all_reduce.group import At, Group, Part
from gossamer.exchange.all_reduce.views import AVOID, FIRST, PATIENCE, SETTLE, Beat, Coordinator, Epoch, Seeking, View


def beat(host: int, view: View | None = None, **given: Any) -> Beat:
    return Beat(**{"host": host, "life": 0, "ready": True, "view": view, **given})


def test_the_first_group_waits_for_hosts_that_start_and_not_for_ever_for_others() -> None:
    coordinator = Coordinator(0, 3)
    coordinator.begin(0.0)
    coordinator.hear(beat(0), 1.0)
    coordinator.hear(beat(1, ready=False), 1.0)
    assert coordinator.form(0, 1.0) is None
    for now in (FIRST - 1, FIRST + 1):
        coordinator.hear(beat(0), now)
        coordinator.hear(beat(1, ready=now > FIRST), now)
        formed = coordinator.form(0, now)
        assert (formed is not None) == (now > FIRST)
    assert formed == View(Epoch(1, 0, 0), (0, 1), (0, 0))


def test_a_group_changes_with_a_host_that_is_silent_restarted_or_new() -> None:
    coordinator = Coordinator(0, 3)
    coordinator.begin(0.0)
    for host in range(2):
        coordinator.hear(beat(host), 0.0)
    coordinator.hear(beat(2), 0.0)
    view = coordinator.form(0, 0.0)
    assert view is not None
    for host in range(3):
        coordinator.hear(beat(host, view), 1.0)
    assert coordinator.form(0, 1.0) is None  # nothing has changed
    coordinator.hear(beat(2, None, life=1, ready=False), 2.0)
    without = coordinator.form(0, 2.0)
    assert without == View(Epoch(2, 0, 0), (0, 1), (0, 0), before=(0, 1, 2))
    coordinator.hear(beat(2, None, life=1), 3.0)
    for host in range(2):
        coordinator.hear(beat(host, without), 3.0)
    again = coordinator.form(0, 3.0)
    assert again == View(Epoch(3, 0, 0), (0, 1, 2), (0, 0, 1), before=(0, 1))
    now = 3.0 + PATIENCE + 1
    coordinator.hear(beat(0, again), now)
    coordinator.hear(beat(2, again, life=1), now)
    silent = coordinator.form(0, now)
    assert silent is not None
    assert silent.members == (0, 2)


def test_a_host_that_takes_over_waits_for_the_others_of_the_group_and_uses_no_epoch_twice() -> None:
    view = View(Epoch(7, 0, 0), (0, 1, 2), (0, 0, 0))
    coordinator = Coordinator(1, 3)
    assert coordinator.form(0, 1.0) is None  # it does not coordinate
    coordinator.begin(1.0)
    coordinator.hear(beat(1, view), 1.0)
    assert coordinator.form(0, 1.0) is None
    coordinator.hear(beat(2, view), 2.0)
    assert coordinator.form(0, 2.0) == View(Epoch(8, 1, 0), (1, 2), (0, 0), before=(0, 1, 2))
    alone = Coordinator(1, 3)
    alone.begin(1.0)
    alone.hear(beat(1, view), 2.0 + SETTLE)
    assert alone.form(0, 2.0 + SETTLE) == View(Epoch(8, 1, 0), (1,), (0,), before=(0, 1, 2))


def test_hosts_that_do_not_answer_are_called_again_one_at_a_time() -> None:
    seeking = Seeking(3)
    assert seeking.targets(0.0) == [0, 1, 2]
    seeking.given_up(0, 0.0)
    seeking.given_up(1, 0.0)
    assert seeking.targets(1.0) == [2]
    assert seeking.targets(AVOID) == [0, 2]
    assert seeking.follows(2, 1, 4.0)  # the third says that the second one coordinates
    assert seeking.targets(4.0) == [1, 2]
    assert not seeking.follows(2, None, 4.0 + 2 * PATIENCE + 1)  # its clock has ended


def test_a_host_refuses_what_is_of_an_earlier_group_and_drops_what_it_had() -> None:
    group, old, new = Group(0, 2), *(View(Epoch(n, 0, 0), (0, 1), (0, 0)) for n in (1, 2))
    part = Part(np.ones(4, np.float32), 1, 0.5)
    assert group.give(old, 1, 0, part)
    assert group.give(new, 1, 1, part)  # a later group; nothing of the old one is left
    assert not group.give(old, 1, 1, part)
    assert group.take(old.epoch, 1) is None
    assert group.give(new, 1, 0, Part(3 * np.ones(4, np.float32), 3, 3.0))
    mean = group.take(new.epoch, 1)
    assert mean is not None
    assert mean.vector is not None
    assert (mean.learners, mean.rate) == (4, 0.875)  # of (0.5 + 3 x 1.0) / 4
    assert np.array_equal(mean.vector, np.ones(4))  # (1 + 3) / 4: sums of one and of three learners


def test_all_continue_from_the_newest_state_and_of_several_from_the_most_frequent() -> None:
    older, newer, other = At(3, True, 1), At(4, True, 2), At(4, True, 3)
    assert chosen({0: older, 1: newer, 2: older}) == 1
    assert chosen({0: other, 1: newer, 2: newer}) == 1
    assert chosen({0: At(4, False, 2), 1: other}) == 1


def test_a_host_whose_learners_have_ended_waits_for_no_one() -> None:
    """Its clock has ended with them: the time limits of calls there do not pass any more."""
    group, view = Group(0, 2), View(Epoch(1, 0, 0), (0, 1), (0, 0))
    group.adopt(view)
    call = begun(group, "states", view.epoch)
    next(call)
    group.leave()
    assert answer(call) is None
    assert group.take(view.epoch, 0) is group.fetch(view.epoch) is None
