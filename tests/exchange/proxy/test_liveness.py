"""Who is alive: doubts after a while, news within about log n beats, few messages."""

from __future__ import annotations

import math
import random

import pytest

from gossamer.exchange.gossip.messages import Pulse
from gossamer.exchange.proxy.liveness import BEAT, BROADCAST_LIMIT, FAN_OUT, Liveness

START = 1000.0  # of the clock, anything but 0


def sent(*members: int) -> dict[int, int]:
    return dict.fromkeys(members, 9)


def plan(hosts: int) -> dict[int, tuple[int, ...]]:
    return {h: (2 * h, 2 * h + 1) for h in range(hosts)}


def beat(known: list[Liveness], now: float, dead: set[int], rng: random.Random, loss: float = 0.0) -> int:
    """Everybody who is alive looks at the clock and tells some; the messages."""
    told = [(h, to) for h in known if h.host not in dead for to in h.tick(now, sent(*plan(len(known))[h.host]))]
    for sender, to in told:
        if to not in dead and rng.random() >= loss:
            known[to].merge(sender.pulses())
    return len(told)


def test_silent_after_patience_and_back_when_heard() -> None:
    one = Liveness(0, plan(2))
    assert one.patience == 6 * BEAT
    one.tick(START, sent(0, 1))
    for second in range(1, 7):
        one.tick(START + second, sent(0, 1))
        assert (one.silent, one.members(1)) == ([], (2, 3))
    one.tick(START + 6.1, sent(0, 1))
    assert (one.silent, one.members(1)) == ([1], ())
    one.merge([Pulse(1, 1, (3,), (0,))])
    assert (one.silent, one.members(1)) == ([], (3,))  # as it says now
    one.tick(START + 13, sent(0, 1))
    assert one.silent == [1]
    one.heard(1)  # a parcel came
    assert one.silent == []


def test_old_news_is_no_news() -> None:
    one = Liveness(0, plan(3))
    one.tick(START, sent(0, 1))
    one.merge([Pulse(1, 5, (2, 3), (4, 7))])
    one.tick(START + 8, sent(0, 1))
    for stale in (Pulse(1, 5, (), ()), Pulse(1, 4, (), ()), Pulse(7, 9, (), ()), Pulse(0, 0, (), ())):
        one.merge([stale])
    assert 1 in one.silent
    assert one.pulses()[1] == Pulse(1, 5, (2, 3), (4, 7))
    assert one.pulses()[0] == Pulse(0, 2, (0, 1), (9, 9))
    assert one.sent() == {2: 4, 3: 7, 4: 0, 5: 0}
    assert len(one.pulses()) == 3


def test_a_beat_before_the_clock_is_known_makes_nobody_silent() -> None:
    # A member may join, which is told to the others, before the first look at the clock.
    one = Liveness(0, plan(2))
    one.tick(0.0, sent(0, 1))
    one.tick(START, sent(0, 1))
    assert one.silent == []
    one.tick(START + 7, sent(0, 1))
    assert one.silent == [1]


def test_an_earlier_life_s_beats_are_gone_on_from() -> None:
    one, other = Liveness(0, plan(2)), Liveness(1, plan(2))
    for second in range(500):
        beat([one, other], START + second, set(), random.Random(0))
    again, now = Liveness(1, plan(2)), START + 500
    views = []
    for second in range(8):
        beat([one, again], now + second, set(), random.Random(0))
        views.append(one.members(1))
    # Sooner than it could have been missed, and yet it is known that its members were away.
    away = views.index(())
    assert away <= 2
    assert views[away : away + 2] == [()] * 2
    assert views[-1] == (2, 3)
    assert one.silent == again.silent == []


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_news_reaches_200_hosts_in_a_few_beats(loss: float) -> None:
    hosts, rng = 200, random.Random(1)
    known = [Liveness(h, plan(hosts)) for h in range(hosts)]
    for second in range(30):
        messages = beat(known, START + second, set(), rng, loss)
        assert messages == hosts * FAN_OUT
        assert not any(h.silent for h in known)
    # A host says that a member has ended: everybody knows it log2 n beats later.
    known[17].tick(START + 30, sent(34))
    for second in range(math.ceil(math.log2(hosts))):
        for h in known:
            for to in h.tick(START + 30 + second, sent(34) if h.host == 17 else sent(*plan(hosts)[h.host])):
                if rng.random() >= loss:
                    known[to].merge(h.pulses())
    assert {h.members(17) for h in known} == {(34,)}


def test_a_dead_host_is_noticed_by_all_and_nobody_else_is() -> None:
    hosts, rng = 200, random.Random(2)
    known = [Liveness(h, plan(hosts)) for h in range(hosts)]
    for second in range(20):
        beat(known, START + second, set(), rng)
    dead = {3, 150}
    noticed = 20.0 + known[0].patience + 2 * math.log2(hosts)
    for second in range(20, math.ceil(noticed)):
        beat(known, START + second, dead, rng)
    assert all(set(h.silent) == dead for h in known if h.host not in dead)


def test_everybody_is_told_in_turn() -> None:
    one = Liveness(5, plan(30))
    rounds = [one.tick(START + i, sent(10, 11)) for i in range(8)]
    assert all(len(told) == FAN_OUT for told in rounds)
    assert set().union(*rounds) == set(range(30)) - {5}
    assert Liveness(0, plan(1)).tick(START, sent(0, 1)) == []


def test_few_are_told_at_once() -> None:
    few = Liveness(0, plan(BROADCAST_LIMIT))
    assert sorted(few.to_notify) == list(range(1, BROADCAST_LIMIT))
    one = Liveness(0, plan(100))
    assert len(one.to_notify) == FAN_OUT
    one.heard(40)
    one.heard(41)
    assert {40, 41} <= set(one.to_notify)
    assert len(one.to_notify) <= FAN_OUT + 2
