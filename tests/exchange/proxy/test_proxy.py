"""The data proxy: what it does with jobs, hosts that come and go, and garbage at its door."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from some_messages import LAYOUT, SIZE, TOKEN, a_message, answer, begun, told
from some_parts import Watcher, a_task

from gossamer.architectures import PALA
from gossamer.data import Array
from gossamer.exchange import LayoutMismatch, Proxy
from gossamer.exchange.gossip.messages import Hello, Message, Parcel, Pulse
from gossamer.exchange.gossip.options import Gossiping
from gossamer.exchange.gossip.records import Traffic
from gossamer.exchange.proxy.jobs import Arrival, Transfer
from gossamer.exchange.proxy.proxy import BACKLOG, UNKNOWN
from gossamer.exchange.proxy.wire import HEADER, encode
from gossamer.exchange.proxy.workers import carry
from gossamer.launch.simulation import Simulation
from gossamer.launch.threads import threads
from gossamer.program import Program, Ref
from gossamer.runtime import Context, Unreachable, WouldBlock


def a_proxy(host: int = 0, hosts: int = 2, *, joined: bool = True, **more: Any) -> Proxy:
    proxy = Proxy(host=host, hosts=hosts, members=2, token=TOKEN, **more)
    proxy.tick(50.0)
    for rank in proxy._own if joined else ():
        proxy.join(rank, LAYOUT)
    return proxy


def parcel(message: Message, *receivers: int, layout: bytes = LAYOUT) -> Array:
    return encode(Parcel(message, receivers), TOKEN, layout)


def hello(host: int, *pulses: Pulse, layout: bytes = LAYOUT) -> Array:
    return encode(Hello(host, pulses, layout), TOKEN, layout)


class Running:
    """A context for couriers that are run by hand."""

    restarts = 0


def work(proxy: Proxy, others: list[Any]) -> None:
    """Let a courier do all there is to do now."""
    with suppress(WouldBlock):
        carry(Running(), proxy, others)  # type: ignore[arg-type]


class Gone:
    """The proxy of a host that does not answer."""

    def deliver(self, *packets: Array) -> None:
        raise Unreachable("gone")


def settle(*proxies: Any) -> None:
    """Let all couriers work until nothing is left."""
    for _ in range(4):
        for proxy in proxies:
            if isinstance(proxy, Proxy):
                work(proxy, list(proxies))


def test_a_message_gets_to_the_members_it_is_for() -> None:
    one, other = a_proxy(0), a_proxy(1)
    one.send(a_message(0, 3), [1, 2])
    assert told(one.collect(1, {}, 0).messages) == [(0, 3)]  # on the same host at once
    settle(one, other)
    (found,) = other.collect(2, {0: 3}, 0).messages
    assert (found.sender, found.iteration, found.parameters.tolist()) == (0, 3, [3.0] * SIZE)
    assert other.collect(3, {}, 0).messages == ()


def test_all_there_is_for_a_host_goes_there_on_one_way_with_the_sign_of_life_last() -> None:
    proxy = a_proxy(0, hosts=3)
    for sender in (0, 1):
        proxy.send(a_message(sender, 1), [2, 4])
    job = proxy.job()
    assert isinstance(job, Transfer)
    assert [type(item) for item in job.items] == [Parcel, Parcel, Hello]
    second = proxy.job()
    assert isinstance(second, Transfer)
    assert {job.host, second.host} == {1, 2}
    with pytest.raises(WouldBlock):
        proxy.job()  # both have a courier on the way
    proxy.send(a_message(0, 2), [2])
    with pytest.raises(WouldBlock):
        proxy.job()
    proxy.done(job, arrived=True)
    proxy.done(second, arrived=True)
    third = proxy.job()
    assert isinstance(third, Transfer)
    assert told(item.message for item in third.items if isinstance(item, Parcel)) == [(0, 2)]


def test_what_does_not_arrive_is_tried_again_later() -> None:
    one, other = a_proxy(0), a_proxy(1)
    one.send(a_message(0, 1), [2])
    work(one, [one, Gone()])
    one.send(a_message(1, 1), [2])
    settle(one, other)  # not yet
    assert other.collect(2, {}, other.boxes.view).messages == ()
    one.tick(53.0)
    settle(one, other)
    assert told(other.collect(2, {}, other.boxes.view).messages) == [(0, 1), (1, 1)]


def test_a_silent_host_s_members_are_not_waited_for_and_what_was_for_them_is_dropped() -> None:
    proxy = a_proxy(0)
    work(proxy, [proxy, Gone()])
    proxy.send(a_message(0, 1), [2])
    call = begun(proxy, "collect", 0, {3: 1}, 0)
    next(call)
    for second in range(6):
        proxy.tick(51.0 + second)
        next(call)
    proxy.tick(57.0)
    assert answer(call).members == (0, 1)
    assert proxy._outboxes[1].parcels == []
    proxy.deliver(parcel(a_message(3, 8), 0))  # it is back
    work(proxy, [proxy, Gone()])
    assert proxy.boxes.members == (0, 1, 2, 3)
    assert told(proxy.collect(0, {3: 8}, proxy.boxes.view).messages) == [(3, 8)]


def test_hosts_that_do_not_answer_hold_one_courier_at_most() -> None:
    proxy = a_proxy(0, hosts=4)
    work(proxy, [proxy, Gone(), Gone(), Gone()])
    for second in range(3):
        proxy.tick(51.0 + second)
    trying = proxy.job()
    assert isinstance(trying, Transfer)
    with pytest.raises(WouldBlock):
        proxy.job()
    (other, *_) = {1, 2, 3} - {trying.host}
    proxy.deliver(hello(other))  # it is there again
    assert isinstance(proxy.job(), Arrival)
    proxy.hello(Hello(other, (), LAYOUT))
    proxy.tick(56.0)
    again = proxy.job()
    assert isinstance(again, Transfer)
    assert again.host == other


def test_who_leaves_is_known_elsewhere_at_once() -> None:
    one, other = a_proxy(0), a_proxy(1)
    settle(one, other)
    call = begun(other, "collect", 2, {0: 1}, other.boxes.view)
    next(call)
    one.leave(0)
    settle(one, other)
    assert answer(call).members == (1, 2, 3)


def test_after_the_last_member_has_left_and_said_farewell_the_jobs_end() -> None:
    one, other = a_proxy(0), a_proxy(1)
    settle(one, other)
    one.send(a_message(0, 9), [2])
    one.leave(0)
    one.leave(1)
    assert one.tick(51.0)  # the couriers are still needed
    assert not one.tick(51.0, restarts=1)  # after a restart they may have ended before
    job = one.job()
    assert isinstance(job, Transfer)
    one.done(job, arrived=False)
    one._outboxes[1].not_before = 0.0
    carry(Running(), one, [one, other])  # type: ignore[arg-type]  # comes to its end
    assert one.job() is None
    one._outboxes[1].not_before, one._outboxes[1].hello_due = 0.0, True  # due, but the couriers have ended
    assert not one.tick(52.0)
    one._outboxes[1].hello_due = False
    work(other, [one, other])
    found = other.collect(2, {0: 10}, other.boxes.view)
    assert (told(found.messages), found.members) == ([(0, 9)], (2, 3))
    assert one.settled()
    assert one.deliver(hello(1), parcel(a_message(2, 1), 0)) is None  # nobody is here: it is kept for the checkpoint
    assert one.settled()
    assert unread(one) == [(0, 2, 1)]
    assert one.job() is None


def test_a_farewell_to_a_host_that_is_gone_holds_nobody_up() -> None:
    proxy = a_proxy(0, hosts=3)
    proxy.leave(0)
    proxy.leave(1)
    carry(Running(), proxy, [proxy, Gone(), Gone()])  # type: ignore[arg-type]
    assert not proxy.tick(51.0)


def test_what_comes_before_the_first_member_is_kept_for_it() -> None:
    proxy = a_proxy(0, joined=False)
    proxy.deliver(hello(1, Pulse(1, 5, (3,), (1,))), parcel(a_message(3, 1), 0))
    proxy.deliver(parcel(a_message(3, 2), 0))
    work(proxy, [proxy, Gone()])
    assert proxy.boxes.members == (0, 1, 3)  # what the sign of life said
    proxy.join(0, LAYOUT)
    work(proxy, [proxy, Gone()])
    found = proxy.collect(0, {3: 2}, proxy.boxes.view)
    assert (told(found.messages), found.refused) == ([(3, 2)], 0)


@pytest.mark.parametrize("joined", [False, True])
def test_more_calls_than_fit_are_to_be_made_again(joined: bool) -> None:
    proxy = a_proxy(0, joined=joined)
    kept = [proxy.deliver(parcel(a_message(3, k), 0), parcel(a_message(2, k), 0)) for k in range(1, BACKLOG + 4)]
    assert kept == [None] * BACKLOG + [f"{BACKLOG} are queued"] * 3
    assert (proxy.deliver(hello(1)) is None) == (
        not joined
    )  # heard also where parcels have to wait for the first member
    proxy.join(0, LAYOUT)
    work(proxy, [proxy, Gone()])
    found = proxy.collect(0, {}, proxy.boxes.view)
    assert (told(found.messages), found.refused) == ([(2, BACKLOG), (3, BACKLOG)], 0)


def test_the_first_signs_of_life_of_all_hosts_leave_room_for_a_parcel() -> None:
    """They come at once, while the couriers send those of this host."""
    proxy = a_proxy(0, hosts=128)
    assert all(proxy.deliver(hello(host)) is None for host in range(1, 128))
    assert proxy.deliver(parcel(a_message(255, 1), 0)) is None


def test_no_weight_is_lost_where_a_host_cannot_keep_more() -> None:
    """Push-sum: a host trains for long before the first member of the other one joins."""
    one, other = a_proxy(0, newest=False, adds=True), a_proxy(1, joined=False, newest=False, adds=True)
    for k in range(1, 2 * BACKLOG + 1):
        one.send(a_message(0, k), [2])
        settle(one, other)
    other.join(2, LAYOUT)
    work(other, [one, other])
    one.tick(53.0)
    settle(one, other)
    found = other.collect(2, {}, other.boxes.view)
    assert sum(message.weight for message in found.messages) == 2 * BACKLOG


@pytest.mark.parametrize("joined", [False, True])
def test_what_no_courier_has_decoded_is_in_the_checkpoint(joined: bool) -> None:
    proxy = a_proxy(0, joined=joined)
    proxy.deliver(parcel(a_message(3, 1), 0))
    assert not proxy.settled()
    assert unread(proxy) == [(0, 3, 1)]
    assert proxy.settled()
    assert unread(proxy) == [(0, 3, 1)]  # once


def test_what_has_come_is_looked_at_by_one_courier_at_a_time() -> None:
    proxy = a_proxy(0)
    settle(proxy, Gone())
    for k in (1, 2):
        proxy.deliver(parcel(a_message(3, k), 0))
    first = proxy.job()
    assert isinstance(first, Arrival)
    with pytest.raises(WouldBlock):
        proxy.job()
    proxy.unpacked()
    assert isinstance(proxy.job(), Arrival)


@pytest.mark.parametrize("fresh", [False, True])
def test_parcels_of_a_checkpoint_arrive_although_no_member_has_joined_yet(fresh: bool) -> None:
    one, other = a_proxy(0), a_proxy(1)
    settle(one, other)
    one.send(a_message(0, 3), [2])
    states = [one.state_dict(), other.state_dict()]
    one, other = a_proxy(0, joined=False), a_proxy(1, joined=False)
    one.load_state_dict(states[0])
    if not fresh:
        other.load_state_dict(states[1])
    settle(one, other)
    other.join(2, LAYOUT)
    settle(one, other)
    found = other.collect(2, {}, other.boxes.view)
    assert (told(found.messages), found.refused) == ([(0, 3)], 0)


def unread(proxy: Proxy) -> list[tuple[int, int, int]]:
    """(receiver, sender, iteration) of the messages in a proxy's state."""
    messages = proxy.state_dict()["boxes"]["unread"]
    return [(receiver, message["sender"], message["iteration"]) for receiver, message in messages]


def refused(proxy: Proxy, *packets: Any) -> int:
    """How many of them are counted as refused, once a courier has looked; nothing must be filed."""
    before = proxy.boxes.refused
    proxy.deliver(*packets)
    work(proxy, [proxy, Gone()])
    assert proxy.boxes._unread == {}
    return proxy.boxes.refused - before


def garbage(rng: np.random.Generator, token: bytes = TOKEN) -> Array:
    """Random bytes; some begin like an honest packet, some are an honest one with a bit flipped, or another token."""
    honest = encode(Parcel(a_message(3, 1), (0,)), token, LAYOUT)
    kind = rng.integers(5)
    if kind == 0:
        return rng.integers(0, 256, rng.integers(0, 300), np.uint8)
    if kind == 1:  # of the length that the header tells
        tail = rng.integers(0, 256, honest.size - HEADER.size, np.uint8)
        return np.concatenate([honest[: HEADER.size], tail])
    if kind == 2:
        honest[rng.integers(honest.size)] ^= 1 << rng.integers(8)
        return honest
    if kind == 3:
        return honest[: rng.integers(honest.size)]
    return encode(Parcel(a_message(3, 1), (0,)), rng.bytes(16), LAYOUT)


def test_garbage_is_refused_and_counted_exactly() -> None:
    proxy, rng = a_proxy(0), np.random.default_rng(0)
    work(proxy, [proxy, Gone()])
    for _ in range(100):
        assert refused(proxy, *(garbage(rng) for _ in range(100))) == 100
    assert proxy.collect(0, {}, 0).refused == 10_000
    assert proxy.boxes.members == (0, 1, 2, 3)


def test_each_kind_of_what_cannot_be_used() -> None:
    proxy, honest = a_proxy(0), parcel(a_message(3, 1), 0)
    work(proxy, [proxy, Gone()])
    odd: list[Any] = [
        encode(Parcel(a_message(3, 1), (0,)), b"x" * 16, LAYOUT),
        parcel(a_message(3, 1), 0, layout=b"another!"),
        honest[:-1],
        honest[: HEADER.size - 1],
        honest[:0],
        np.concatenate([honest, honest[:1]]),
        honest.view(np.int8),
        honest.reshape(2, -1),
        None,
        "packet",
        bytes(honest),
        parcel(a_message(0, 1), 0),  # from one of its own
        parcel(a_message(77, 1), 0),  # from nobody
        hello(9),
        hello(0),
    ]
    for packet in odd:
        assert refused(proxy, packet) == 1
    assert refused(proxy, *odd) == len(odd)
    assert refused(proxy) == 0


def test_parcels_for_members_of_other_hosts_are_not_for_us() -> None:
    proxy = a_proxy(0)
    proxy.leave(1)
    proxy.deliver(parcel(a_message(3, 1), 0, 1, 2, 99))
    work(proxy, [proxy, Gone()])
    assert list(proxy.boxes._unread) == [0, 1]  # the one that has left receives it in a resumed run
    assert proxy.boxes.refused == 0


def test_a_host_with_other_models_makes_members_fail() -> None:
    proxy = a_proxy(0)
    call = begun(proxy, "collect", 0, {3: 1}, 0)
    next(call)
    proxy.deliver(hello(1, layout=UNKNOWN))  # nobody has joined there yet
    work(proxy, [proxy, Gone()])
    next(call)
    proxy.deliver(hello(1, layout=b"another!"))
    work(proxy, [proxy, Gone()])
    with pytest.raises(LayoutMismatch, match="host 1"):  # although it waits
        next(call)
    with pytest.raises(LayoutMismatch):
        proxy.collect(1, {}, 0)


# A program in which somebody throws garbage at a proxy's door while others train

NOISE = 160  # packets
STEPS = 4 * 2 * 4 * 120
TASK = a_task(rollout_length=4)


def rogue(ctx: Context, proxy: Any, token: bytes) -> None:
    """Knows the token of the run: what it throws gets as far as garbage can."""
    rng = np.random.default_rng(1)
    for _ in range(NOISE // 4):
        proxy.deliver(*(garbage(rng, token) for _ in range(4)))


def noisy() -> Program:
    gossip = Gossiping(staleness=4, period=0)
    program = PALA(hosts=2, learners=2, num_envs=2).program(TASK, gossip=gossip, couriers=1)
    with program.host("elsewhere"):
        program.worker(rogue)(Ref(0), program.services[0].kwargs["token"])
    return program


@pytest.mark.parametrize("launch", [Simulation(0), threads], ids=["simulation", "threads"])
def test_training_goes_on_unaffected_by_garbage(launch: Any) -> None:
    watcher, before = Watcher(steps=STEPS), threading.active_count()
    launch(noisy(), watcher)
    reports = watcher.records
    assert watcher.budget.acted == STEPS
    traffic = [part for report in reports for part in report.exchange if isinstance(part, Traffic)]
    assert sum(part.refused for part in traffic) == NOISE
    assert sum(part.mixed for part in traffic) > 0
    assert threading.active_count() <= before


def test_after_a_restart_only_members_that_have_joined_again_are_active() -> None:
    """Others send all parameters to a member that is new to them: that must not be before it can receive them."""
    proxy = a_proxy(0, joined=False)
    proxy.tick(51.0, restarts=1)
    assert proxy._reached() == {}
    proxy.join(1, LAYOUT, again=True)
    assert proxy._reached() == {1: 0}
    first = a_proxy(0, joined=False)
    assert first._reached() == {0: 0, 1: 0}  # at the start of the program all are waited for
