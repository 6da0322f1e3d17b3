"""What calls between hosts take, who pays for it, and what gets lost."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import pytest
from some_services import Box, Reports

from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.launch.simulation.network import payload
from gossamer.program import Program
from gossamer.runtime import Context, Unreachable

MEGABYTE = 1e6


def megabytes(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Every message is as large as the number in it says."""
    return MEGABYTE * args[0]


def send(ctx: Context, box: Box, size: float, times: int = 1) -> None:
    for _ in range(times):
        box.put(size)
    ctx.report(ctx.now())


def sent(routes: list[tuple[str, str, float]], network: Network, seed: int = 0) -> list[float]:
    """When each of the couriers, (from, to, megabytes), has its answer; all set out at 0."""
    program, boxes = Program("couriers"), dict[str, Box]()
    for _, to, _ in routes:
        with program.host(to):
            boxes[to] = boxes.get(to) or program.service(Box)()
    for source, to, size in routes:
        with program.host(source):
            program.worker(send)(boxes[to], size)
    simulation = Simulation(seed, network)
    simulation(program)
    return [simulation.clocks[copy.name] for copy in program.crew]


@pytest.mark.parametrize("latency", [0.0, 0.04])
def test_every_call_to_another_host_takes_its_caller_two_latencies(latency: float) -> None:
    def ask(ctx: Context, far: Box, near: Box) -> None:
        for _ in range(10):
            far.add()
            near.add()

    program, simulation = Program("ask"), Simulation(0, Network(latency=latency))
    with program.host("far"):
        far = program.service(Box)()
    with program.host("near"):
        near = program.service(Box)()
        program.worker(ask)(far, near)
    simulation(program)
    assert simulation.clocks["ask"] == pytest.approx(10 * 2 * latency)
    assert simulation.waited["ask"] == 0.0


def gossip(ctx: Context, mine: Box, others: Box, rounds: int) -> None:
    for step in range(rounds):
        others.put(step)
        mine.get()


@pytest.mark.parametrize("latency", [0.0, 0.04])
def test_the_network_is_charged_to_whoever_waits_for_it(latency: float) -> None:
    program, simulation, rounds = Program("ring"), Simulation(0, Network(latency=latency)), 20
    boxes = []
    for i in range(4):
        with program.host(f"host{i}"):
            boxes.append(program.service(Box)())
    for i in range(4):
        with program.host(f"host{i}"):
            program.worker(gossip)(boxes[i], boxes[(i + 1) % 4], rounds)
    simulation(program)
    if latency:
        assert simulation.now > rounds * latency
    else:
        assert simulation.now == 0.0


def test_one_message_takes_latency_and_its_bytes_over_the_bandwidth() -> None:
    network = Network(latency=0.25, bandwidth=2 * MEGABYTE, size=megabytes)
    # 0.25 + 3 / 2 there, and 0.25 for an answer of None
    assert sent([("a", "b", 3.0)], network) == [2.0]


@pytest.mark.parametrize("seed", range(5))
def test_couriers_of_one_host_share_its_uplink(seed: int) -> None:
    network = Network(bandwidth=MEGABYTE, size=megabytes)
    assert sorted(sent([("a", "b", 1.0), ("a", "b", 1.0)], network, seed)) == [1.0, 2.0]
    assert sorted(sent([("a", "b", 1.0), ("a", "c", 1.0)], network, seed)) == [1.0, 2.0]


@pytest.mark.parametrize("seed", range(5))
def test_what_goes_to_one_host_shares_its_downlink(seed: int) -> None:
    network = Network(bandwidth=MEGABYTE, size=megabytes)
    assert sorted(sent([("a", "c", 1.0), ("b", "c", 1.0)], network, seed)) == [1.0, 2.0]
    assert sorted(sent([("a", "c", 1.0), ("b", "d", 1.0)], network, seed)) == [1.0, 1.0]  # nothing shared
    assert sorted(sent([("a", "b", 1.0), ("b", "a", 1.0)], network, seed)) == [1.0, 1.0]  # up and down apart


@pytest.mark.parametrize("seed", range(5))
def test_links_serve_in_the_order_of_coming(seed: int) -> None:
    def later(ctx: Context, box: Box, size: float, pause: float) -> None:
        ctx.sleep(pause)
        send(ctx, box, size)

    program, simulation = Program("line"), Simulation(seed, Network(bandwidth=MEGABYTE, size=megabytes))
    with program.host("b"):
        box = program.service(Box)()
    with program.host("a"):
        program.worker(later)(box, 4.0, 0.0)
        program.worker(later)(box, 0.5, 1.0)  # has to wait for the large one, from 1 until 4
        program.worker(later)(box, 1.0, 6.0)  # finds the link idle
    simulation(program)
    assert simulation.clocks == {"later[0]": 4.0, "later[1]": 4.5, "later[2]": 7.0}


@pytest.mark.parametrize("seed", range(5))
def test_a_service_does_the_work_of_one_call_at_a_time(seed: int) -> None:
    def seconds(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        return float(args[0])

    network = Network(latency=0.25, work=seconds)
    # Both requests arrive at 0.25. Work until 1.25 and until 3.25, or until 2.25 and until 3.25; then the answer
    assert sent([("a", "c", 1.0), ("b", "c", 2.0)], network, seed) in ([1.5, 3.5], [3.5, 2.5])
    assert sent([("a", "c", 1.0), ("b", "d", 2.0)], network, seed) == [1.5, 2.5]  # two services
    assert sent([("a", "a", 1.0)], network, seed) == [0.0]  # within a host


def test_a_call_whose_service_crashes_during_its_work_has_no_effect() -> None:
    def ask(ctx: Context, box: Box) -> None:
        try:
            box.put("lost")
        except Unreachable:
            ctx.report(ctx.now())
        ctx.sleep(5.0)
        box.put("kept")
        ctx.report((ctx.now(), box.get()))

    program, reports = Program("crash"), Reports()
    with program.host("b"):
        box = program.service(Box)()
    with program.host("a"):
        program.worker(ask)(box)
    network = Network(timeout=4.0, work=lambda method, args, kwargs: 3.0 * (method == "put"))
    Simulation(0, network, Faults(crashes=[(1.0, "b", 1.0)]))(program, reports)
    # The work would have ended at 3; the caller gives up 4 s later. The new service is idle at 12, and has done at 15
    assert reports.of("ask") == [7.0, (15.0, "kept")]


def test_calls_within_a_host_are_free() -> None:
    assert sent([("a", "a", 5.0)], Network(latency=1.0, bandwidth=1.0, loss=1.0, size=megabytes)) == [0.0]


def test_an_answer_takes_its_size_the_other_way() -> None:
    def ask(ctx: Context, box: Box) -> None:
        box.get()

    program = Program("answer")
    with program.host("b"):
        box = program.service(Box)()
        program.worker(send)(box, 2.0)
    with program.host("a"):
        program.worker(ask)(box)

    def size(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        return MEGABYTE * (args[0] if args else 0.5)

    simulation = Simulation(0, Network(latency=0.25, bandwidth=MEGABYTE, size=size))
    simulation(program)
    assert simulation.clocks["ask"] == 3.0  # 0.25 + 0.5 there, 0.25 + 2 back


def test_a_wait_at_another_host_ends_when_the_answer_arrives() -> None:
    def give(ctx: Context, box: Box) -> None:
        ctx.sleep(4.0)
        box.put("it")

    def take(ctx: Context, box: Box) -> None:
        ctx.report((box.get(), ctx.now()))

    program, reports = Program("far wait"), Reports()
    with program.host("far"):
        box = program.service(Box)()
        program.worker(give)(box)
    with program.host("near"):
        program.worker(take)(box)
    simulation = Simulation(0, Network(latency=0.5))
    simulation(program, reports)
    assert reports.of("take") == [("it", 4.5)]
    assert simulation.waited == {"give": 0.0, "take": 3.5}  # there at 0.5, served at 4


def test_lost_calls_are_carried_out_where_only_the_answer_is_lost() -> None:
    def try_it(ctx: Context, box: Box, times: int) -> None:
        for i in range(times):
            before = ctx.now()
            try:
                box.put(i)
            except Unreachable:
                ctx.report((i, round(ctx.now() - before, 9)))

    def look(ctx: Context, box: Box) -> None:
        ctx.sleep(1e6)
        ctx.report(box.everything())

    program, reports, times = Program("loss"), Reports(), 400
    with program.host("far"):
        box = program.service(Box)()
        program.worker(look)(box)
    with program.host("near"):
        program.worker(try_it)(box, times)
    Simulation(3, Network(latency=0.1, loss=0.3, timeout=2.0))(program, reports)
    lost, arrived = dict(reports.of("try_it")), reports.of("look")[0]
    assert 80 < len(lost) < 160  # 0.3 * 400 = 120, four sigma are 37
    carried_out = lost.keys() & set(arrived)
    assert 30 < len(carried_out) < 90  # half of them
    assert len(arrived) == times - len(lost) + len(carried_out)
    # a request that is lost is given up after 2.0; a lost answer is missed 2.0 after it was sent, 0.1 later
    assert {lost[i] for i in carried_out} == {2.1}
    assert {lost[i] for i in lost.keys() - carried_out} == {2.0}


def test_what_is_lost_is_the_same_for_a_seed_and_leaves_what_is_not_drawn_alone() -> None:
    def program() -> Program:
        wired = Program("lossy")
        with wired.host("far"):
            box = wired.service(Box)()
        with wired.host("near"):
            wired.worker(ignore, copies=3)(box)
        return wired

    def ignore(ctx: Context, box: Box) -> None:
        for i in range(20):
            try:
                box.put((ctx.rank, i))
            except Unreachable:
                ctx.report((ctx.now(), i))

    def run(seed: int) -> tuple[Any, ...]:
        reports, simulation = Reports(), Simulation(seed, Network(latency=0.01, bandwidth=1e5, loss=0.2))
        simulation(program(), reports)
        return reports.records, simulation.trace, simulation.clocks

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_a_partition_cuts_calls_across_until_it_heals() -> None:
    def try_it(ctx: Context, box: Box) -> None:
        for _ in range(8):
            try:
                box.put(ctx.now())
                ctx.report(("there", ctx.now()))
            except Unreachable:
                ctx.report(("cut", ctx.now()))
            ctx.sleep(1.0)

    program, reports = Program("partition"), Reports()
    with program.host("far"):
        box = program.service(Box)()
    for host in ("near", "far", "friend"):  # the friend is on the far side
        with program.host(host):
            program.worker(try_it)(box)
    faults = Faults(partitions=[(2.0, 5.5, {"near"})])
    Simulation(0, Network(timeout=1.0), faults)(program, reports)
    # near: there at 0 and 1, cut from 2 to 3, from 4 to 5, there again at 6
    assert reports.of("try_it[0]")[:5] == [("there", 0.0), ("there", 1.0), ("cut", 3.0), ("cut", 5.0), ("there", 6.0)]
    assert [what for what, _ in reports.of("try_it[1]")] == ["there"] * 8
    assert [what for what, _ in reports.of("try_it[2]")] == ["there"] * 8


def test_a_service_cut_off_from_another_is_told_at_once() -> None:
    class Desk:
        def __init__(self, box: Box) -> None:
            self.box = box

        def hand_in(self, item: str) -> None:
            self.box.put(item)

    def hand_in(ctx: Context, desk: Desk) -> None:
        for _ in range(2):
            try:
                desk.hand_in("letter")
                ctx.report("handed in")
            except Unreachable:
                ctx.report(ctx.now())
            ctx.sleep(1.0)

    program, reports = Program("desk"), Reports()
    with program.host("far"):
        box = program.service(Box)()
    with program.host("near"):
        program.worker(hand_in)(program.service(Desk)(box))
    Simulation(0, faults=Faults(partitions=[(0.0, 1.0, {"far"})]))(program, reports)
    assert reports.of("hand_in") == [0.0, "handed in"]


@dataclass
class Parcel:
    header: str
    vector: Any


def test_a_message_is_as_large_as_the_buffers_in_it() -> None:
    vector = np.zeros(250, np.float32)  # 1,000 bytes
    assert payload("m", (), {}) == 100.0
    assert payload("m", (1, "name", None, 2.5), {}) == 100.0
    assert payload("m", (vector,), {"more": vector}) == 2100.0
    assert payload("m", (b"12345", bytearray(10)), {"view": memoryview(vector)}) == 100.0 + 5 + 10 + 1000
    assert payload("m", ([vector, vector], (b"12",), {"k": vector}), {}) == 100.0 + 2000 + 2 + 1000
    assert payload("m", (Parcel("to", vector),), {}) == 1100.0
    assert payload("m", ([[vector]],), {}) == 100.0  # one level


@pytest.mark.parametrize(
    ("option", "value"),
    [("latency", -1.0), ("latency", inf), ("bandwidth", 0.0), ("loss", 1.5), ("loss", -0.1), ("timeout", -1.0)],
)
def test_a_network_that_cannot_be_is_refused(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{option}={value}"):
        Network(**{option: value})
