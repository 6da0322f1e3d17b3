"""Hosts that die take all they hold along, and come back without it."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from some_services import Box, Reports

from gossamer.launch.simulation import Deadlock, Faults, Network, Simulation
from gossamer.program import Program
from gossamer.runtime import Context, Unreachable


def count(ctx: Context, box: Box, times: int) -> None:
    ctx.report(("begin", ctx.restarts, ctx.now(), ctx.restored()))
    for i in range(times):
        ctx.sleep(1.0)
        box.add()
        ctx.save(i)
    ctx.report(("end", box.add(), ctx.now()))


def ask(ctx: Context, box: Box, times: int) -> None:
    for _ in range(times):
        ctx.sleep(1.0)
        try:
            ctx.report((box.add(), ctx.now()))
        except Unreachable:
            ctx.report(("unreachable", ctx.now()))


def counting() -> Program:
    program = Program("counting")
    with program.host("far"):
        box = program.service(Box)()
        program.worker(count)(box, times=4)
    with program.host("near"):
        program.worker(ask)(box, times=6)
    return program


def test_a_host_that_comes_back_begins_anew_and_others_reach_the_new_one() -> None:
    reports, faults = Reports(), Faults(crashes=[(2.5, "far", 2.0)])
    simulation = Simulation(0, Network(timeout=1.0), faults)
    simulation(counting(), reports)
    # The worker counts 1 and 2 at 1 and 2, dies at 2.5, begins again at 4.5 with the state it saved at 2.
    assert reports.of("count") == [("begin", 0, 0.0, None), ("begin", 1, 4.5, 1), ("end", 8, 8.5)]
    # near asks at 1 and 2 (each the first or the second there), in vain at 3 and, after 1 of time-out, at 5 the new one
    asked = reports.of("ask")
    assert [when for _, when in asked] == [1.0, 2.0, 4.0, 5.0, 6.0, 7.0]
    assert asked[2] == ("unreachable", 4.0)
    assert asked[3] == (1, 5.0)  # first to call the new service, which has lost its count
    assert simulation.crashes == [(2.5, "far")]
    assert simulation.clocks == {"count": 8.5, "ask": 7.0}


def test_a_restarted_worker_knows_which_others_had_ended() -> None:
    def live(ctx: Context, until: float) -> None:
        ctx.report(ctx.ended_before)
        ctx.sleep(until - ctx.now())

    program, reports = Program("ended"), Reports()
    for host, until in (("a", 1.0), ("b", 5.0), ("c", 9.0)):
        with program.host(host):
            program.worker(live)(until)
    Simulation(0, faults=Faults(crashes=[(3.0, "c", 1.0), (7.0, "c", 1.0)]))(program, reports)
    assert reports.of("live[2]") == [frozenset(), {"live[0]"}, {"live[0]", "live[1]"}]


def test_a_host_that_never_comes_back_is_unreachable_for_ever_and_no_failure() -> None:
    reports, faults = Reports(), Faults(crashes=[(2.5, "far", inf)])
    simulation = Simulation(0, Network(timeout=1.0), faults)
    simulation(counting(), reports)
    assert reports.of("count") == [("begin", 0, 0.0, None)]
    assert [what for what, _ in reports.of("ask")[2:]] == ["unreachable"] * 4
    assert simulation.clocks == {"count": 2.5, "ask": 10.0}  # 2, and four times 1 of sleep and 1 of time-out


def test_who_waits_in_a_service_that_dies_is_told_after_the_time_out() -> None:
    def wait(ctx: Context, box: Box) -> None:
        try:
            box.get()
        except Unreachable:
            ctx.report(ctx.now())
        ctx.report(box.until(2))

    def give(ctx: Context, box: Box) -> None:
        if ctx.restarts:
            for _ in range(2):
                ctx.sleep(5.0)
                box.add()
        else:
            ctx.sleep(inf)

    program, reports = Program("waiting"), Reports()
    with program.host("far"):
        box = program.service(Box)()
        program.worker(give)(box)
    with program.host("near"):
        program.worker(wait)(box)
    Simulation(0, Network(latency=0.25, timeout=2.0), Faults(crashes=[(3.0, "far", 1.0)]))(program, reports)
    assert reports.of("wait") == [5.0, 2]  # then it waits at the new one


def test_the_dead_survive_by_nothing_and_do_nothing() -> None:
    def cling(ctx: Context, box: Box) -> None:
        while not ctx.restarts:
            try:
                ctx.sleep(10.0)
            except Exception:
                ctx.report("an exception like any other")
            finally:
                if ctx.restarts == 0:
                    for last in (ctx.now, ctx.stop, box.add, lambda: ctx.report("alive"), lambda: ctx.save("state")):
                        with pytest.raises(BaseException, match="host 'far' has crashed"):
                            last()
        ctx.report("again")

    program, reports = Program("cling"), Reports()
    with program.host("near"):
        box = program.service(Box)()
    with program.host("far"):
        program.worker(cling)(box)
    simulation = Simulation(0, faults=Faults(crashes=[(5.0, "far", 1.0)]))
    simulation(program, reports)
    assert reports.records == [("cling", "again")]
    assert reports.states == {}
    assert simulation.trace == []


def test_clearing_up_that_fails_after_a_crash_is_no_failure_of_the_program() -> None:
    def work(ctx: Context) -> None:
        try:
            ctx.sleep(10.0)
        finally:
            if ctx.restarts == 0:
                raise RuntimeError("nothing is left to clear up")
        ctx.report(ctx.now())

    program, reports = Program("clear up"), Reports()
    program.worker(work)()
    Simulation(0, faults=Faults(crashes=[(5.0, "main", 1.0)]))(program, reports)
    assert reports.of("work") == [16.0]


def test_workers_that_had_ended_do_not_run_again() -> None:
    def work(ctx: Context, seconds: float) -> None:
        ctx.sleep(seconds)
        ctx.report(("done", ctx.now()))

    program, reports = Program("ended"), Reports()
    program.worker(work)(1.0)
    program.worker(work)(3.0)
    Simulation(0, faults=Faults(crashes=[(2.0, "main", 1.0)]))(program, reports)
    assert reports.records == [("work[0]", ("done", 1.0)), ("work[1]", ("done", 6.0))]


def test_a_host_dies_at_once_even_if_it_comes_back_at_once() -> None:
    def work(ctx: Context, box: Box) -> None:
        box.add()
        ctx.sleep(2.0)
        ctx.report((ctx.restarts, box.add(), ctx.now()))

    program, reports = Program("blink"), Reports()
    program.worker(work, copies=2)(program.service(Box)())
    Simulation(0, faults=Faults(crashes=[(1.0, "main", 0.0)]))(program, reports)
    assert sorted(record for _, record in reports.records) == [(1, 3, 3.0), (1, 4, 3.0)]


def test_crashes_come_before_all_else_that_happens_at_the_same_second() -> None:
    def work(ctx: Context) -> None:
        ctx.sleep(3.0)
        ctx.report((ctx.restarts, ctx.now()))

    program, reports = Program("same second"), Reports()
    for host in ("a", "b"):
        with program.host(host):
            program.worker(work)()
    # a comes back at 3, when b dies; b's worker would have reported at 3
    Simulation(0, faults=Faults(crashes=[(1.0, "a", 2.0), (3.0, "b", 4.0)]))(program, reports)
    assert reports.records == [("work[0]", (1, 6.0)), ("work[1]", (1, 10.0))]


def test_a_crash_before_anything_has_happened_only_delays_it() -> None:
    begun = list[int]()

    def work(ctx: Context) -> None:
        begun.append(ctx.restarts)
        ctx.report(ctx.now())

    program, reports = Program("before"), Reports()
    program.worker(work)()
    Simulation(0, faults=Faults(crashes=[(0.0, "main", 3.0)]))(program, reports)
    assert begun == [1]
    assert reports.of("work") == [3.0]


def test_a_service_is_told_at_once_that_another_is_down() -> None:
    class Desk:
        def __init__(self, box: Box) -> None:
            self.box = box

        def hand_in(self) -> int:
            return self.box.add()

    def hand_in(ctx: Context, desk: Desk) -> None:
        for _ in range(4):
            try:
                ctx.report(desk.hand_in())
            except Unreachable:
                ctx.report(("unreachable", ctx.now()))
            ctx.sleep(1.0)

    program, reports = Program("desk"), Reports()
    with program.host("far"):
        box = program.service(Box)()
    with program.host("near"):
        program.worker(hand_in)(program.service(Desk)(box))
    Simulation(0, faults=Faults(crashes=[(1.5, "far", 1.0)]))(program, reports)
    assert reports.of("hand_in") == [1, 2, ("unreachable", 2.0), 1]  # the desk's handle reaches the new one


def test_once_the_program_is_stopped_no_host_dies() -> None:
    def work(ctx: Context, box: Box) -> None:
        ctx.stop()
        ctx.report(box.add())

    program, reports = Program("stopped"), Reports()
    with program.host("far"):
        box = program.service(Box)()
    with program.host("near"):
        program.worker(work)(box)
    simulation = Simulation(0, Network(latency=1.0), Faults(crashes=[(0.5, "far", 10.0)]))
    simulation(program, reports)
    assert reports.records == [("work", 1)]
    assert (simulation.now, simulation.crashes) == (2.0, [])


def test_a_stop_while_a_host_is_down_ends_its_workers() -> None:
    def stop(ctx: Context) -> None:
        ctx.sleep(3.0)
        ctx.stop()

    def work(ctx: Context) -> None:
        ctx.report(ctx.restarts)
        ctx.sleep(100.0)

    program, reports, simulation = Program("stop"), Reports(), Simulation(0, faults=Faults(crashes=[(1.0, "far", 50)]))
    with program.host("far"):
        program.worker(work)()
    with program.host("near"):
        program.worker(stop)()
    simulation(program, reports)
    assert reports.records == [("work", 0)]
    assert simulation.now == 3.0


def test_a_service_that_cannot_be_made_again_fails_the_program() -> None:
    made = list[int]()

    class Once:
        def __init__(self) -> None:
            made.append(1)
            if len(made) > 1:
                raise RuntimeError("only once")

    def work(ctx: Context, once: Once) -> None:
        ctx.sleep(10.0)

    program = Program("once")
    program.worker(work)(program.service(Once)())
    with pytest.raises(RuntimeError, match="only once") as caught:
        Simulation(0, faults=Faults(crashes=[(5.0, "main", 1.0)]))(program)
    assert "in restart of host 'main'" in caught.value.__notes__


def test_waiting_for_the_dead_is_a_deadlock_only_if_they_never_come_back() -> None:
    def give(ctx: Context, box: Box) -> None:
        ctx.sleep(50.0)
        box.put("it")

    def take(ctx: Context, box: Box) -> None:
        ctx.report((box.get(), ctx.now()))

    def program() -> Program:
        wired = Program("wait for the dead")
        with wired.host("near"):
            box = wired.service(Box)()
            wired.worker(take)(box)
        with wired.host("far"):
            wired.worker(give)(box)
        return wired

    reports = Reports()
    Simulation(0, faults=Faults(crashes=[(1.0, "far", 5000.0)]), patience=10.0)(program(), reports)
    assert reports.of("take") == [("it", 5051.0)]
    with pytest.raises(Deadlock) as caught:
        Simulation(0, faults=Faults(crashes=[(1.0, "far", inf)]))(program(), Reports())
    assert caught.value.waiting == {"take": "Box.get"}


def outlive(ctx: Context, near: Box, far: Box) -> None:
    for _ in range(50):
        ctx.sleep(1.0)
        near.add()
        try:
            far.add()
        except Unreachable:
            ctx.report(("unreachable", ctx.now()))


def random_crashes(seed: int) -> tuple[Any, ...]:
    program, reports, boxes = Program("storm"), Reports(), list[Box]()
    for i in range(4):
        with program.host(f"host{i}"):
            boxes.append(program.service(Box)())
    for i in range(4):
        with program.host(f"host{i}"):
            program.worker(outlive)(boxes[i], boxes[(i + 1) % 4])
    faults = Faults(crash_rate=0.02, down_seconds=3.0, slow={"outlive[2]": 1.5}, partitions=[(10, 20, {"host0"})])
    simulation = Simulation(seed, Network(latency=0.05, bandwidth=1e5, loss=0.05, timeout=1.0), faults)
    simulation(program, reports)
    return simulation.crashes, simulation.trace, simulation.clocks, simulation.waited, reports.records


def test_random_crashes_come_at_their_rate_and_are_the_same_for_a_seed() -> None:
    runs = [random_crashes(seed) for seed in range(10)]
    assert [random_crashes(seed) for seed in range(10)] == runs
    assert len({tuple(crashes) for crashes, *_ in runs}) == 10
    for crashes, _, clocks, _, _ in runs:
        assert crashes == sorted(crashes)
        assert min(clocks.values()) >= 50.0  # everybody got through in the end
    # of a host that is up until its worker ends: about one crash in 50 s, and each makes the worker begin again
    lived = sum(sum(clocks.values()) for _, _, clocks, _, _ in runs)
    expected = 0.02 * lived
    assert 0.6 * expected < sum(len(crashes) for crashes, *_ in runs) < 1.6 * expected


def pass_time(ctx: Context, until: float) -> None:
    while ctx.now() < until:
        ctx.sleep(10.0)


def test_crashes_are_as_frequent_as_their_rate() -> None:
    # Hosts crash at r = 0.01 a second while they are up, and are down for 50 s each time. For N crashes while hosts
    # were up for U seconds in all, N - r U has mean 0 and variance E[r U]: within 4 sqrt(r U) but for 1 in 16,000 sets
    # of seeds. 20 hosts are up for 100 of 150 s: about 2,700 crashes in 20 runs of 1,000 s; the tolerance is 8 %.
    crashes = up = 0.0
    for seed in range(20):
        program = Program("sleepers")
        for i in range(20):
            with program.host(f"host{i}"):
                program.worker(pass_time)(1_000.0)
        simulation = Simulation(seed, faults=Faults(crash_rate=0.01, down_seconds=50.0))
        simulation(program)
        end = max(simulation.clocks.values())
        crashes += len(simulation.crashes)
        up += 20 * end - sum(min(50.0, end - when) for when, _ in simulation.crashes)
    assert 2_000 < 0.01 * up < 3_400
    assert abs(crashes - 0.01 * up) <= 4 * (0.01 * up) ** 0.5


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (lambda: Faults(slow={"work": 0.0}), r"slow\['work'\]=0"),
        (lambda: Faults(crash_rate=-1.0), "crash_rate=-1"),
        (lambda: Faults(down_seconds=-1.0), "down_seconds=-1"),
        (lambda: Faults(crashes=[(-1.0, "main", 1.0)]), "crashes: "),
        (lambda: Faults(partitions=[(2.0, 1.0, {"main"})]), "from 2.0 to 1.0"),
        (lambda: Simulation(faults=Faults(slow={"nobody": 2.0}))(counting()), "nobody"),
        (lambda: Simulation(faults=Faults(crashes=[(1.0, "nowhere", 1.0)]))(counting()), "nowhere"),
        (lambda: Simulation(faults=Faults(partitions=[(0.0, 1.0, {"nowhere"})]))(counting()), "nowhere"),
    ],
)
def test_faults_that_cannot_be_are_refused(faults: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        faults()


def test_hosts_that_are_spared_never_crash_by_chance() -> None:
    program = Program("spared")
    for name in ("learner", "actors"):
        with program.host(name):
            program.worker(pass_time)(until=100.0)
    simulation = Simulation(0, faults=Faults(crash_rate=0.1, down_seconds=0.0, spared={"learner"}))
    simulation(program)
    assert {host for _, host in simulation.crashes} == {"actors"}
    with pytest.raises(ValueError, match=r"spared: no hosts \['nobody'\]"):
        Simulation(faults=Faults(spared={"nobody"}))(program)
