"""Clocks that only what takes time moves on, and deadlocks among workers that go on in vain."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from some_services import Box, Lock, Reports

from gossamer.launch.simulation import Deadlock, Faults, Network, Simulation
from gossamer.program import Program
from gossamer.runtime import Context, Wait, waits


def test_a_clock_starts_at_zero_and_only_sleep_moves_it_on() -> None:
    def work(ctx: Context, box: Box) -> None:
        ctx.report(ctx.now())
        box.add()
        ctx.report(ctx.now())
        ctx.sleep(1.5)
        ctx.sleep(0.0)
        ctx.sleep(-3.0)
        ctx.report(ctx.now())

    program, reports, simulation = Program("clock"), Reports(), Simulation(0)
    program.worker(work)(program.service(Box)())
    simulation(program, reports)
    assert reports.of("work") == [0.0, 0.0, 1.5]
    assert simulation.clocks == {"work": 1.5}
    assert simulation.now == 1.5
    assert simulation.turns == 5  # to begin, for the call, and for three sleeps


def test_who_waits_goes_on_at_the_time_of_the_change_and_knows_how_long_it_waited() -> None:
    def give(ctx: Context, box: Box) -> None:
        for _ in range(2):
            ctx.sleep(2.0)
            box.put("it")
        ctx.sleep(10.0)

    def take(ctx: Context, box: Box) -> None:
        ctx.sleep(0.5)
        box.get()
        ctx.report(ctx.now())
        ctx.sleep(3.0)
        box.get()
        ctx.report(ctx.now())

    program, reports, simulation = Program("wait"), Reports(), Simulation(0)
    box = program.service(Box)()
    program.worker(give)(box)
    program.worker(take)(box)
    simulation(program, reports)
    assert reports.of("take") == [2.0, 5.0]  # there at 0.5 it comes at 2; the one of 4 lies there at 5
    assert simulation.waited == {"give": 0.0, "take": 1.5}
    assert simulation.clocks == {"give": 14.0, "take": 5.0}


plans = st.lists(
    st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0]), st.booleans()), max_size=6), min_size=1, max_size=5
)


@settings(max_examples=60, deadline=None)
@given(plans=plans, seed=st.integers(0, 1000), latency=st.sampled_from([0.0, 0.25, 0.4]))
def test_calls_reach_a_service_in_the_order_of_virtual_time(
    plans: list[list[tuple[float, bool]]], seed: int, latency: float
) -> None:
    def call(ctx: Context, here: Box, there: Box, plan: list[tuple[float, bool]]) -> None:
        for pause, far in plan:
            ctx.sleep(pause)
            if far:
                there.put(ctx.now() + latency)  # when it will be there
            else:
                here.put(ctx.now())
        ctx.report("done")

    def look(ctx: Context, *boxes: Box) -> None:
        ctx.sleep(1e6)
        ctx.report([box.everything() for box in boxes])

    program, reports = Program("order"), Reports()
    with program.host("there"):
        there = program.service(Box)()
    with program.host("here"):
        here = program.service(Box)()
        for plan in plans:
            program.worker(call)(here, there, plan)
        program.worker(look)(here, there)
    Simulation(seed, Network(latency=latency))(program, reports)
    near, far = reports.of("look")[0]
    assert len(near) + len(far) == sum(map(len, plans))
    assert near == sorted(near)
    assert far == sorted(far)


def test_among_equal_clocks_every_order_is_the_order_of_some_seed() -> None:
    def come(ctx: Context) -> None:
        ctx.sleep(1.0)
        ctx.report(ctx.now())

    orders = Counter[tuple[str, ...]]()
    for seed in range(300):
        program, reports = Program("equal"), Reports()
        program.worker(come, copies=3)()
        Simulation(seed)(program, reports)
        orders[tuple(who for who, _ in reports.records)] += 1
    assert len(orders) == 6  # 3!
    assert min(orders.values()) > 20  # of 50 expected: about six sigma


def test_who_comes_back_at_the_same_second_does_not_overtake_for_ever() -> None:
    def look(ctx: Context) -> None:
        looks = 0
        while not ctx.stopped:
            looks += 1
        ctx.report(looks)

    def stop(ctx: Context) -> None:
        ctx.stop()

    looks = []
    for seed in range(300):
        program, reports = Program("fair"), Reports()
        program.worker(look)()
        program.worker(stop)()
        Simulation(seed)(program, reports)
        looks += reports.of("look")
    # Even odds at every turn: n looks or more in 2^-n of the runs (a random number kept by whoever has not come to
    # its turn would make it about 1/n: six in these 300 with 50 or more).
    assert max(looks) < 30


def busy(ctx: Context, box: Box, other: Box) -> None:
    for _ in range(5):
        ctx.sleep(0.3)
        box.put(ctx.now())
        other.put(ctx.rank)
        box.get()


def busy_program() -> Program:
    program = Program("busy")
    boxes = []
    for i in range(3):
        with program.host(f"host{i}"):
            boxes.append(program.service(Box)())
    for i in range(3):
        with program.host(f"host{i}"):
            program.worker(busy)(boxes[i], boxes[(i + 1) % 3])
    return program


def test_the_same_seed_gives_the_same_trace_and_the_same_clocks() -> None:
    network = Network(latency=0.04, bandwidth=1e3)
    one, two = Simulation(5, network), Simulation(5, network)
    one(busy_program())
    two(busy_program())
    assert one.trace == two.trace
    assert (one.clocks, one.waited, one.turns, one.now) == (two.clocks, two.waited, two.turns, two.now)
    first = one.clocks
    one(busy_program())
    assert one.clocks == first  # a second run starts anew


def test_a_stop_ends_those_who_sleep_and_those_who_wait_now() -> None:
    def sleep(ctx: Context) -> None:
        ctx.sleep(1_000_000.0)
        ctx.report(ctx.now())
        ctx.sleep(1_000_000.0)
        ctx.report(ctx.now())

    def wait(ctx: Context, box: Box) -> None:
        box.get()

    def stop(ctx: Context) -> None:
        ctx.sleep(3.0)
        ctx.stop()

    program, reports, simulation = Program("stop"), Reports(), Simulation(0)
    program.worker(sleep)()
    program.worker(wait)(program.service(Box)())
    program.worker(stop)()
    simulation(program, reports)
    assert reports.of("sleep") == [3.0, 3.0]
    assert simulation.clocks == {"sleep": 3.0, "wait": 3.0, "stop": 3.0}
    assert simulation.waited["wait"] == 3.0


def test_an_observer_that_asks_to_end_ends_those_who_sleep() -> None:
    class Impatient(Reports):
        def report(self, worker: str, record: Any) -> None:
            super().report(worker, record)
            self.wants_end = record == "enough"

    def sleep(ctx: Context) -> None:
        ctx.sleep(inf)
        ctx.report(ctx.now())

    def work(ctx: Context) -> None:
        ctx.sleep(2.0)
        ctx.report("enough")

    program, reports = Program("end"), Impatient()
    program.worker(sleep)()
    program.worker(work)()
    Simulation(0)(program, reports)
    assert reports.of("sleep") == [2.0]


def watch(ctx: Context, box: Box) -> None:
    while not ctx.stopped:
        ctx.sleep(1.0)
        box.add()


def cross(ctx: Context, first: Lock, second: Lock) -> None:
    first.take()
    ctx.sleep(1.0)
    second.take()


def crossing(*, watchers: int) -> Program:
    program = Program("crossing")
    left, right = program.service(Lock)(), program.service(Lock)()
    program.worker(cross)(left, right)
    program.worker(cross)(right, left)
    if watchers:
        program.worker(watch, copies=watchers)(program.service(Box)())
    return program


@pytest.mark.parametrize("watchers", [0, 1, 3])
def test_a_loop_that_ticks_for_ever_hides_no_deadlock(watchers: int) -> None:
    simulation = Simulation(0, patience=50.0)
    with pytest.raises(Deadlock) as caught:
        simulation(crossing(watchers=watchers))
    assert caught.value.waiting == {"cross[0]": "Lock[1].take", "cross[1]": "Lock[0].take"}
    # both park at 1; alone it is clear at once, else after 50 in vain
    assert simulation.now == (1.0 if not watchers else 51.0)
    assert simulation.waited["cross[0]"] == simulation.now - 1.0


def test_patience_without_end_leaves_a_ticking_program_alone() -> None:
    def end(ctx: Context) -> None:
        ctx.sleep(5_000.0)
        ctx.stop()

    program, simulation = crossing(watchers=1), Simulation(0, patience=inf)
    program.worker(end)()
    simulation(program)
    assert simulation.now == 5_000.0


def test_a_worker_that_sleeps_for_long_before_it_lets_others_go_on_is_no_deadlock() -> None:
    def give(ctx: Context, box: Box) -> None:
        ctx.sleep(700.0)
        box.put("it")

    def take(ctx: Context, box: Box) -> None:
        for _ in range(3):
            ctx.report((box.get(), ctx.now()))
        ctx.stop()

    for patience in (1.0, 100.0):
        program, reports = Program("long"), Reports()
        box = program.service(Box)()
        for _ in range(3):
            program.worker(give)(box)
        program.worker(take)(box)
        program.worker(watch)(program.service(Box)())
        Simulation(0, patience=patience)(program, reports)
        assert reports.of("take") == [("it", 700.0)] * 3


def put_at(ctx: Context, box: Box, second: int, then: int = 0) -> None:
    """Look at the clock every second, put something there at one of them, and stay a while."""
    for _ in range(second):
        ctx.sleep(1.0)
    box.put("it")
    for _ in range(then):
        ctx.sleep(1.0)


def test_a_wait_that_ended_gives_the_others_patience_anew() -> None:
    def pass_on(ctx: Context, box: Box, last: Box) -> None:
        box.get()
        put_at(ctx, last, 70)

    def take(ctx: Context, last: Box) -> None:
        ctx.report((last.get(), ctx.now()))

    program, reports = Program("pass on"), Reports()
    box, last = program.service(Box)(), program.service(Box)()
    program.worker(put_at)(box, 90, then=100)
    program.worker(pass_on)(box, last)
    program.worker(take)(last)
    Simulation(0, patience=100.0)(program, reports)
    assert reports.of("take") == [("it", 160.0)]


def test_an_end_gives_the_others_patience_anew() -> None:
    def take(ctx: Context, box: Box) -> None:
        ctx.report((box.get(), ctx.now()))

    program, reports = Program("ends"), Reports()
    box, other = program.service(Box)(), program.service(Box)()
    program.worker(put_at)(other, 90)
    program.worker(put_at)(box, 160)
    program.worker(take)(box)
    Simulation(0, patience=100.0)(program, reports)
    assert reports.of("take") == [("it", 160.0)]


def test_who_sleeps_until_the_end_hides_no_deadlock() -> None:
    def sleep(ctx: Context) -> None:
        ctx.sleep(inf)

    program, simulation = crossing(watchers=1), Simulation(0, patience=50.0)
    program.worker(sleep)()
    with pytest.raises(Deadlock) as caught:
        simulation(program)
    assert simulation.now == 51.0
    assert caught.value.waiting["sleep"] == "Context.stopped"
    assert caught.value.waiting["cross[0]"] == "Lock[1].take"


@pytest.mark.parametrize("seed", range(10))
def test_before_it_is_a_deadlock_everybody_looks_once_more(seed: int) -> None:
    opened = set[int]()

    class Door:
        @waits
        def enter(self, number: int) -> Wait[None]:
            while number not in opened:
                yield

    def enter(ctx: Context, door: Door, bell: Box) -> None:
        for number in range(3):
            door.enter(number)
            bell.put("next")

    def unlock(ctx: Context, bell: Box) -> None:
        for number in range(3):
            opened.add(number)  # behind the door's back
            bell.get()

    program = Program("doors")
    door, bell = program.service(Door)(), program.service(Box)()
    program.worker(enter)(door, bell)
    program.worker(unlock)(bell)
    simulation = Simulation(seed)
    simulation(program)
    assert len(simulation.trace) == 9


def test_sleepers_alone_are_no_deadlock() -> None:
    def work(ctx: Context, box: Box) -> None:
        for _ in range(100):
            ctx.sleep(1.0)
            box.add()

    program, simulation = Program("alone"), Simulation(0, patience=10.0)
    program.worker(work, copies=2)(program.service(Box)())
    simulation(program)
    assert simulation.now == 100.0


def test_what_lets_somebody_go_on_now_and_then_is_no_deadlock() -> None:
    def give(ctx: Context, box: Box) -> None:
        for _ in range(400):
            ctx.sleep(1.0)
            if ctx.now() % 40 == 0:
                box.put("it")
        ctx.stop()

    def take(ctx: Context, box: Box) -> None:
        while True:
            ctx.report(box.get())

    program, reports = Program("now and then"), Reports()
    box = program.service(Box)()
    program.worker(give)(box)
    program.worker(take)(box)
    Simulation(0, patience=50.0)(program, reports)
    assert len(reports.of("take")) == 10
    with pytest.raises(Deadlock):
        Simulation(0, patience=30.0)(program, Reports())


@pytest.mark.parametrize("seed", range(10))
def test_a_change_between_two_waits_is_noticed_before_time_goes_on(seed: int) -> None:
    class Queue:
        def __init__(self) -> None:
            self.items = list[int]()

        @waits
        def put_all(self, items: list[int]) -> Wait[None]:
            for item in items:
                while self.items:
                    yield
                self.items.append(item)

        @waits
        def get(self) -> Wait[int]:
            while not self.items:
                yield
            return self.items.pop(0)

    def put_all(ctx: Context, queue: Queue) -> None:
        queue.put_all([1, 2, 3])  # fills the queue again on its way to the very same `yield`

    def get(ctx: Context, queue: Queue) -> None:
        for _ in range(3):
            ctx.report((queue.get(), ctx.now()))
        ctx.stop()

    program, reports = Program("all"), Reports()
    queue = program.service(Queue)()
    program.worker(put_all)(queue)
    program.worker(get)(queue)
    program.worker(watch)(program.service(Box)())
    Simulation(seed)(program, reports)
    assert reports.of("get") == [(1, 0.0), (2, 0.0), (3, 0.0)]


def test_a_slow_worker_sleeps_longer() -> None:
    def work(ctx: Context) -> None:
        for _ in range(4):
            ctx.sleep(0.5)

    program, simulation = Program("slow"), Simulation(0, faults=Faults(slow={"work[1]": 2.5}))
    program.worker(work, copies=3)()
    simulation(program)
    assert simulation.clocks == {"work[0]": 2.0, "work[1]": 5.0, "work[2]": 2.0}  # 4 * 0.5 * 2.5 = 5


def test_figures_are_there_after_a_run_that_failed() -> None:
    def fail(ctx: Context) -> None:
        ctx.sleep(2.0)
        raise RuntimeError("by hand")

    program, simulation = Program("fails"), Simulation(0)
    program.worker(fail)()
    with pytest.raises(RuntimeError, match="by hand"):
        simulation(program)
    assert simulation.clocks == {"fail": 2.0}
    assert simulation.turns == 2


class Fragile:
    """Calls that have waited fail."""

    def __init__(self) -> None:
        self.broken = False

    def break_down(self) -> str:
        self.broken = True
        return "done"

    @waits
    def hold(self) -> Wait[None]:
        while not self.broken:
            yield
        raise OSError("broken")


def test_an_error_after_waiting_is_raised_where_the_call_was_made() -> None:
    def hold(ctx: Context, fragile: Fragile) -> None:
        try:
            fragile.hold()
        except OSError as error:
            ctx.report((str(error), ctx.now()))

    def strike(ctx: Context, fragile: Fragile) -> None:
        ctx.sleep(2.0)
        ctx.report(fragile.break_down())

    program, reports = Program("fragile"), Reports()
    fragile = program.service(Fragile)()
    program.worker(hold, copies=3)(fragile)
    program.worker(strike)(fragile)
    Simulation(0)(program, reports)
    assert reports.of("strike") == ["done"]
    assert [reports.of(f"hold[{rank}]") for rank in range(3)] == [[("broken", 2.0)]] * 3


def test_clocks_of_a_worker_only_go_forward() -> None:
    def work(ctx: Context, box: Box, other: Box) -> None:
        for _ in range(5):
            ctx.report(ctx.now())
            ctx.sleep(0.1 * (ctx.rank + 1))
            other.put("it")
            ctx.report(ctx.now())
            box.get()

    program, reports = Program("forward"), Reports()
    boxes = []
    for name in ("one", "two"):
        with program.host(name):
            boxes.append(program.service(Box)())
    for i, name in enumerate(("one", "two")):
        with program.host(name):
            program.worker(work)(boxes[i], boxes[1 - i])
    Simulation(0, Network(latency=0.3, bandwidth=1e4))(program, reports)
    for who in ("work[0]", "work[1]"):
        assert len(reports.of(who)) == 10
        assert all(a <= b for a, b in pairwise(reports.of(who)))


def test_patience_has_to_be_some() -> None:
    with pytest.raises(ValueError, match="patience=0"):
        Simulation(0, patience=0)
