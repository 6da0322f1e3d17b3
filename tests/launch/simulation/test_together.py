"""Calls to several hosts at the same time: what they take, and what becomes of them when hosts fail."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

import pytest
from some_services import Box, Lock, Reports

from gossamer.launch.simulation import Deadlock, Faults, Network, Simulation
from gossamer.program import Program
from gossamer.runtime import Context, Unreachable, together


def on_hosts(count: int, work: Any) -> Program:
    """`work` on the host `home`, with a box on each of so many other hosts."""
    program, boxes = Program("together"), list[Box]()
    for i in range(count):
        with program.host(f"host{i}"):
            boxes.append(program.service(Box)())
    with program.host("home"):
        program.worker(work)(boxes)
    return program


def add_everywhere(ctx: Context, boxes: list[Box]) -> None:
    """Reports the answers, and when they are all there."""
    for _ in range(2):
        answers = together([partial(box.add) for box in boxes])
        ctx.report([None if isinstance(each, Unreachable) else each for each in answers])
        ctx.report(ctx.now())


@pytest.mark.parametrize("hosts", [1, 5])
def test_calls_to_any_number_of_hosts_take_one_round_trip(hosts: int) -> None:
    reports, simulation = Reports(), Simulation(0, Network(latency=0.25))
    simulation(on_hosts(hosts, add_everywhere), reports)
    assert reports.of("add_everywhere") == [[1] * hosts, 0.5, [2] * hosts, 1.0]


def test_the_order_of_calls_that_arrive_at_the_same_time_is_that_of_the_seed() -> None:
    def order(seed: int) -> list[tuple[str, str]]:
        simulation = Simulation(seed, Network(latency=0.25))
        simulation(on_hosts(2, add_everywhere))
        return simulation.trace

    orders = [tuple(order(seed)) for seed in range(30)]
    assert orders == [tuple(order(seed)) for seed in range(30)]
    assert len(set(orders)) == 2 * 2  # of two calls each time


def test_messages_to_several_hosts_share_the_links_of_their_sender() -> None:
    """Parts of 1 MB at 1 MB/s: the three leave one after the other, the last one by 3 s, and a round trip has two
    latencies. Then answers of 2 MB each leave their hosts at the same time, and come in one after the other."""

    def swap(ctx: Context, boxes: list[Box]) -> None:
        together([partial(box.put, 1.0) for box in boxes])
        ctx.report(ctx.now())
        together([partial(box.add) for box in boxes])
        ctx.report(ctx.now())

    def size(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        return 1e6 if method == "put" else 2e6 * bool(args)

    reports = Reports()
    Simulation(0, Network(latency=0.25, bandwidth=1e6, size=size))(on_hosts(3, swap), reports)
    assert reports.of("swap") == [3 + 0.5, 3.5 + 0.5 + 3 * 2]


def test_a_host_that_is_away_does_not_keep_the_answers_of_the_others() -> None:
    """The first calls are on their way when it crashes, at 0.1; the second ones find it down."""
    reports = Reports()
    faults = Faults(crashes=[(0.1, "host1", inf)])
    Simulation(0, Network(latency=0.25, timeout=2.0), faults)(on_hosts(3, add_everywhere), reports)
    assert reports.of("add_everywhere") == [[1, None, 1], 2.0, [2, None, 2], 4.0]


@pytest.mark.parametrize("when", [0.1, 0.3])  # on the way there, on the way back
def test_calls_of_a_host_that_crashes_end_with_it(when: float) -> None:
    """It is back at once and makes two calls to each of the boxes."""
    reports = Reports()
    faults = Faults(crashes=[(when, "home", 0.0)])
    Simulation(0, Network(latency=0.25), faults)(on_hosts(2, add_everywhere), reports)
    before = int(when > 0.25)  # had been carried out
    assert reports.of("add_everywhere") == [[1 + before] * 2, when + 0.5, [2 + before] * 2, when + 1.0]


def test_calls_that_wait_for_ever_are_a_deadlock() -> None:
    def take(ctx: Context, boxes: list[Box]) -> None:
        together([partial(box.get) for box in boxes])

    def tick(ctx: Context) -> None:
        while not ctx.stopped:
            ctx.sleep(1.0)

    program = on_hosts(2, take)
    program.worker(tick)()
    with pytest.raises(Deadlock) as caught:
        Simulation(0, Network(latency=0.25), patience=50.0)(program)
    assert caught.value.waiting.keys() == {"take"}


def test_calls_that_wait_go_on_when_their_service_changes() -> None:
    def take(ctx: Context, locks: list[Lock]) -> None:
        together([partial(lock.take) for lock in locks])
        ctx.report(ctx.now())

    def hold(ctx: Context, lock: Lock, seconds: float) -> None:
        lock.take()
        ctx.sleep(seconds)
        lock.free()

    program, reports, locks = Program("locks"), Reports(), list[Lock]()
    for i in range(3):
        with program.host(f"host{i}"):
            locks.append(program.service(Lock)())
            program.worker(hold)(locks[-1], seconds=[4.0, 2.0, 3.0][i])
    with program.host("home"):
        program.worker(take)(locks)
    simulation = Simulation(0, Network(latency=0.25))
    simulation(program, reports)
    assert reports.of("take") == [4.25]  # when the last one is free, and the way back


def test_the_error_of_a_service_is_raised_where_the_calls_were_made() -> None:
    def wrong(ctx: Context, boxes: list[Box]) -> None:
        with pytest.raises(TypeError, match="3 were given"):
            together([partial(boxes[0].add), partial(boxes[1].add, 1, 2)])
        ctx.report(ctx.now())

    reports = Reports()
    Simulation(0, Network(latency=0.25))(on_hosts(2, wrong), reports)
    assert reports.of("wrong") == [0.5]
