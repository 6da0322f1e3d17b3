"""The same small programs on every launcher: the same answers, the same ends, the same errors."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from some_programs import (
    Barrier,
    Counter,
    Desk,
    Fifo,
    Impatient,
    Watcher,
    add_up,
    break_down,
    consume,
    count,
    produce,
    send_signal,
    wait_for_ever,
    work,
)

from gossamer.launch import base
from gossamer.launch import threads as threads_module
from gossamer.launch.base import EndWithout
from gossamer.launch.ray.launcher import Ray
from gossamer.launch.simulation import Simulation
from gossamer.launch.threads import threads
from gossamer.program import Program
from gossamer.runtime import Context, Stopped, Wait, WouldBlock, together, waits

Launcher = Callable[..., None]
ON_RAY = Ray(call_seconds=20.0, stop_seconds=2.0)
on_every_launcher = pytest.mark.parametrize(
    "launch",
    [
        pytest.param(threads, id="threads"),
        pytest.param(Simulation(3), id="simulation"),
        pytest.param(ON_RAY, id="ray", marks=pytest.mark.ray),
    ],
)


@on_every_launcher
def test_a_service_takes_one_call_at_a_time(launch: Launcher) -> None:
    program, watcher = Program("counter"), Watcher()
    counter = program.service(Counter)()
    program.worker(count, copies=2)(counter, times=25)
    with program.host("second"):
        program.worker(count, copies=2)(counter, times=25)
    launch(program, watcher)
    assert sorted(answer for _, answer in watcher.records) == list(range(1, 101))  # 4 x 25, none lost


@on_every_launcher
def test_a_queue_passes_everything_on_once_in_order_and_within_capacity(launch: Launcher) -> None:
    program, watcher = Program("queue"), Watcher()
    with program.host("queue"):
        queue = program.service(Fifo)(capacity=2)
        program.worker(produce)(queue, items=20)
    with program.host("producers"):
        program.worker(produce, copies=2)(queue, items=20)
    with program.host("consumers"):
        program.worker(consume, copies=2)(queue, items=30)
    launch(program, watcher)
    lengths = [record for who, record in watcher.records if who.startswith("produce")]
    assert len(lengths) == 60
    assert max(lengths) <= 2
    received = [record for who, record in watcher.records if who.startswith("consume")]
    assert sorted(received) == [(rank, item) for rank in range(3) for item in range(20)]
    for consumer in ("consume[0]", "consume[1]"):
        for rank in range(3):
            mine = [item for sender, item in watcher.of(consumer) if sender == rank]
            assert mine == sorted(mine)


@on_every_launcher
def test_calls_made_together_have_their_answers_in_order_and_a_stop_ends_them(launch: Launcher) -> None:
    def ask(ctx: Context, queues: tuple[Fifo, ...], asked: Fifo) -> None:
        for _ in range(2):
            together([partial(queue.put, number) for number, queue in enumerate(queues)])
        ctx.report(together([partial(queue.get) for queue in (*queues, *queues)]))
        asked.put(True)
        together([partial(queue.get) for queue in reversed(queues)])  # waits for ever
        ctx.report("not stopped")

    def stop(ctx: Context, asked: Fifo) -> None:
        asked.get()
        ctx.stop()

    program, watcher, queues = Program("together"), Watcher(), list[Fifo]()
    for host in ("first", "second", "third"):
        with program.host(host):
            queues.append(program.service(Fifo)(capacity=5))
    asked = program.service(Fifo)(capacity=1)
    program.worker(stop)(asked)
    with program.host("first"):
        program.worker(ask)(tuple(queues), asked)
    launch(program, watcher)
    assert watcher.records == [("ask", [0, 1, 2, 0, 1, 2])]


@on_every_launcher
def test_a_barrier_keeps_members_together(launch: Launcher) -> None:
    def march(ctx: Context, barrier: Barrier, counter: Counter) -> None:
        for step in range(1, 4):
            counter.add()
            barrier.meet()
            ctx.report(counter.until(3 * step) >= 3 * step)
            barrier.meet()
            ctx.report(counter.until(0))  # no member has begun the next step: exactly 3 for each
            barrier.meet()

    program, watcher = Program("march"), Watcher()
    barrier, counter = program.service(Barrier)(3), program.service(Counter)()
    for host in ("main", "second", "third"):
        with program.host(host):
            program.worker(march)(barrier, counter)
    launch(program, watcher)
    for rank in range(3):
        assert watcher.of(f"march[{rank}]") == [True, 3, True, 6, True, 9]


@on_every_launcher
def test_workers_know_their_place(launch: Launcher) -> None:
    def introduce(ctx: Context) -> None:
        ctx.report((ctx.name, ctx.rank, ctx.copies, ctx.restarts, ctx.restored(), os.getpid()))

    program, watcher = Program("places"), Watcher({"introduce[1]": "state"})
    program.worker(introduce, copies=2)()
    with program.host("elsewhere"):
        program.worker(introduce)()
    launch(program, watcher)
    first, second, third = sorted(record for _, record in watcher.records)
    assert first[:5] == ("introduce[0]", 0, 3, 0, None)
    assert second[:5] == ("introduce[1]", 1, 3, 0, "state")
    assert third[:5] == ("introduce[2]", 2, 3, 0, None)
    assert first[5] == second[5]  # a host is one process,
    assert len({os.getpid(), first[5], third[5]}) == (3 if launch is ON_RAY else 1)  # on Ray its own


@on_every_launcher
def test_the_first_failure_ends_all_and_is_raised_with_its_traceback(launch: Launcher) -> None:
    program, watcher = Program("failure"), Watcher()
    queue = program.service(Fifo)(1)
    with program.host("second"):
        program.worker(wait_for_ever, copies=2)(queue)
    with program.host("third"):
        program.worker(wait_for_ever)(queue)
        program.worker(break_down)(program.service(Counter)())
    with pytest.raises(ZeroDivisionError, match="broke down") as caught:
        launch(program, watcher)
    assert caught.value.__notes__ == ["in worker break_down"]
    assert "in break_down" in "".join(traceback.format_exception(caught.value))
    assert [record for _, record in watcher.records] == ["stopped"] * 3


@on_every_launcher
def test_later_failures_are_noted_on_the_first(launch: Launcher) -> None:
    def clumsy(ctx: Context, queue: Fifo) -> None:
        try:
            queue.get()
        except Stopped:
            raise OSError("while cleaning up") from None

    program = Program("failures")
    with program.host("second"):
        program.worker(clumsy)(program.service(Fifo)(1))
    program.worker(break_down)(program.service(Counter)())
    with pytest.raises(ZeroDivisionError) as caught:
        launch(program)
    assert caught.value.__notes__ == ["in worker break_down", "later in worker clumsy: OSError('while cleaning up')"]


@on_every_launcher
def test_a_failure_inside_a_service_is_the_callers(launch: Launcher) -> None:
    class Broken:
        def __init__(self) -> None:
            self.tried = False

        def work(self) -> None:
            self.tried = True
            raise KeyError("broken")

        @waits
        def outcome(self) -> Wait[bool]:
            while not self.tried:
                yield
            return self.tried

    def survive(ctx: Context, service: Broken) -> None:
        with pytest.raises(KeyError, match="broken"):
            service.work()

    def wait(ctx: Context, service: Broken) -> None:
        ctx.report(service.outcome())  # woken although the call that changed the service failed

    program, watcher = Program("broken"), Watcher()
    broken = program.service(Broken)()
    program.worker(wait)(broken)
    with program.host("second"):
        program.worker(survive)(broken)
    launch(program, watcher)
    assert watcher.records == [("wait", True)]


@on_every_launcher
def test_a_service_that_cannot_be_made_is_an_error_before_any_worker_runs(launch: Launcher) -> None:
    def impossible() -> Counter:
        raise ValueError("impossible")

    program, watcher = Program("no service"), Watcher()
    program.service(impossible)()
    with program.host("second"):
        program.worker(work)()
    with pytest.raises(ValueError, match="impossible"):
        launch(program, watcher)
    assert watcher.records == []


@on_every_launcher
def test_stop_ends_those_who_wait_and_those_who_look(launch: Launcher) -> None:
    def look(ctx: Context) -> None:
        while not ctx.stopped:
            ctx.sleep(60.0)  # ends with the program
        ctx.report("looked")

    def stop(ctx: Context, queue: Fifo) -> None:
        while queue.waiters() < 2:
            ctx.sleep(0.01)
        ctx.stop()

    program, watcher = Program("stop"), Watcher()
    queue = program.service(Fifo)(1)
    program.worker(wait_for_ever)(queue)
    with program.host("second"):
        program.worker(wait_for_ever)(queue)
        program.worker(look)()
    with program.host("third"):
        program.worker(stop)(queue)
    launch(program, watcher)
    assert sorted(record for _, record in watcher.records) == ["looked", "stopped", "stopped"]


def without_polling(program: Program, watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on threads where who waits looks again only when woken, or after an hour."""
    monkeypatch.setattr(threads_module, "POLL", 3600.0)
    run = threading.Thread(target=threads, args=(program, watcher), daemon=True)
    run.start()
    run.join(timeout=20)  # not a measurement: it is this or the hour
    assert not run.is_alive()


@pytest.mark.parametrize("asks", ["worker", "observer"])
def test_an_end_wakes_those_who_wait(asks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    came = list[str]()

    class Door:
        @waits
        def get(self) -> Wait[None]:
            came.append("somebody")
            while True:
                yield

    def end(ctx: Context) -> None:
        while len(came) < 2:
            time.sleep(0.001)  # and no call to the door, which would wake them
        time.sleep(0.05)  # they have come; now they wait
        if asks == "worker":
            ctx.stop()
        else:
            watcher.wants_end = True

    program, watcher = Program("end"), Watcher()
    door: Any = program.service(Door)()
    program.worker(wait_for_ever, copies=2)(door)
    program.worker(end)()
    without_polling(program, watcher, monkeypatch)
    assert [record for _, record in watcher.records] == ["stopped"] * 2


def test_a_call_that_begins_to_wait_or_ends_wakes_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bell:
        def __init__(self) -> None:
            self.rung = self.answered = False

        @waits
        def ring(self) -> Wait[None]:
            time.sleep(0.05)  # let the other come first and wait
            self.rung = True
            while not self.answered:
                yield

        @waits
        def answer(self) -> Wait[None]:
            while not self.rung:
                yield
            self.answered = True

    def ring(ctx: Context, bell: Bell) -> None:
        bell.ring()

    def answer(ctx: Context, bell: Bell) -> None:
        bell.answer()

    program, watcher = Program("bell"), Watcher()
    bell = program.service(Bell)()
    program.worker(answer)(bell)
    program.worker(ring)(bell)
    without_polling(program, watcher, monkeypatch)


@on_every_launcher
def test_calls_that_need_not_wait_still_work_after_stop(launch: Launcher) -> None:
    def last_words(ctx: Context, counter: Counter) -> None:
        ctx.stop()
        ctx.report(counter.add())
        ctx.report(counter.until(1))

    program, watcher = Program("last words"), Watcher()
    counter = program.service(Counter)()
    with program.host("second"):
        program.worker(last_words)(counter)
    launch(program, watcher)
    assert [record for _, record in watcher.records] == [1, 1]


@on_every_launcher
def test_an_observer_that_asks_to_end_ends_those_who_wait_and_those_who_look(launch: Launcher) -> None:
    program, watcher = Program("end"), Impatient()
    with program.host("second"):
        program.worker(work)()
    program.worker(wait_for_ever)(program.service(Fifo)(1))
    launch(program, watcher)
    assert watcher.records[:9] == [("work", "work")] * 9
    assert ("wait_for_ever", "stopped") in watcher.records


@on_every_launcher
def test_what_an_observer_raises_is_the_workers_failure(launch: Launcher) -> None:
    class Full(Watcher):
        def report(self, worker: str, record: Any) -> None:
            raise OSError(28, "No space left on device")

    program = Program("full")
    program.worker(work)()
    with pytest.raises(OSError, match="No space left") as caught:
        launch(program, Full())
    assert caught.value.__notes__[0] == "in worker work"


def ends(ctx: Context) -> None:
    """A worker that has nothing to do."""


@on_every_launcher
def test_what_an_observer_raises_when_a_worker_ends_ends_the_others(launch: Launcher) -> None:
    """The end of a worker may complete a checkpoint, and the disk be full."""

    class Full(Watcher):
        def ended(self, worker: str) -> None:
            if worker == "ends":
                raise OSError(28, "No space left on device")

    program = Program("full")
    program.worker(work)()
    program.worker(ends)()
    with pytest.raises(OSError, match="No space left") as caught:
        launch(program, Full())
    assert caught.value.__notes__[0] == "in worker ends"


@on_every_launcher
def test_a_state_saved_when_due_is_restored_in_the_next_run(launch: Launcher) -> None:
    program, first = Program("sums"), Watcher()
    for host in ("one", "two"):
        with program.host(host):
            program.worker(add_up)()
    names = {"add_up[0]", "add_up[1]"}
    first.wanted = set(names)
    launch(program, first)
    second = Watcher(first.states)
    second.wanted = set(names)
    launch(program, second)
    for name in names:
        (before, _), (after, total) = first.states[name], second.states[name]
        assert first.of(name) == [0]
        assert second.of(name) == [before]  # went on from there
        assert after > before >= 1
        assert total == after * (after - 1) // 2


@on_every_launcher
def test_a_handle_passes_public_methods_and_nothing_else(launch: Launcher) -> None:
    def pry(ctx: Context, counter: Any) -> None:
        for name in ("count", "_secret", "_hidden", "__len__", "missing"):
            with pytest.raises(AttributeError, match=name):
                getattr(counter, name)
        ctx.report(counter.add())

    program, watcher = Program("handles"), Watcher()
    counter = program.service(Counter)()
    with program.host("second"):
        program.worker(pry)(counter)
    launch(program, watcher)
    assert watcher.records == [("pry", 1)]


@on_every_launcher
def test_a_service_calls_another_but_must_not_wait_there(launch: Launcher) -> None:
    def ask(ctx: Context, desk: Desk) -> None:
        with pytest.raises(WouldBlock, match=r"Fifo\.get"):
            desk.hand_out()
        ctx.report("refused")
        while desk.count() == 0:
            ctx.sleep(0.01)
        desk.hand_in("letter")  # wakes the one who waits there

    program, watcher = Program("desk"), Watcher()
    with program.host("queue"):
        queue = program.service(Fifo)(1)
    with program.host("desk"):
        desk = program.service(Desk)(queue)
    program.worker(ask)(desk)
    program.worker(consume)(queue, items=1)
    launch(program, watcher)
    assert sorted(watcher.records) == [("ask", "refused"), ("consume", "letter")]


@pytest.mark.parametrize("launch", [threads, *map(Simulation, range(10))], ids=["threads", *map(str, range(10))])
def test_a_change_between_two_waits_is_noticed_late_but_noticed(launch: Launcher) -> None:
    def produce_all(ctx: Context, queue: Fifo) -> None:
        queue.put_all([1, 2, 3])  # fills the queue again on its way to the very same `yield`

    program, watcher = Program("all"), Watcher()
    queue = program.service(Fifo)(1)
    program.worker(produce_all)(queue)
    program.worker(consume)(queue, items=3)
    launch(program, watcher)
    assert [record for _, record in watcher.records] == [1, 2, 3]


@dataclass
class Memory:
    seen: int = 0


@on_every_launcher
def test_workers_of_one_wiring_share_no_dataclass(launch: Launcher) -> None:
    def remember(ctx: Context, memory: Memory) -> None:
        for _ in range(3):
            memory.seen += 1
        ctx.report(memory.seen)

    program, watcher, memory = Program("memories"), Watcher(), Memory()
    program.worker(remember, copies=2)(memory)
    launch(program, watcher)
    assert [record for _, record in watcher.records] == [3, 3]
    assert memory.seen == 0


@on_every_launcher
def test_a_program_without_workers_ends_at_once(launch: Launcher) -> None:
    program = Program("empty")
    program.service(Counter)()
    launch(program)
    assert program.crew == ()


@contextmanager
def on_signal(handler: Callable[[], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, lambda number, frame: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@on_every_launcher
def test_signals_are_handled_while_a_lone_worker_runs(launch: Launcher) -> None:
    program, watcher = Program("signal"), Watcher()
    program.worker(send_signal)(os.getpid())

    def ask_to_end() -> None:
        watcher.wants_end = True

    with on_signal(ask_to_end):
        launch(program, watcher)
    assert watcher.records == [("send_signal", "ended")]


@on_every_launcher
def test_an_error_raised_by_a_signal_handler_ends_the_workers_and_comes_out(launch: Launcher) -> None:
    program, watcher = Program("interrupt"), Watcher()
    program.worker(send_signal)(os.getpid())

    def interrupt() -> None:
        raise InterruptedError("by hand")

    with on_signal(interrupt), pytest.raises(InterruptedError, match="by hand"):
        launch(program, watcher)
    assert watcher.records == [("send_signal", "ended")]


class LeavesBehind(Watcher):
    """Ends the program as soon as it has a record, without the workers that hang."""

    def __init__(self, *hang: str) -> None:
        super().__init__()
        self.hang = hang

    def stopping(self) -> bool:
        if self.records and threading.current_thread() is threading.main_thread():
            raise EndWithout("enough", self.hang)
        return False


def hang_or_end(ctx: Context, released: threading.Event) -> None:
    if ctx.rank == 0:
        ctx.report("hangs")
        released.wait()
        return
    while not ctx.stopped:
        time.sleep(0.001)
    ctx.save("ended")


@pytest.mark.parametrize("known", [True, False])
def test_a_program_that_ends_at_once_leaves_workers_that_hang(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "AT_ONCE_SECONDS", 3600.0 if known else 0.1)  # that it waits for them, unless it is told
    program, released = Program("hang"), threading.Event()
    watcher = LeavesBehind("hang_or_end[0]") if known else LeavesBehind()
    program.worker(hang_or_end, copies=2)(released)
    with pytest.raises(EndWithout, match="enough"):
        threads(program, watcher)
    if known:
        assert watcher.states == {"hang_or_end[1]": "ended"}
    released.set()
