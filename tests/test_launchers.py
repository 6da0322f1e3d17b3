"""The same small programs on every launcher: the same answers, the same ends, the same errors."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from gossamer.launch import base
from gossamer.launch import threads as threads_module
from gossamer.launch.base import EndWithout
from gossamer.launch.simulation import Simulation
from gossamer.launch.threads import threads
from gossamer.program import Context, Program, Stopped, Wait, WouldBlock, waits

Launcher = Callable[..., None]
on_every_launcher = pytest.mark.parametrize("launch", [threads, Simulation(3)], ids=["threads", "simulation"])


class Watcher:
    """An observer that keeps what it is told; asks to end, and for states, when told to."""

    def __init__(self, states: dict[str, Any] | None = None) -> None:
        self.states = dict(states or {})
        self.records: list[tuple[str, Any]] = []
        self.wants_state = self.wants_end = False

    def restored(self, worker: str) -> Any | None:
        return self.states.get(worker)

    def report(self, worker: str, record: Any) -> None:
        self.records.append((worker, record))

    def due(self, worker: str) -> bool:
        return self.wants_state

    def save(self, worker: str, state: Any) -> None:
        self.states[worker] = state

    def stopping(self) -> bool:
        return self.wants_end


class Counter:
    def __init__(self) -> None:
        self.count, self._secret = 0, 0

    def add(self) -> int:
        before = self.count
        time.sleep(0)  # invites another thread: only one call at a time keeps the count right
        self.count = before + 1
        return self.count

    @waits
    def until(self, count: int) -> Wait[int]:
        while self.count < count:
            yield
        return self.count

    def _hidden(self) -> None: ...


class Fifo:
    def __init__(self, capacity: int) -> None:
        self.capacity, self.items = capacity, deque[Any]()

    @waits
    def put(self, item: Any) -> Wait[int]:
        while len(self.items) >= self.capacity:
            yield
        self.items.append(item)
        return len(self.items)

    @waits
    def put_all(self, items: list[Any]) -> Wait[None]:
        for item in items:
            while len(self.items) >= self.capacity:
                yield
            self.items.append(item)

    @waits
    def get(self) -> Wait[Any]:
        while not self.items:
            yield
        return self.items.popleft()


class Desk:
    """A service that holds another."""

    def __init__(self, queue: Fifo) -> None:
        self.queue = queue

    def hand_in(self, item: Any) -> None:
        self.queue.put(item)

    def hand_out(self) -> Any:
        return self.queue.get()


def count(ctx: Context, counter: Counter, times: int) -> None:
    for _ in range(times):
        ctx.report(counter.add())


@on_every_launcher
def test_a_service_takes_one_call_at_a_time(launch: Launcher) -> None:
    program, watcher = Program("counter"), Watcher()
    program.worker(count, copies=4)(program.service(Counter)(), times=25)
    launch(program, watcher)
    assert sorted(answer for _, answer in watcher.records) == list(range(1, 101))  # 4 x 25, none lost


def produce(ctx: Context, queue: Fifo, items: int) -> None:
    for item in range(items):
        ctx.report(queue.put((ctx.rank, item)))


def consume(ctx: Context, queue: Fifo, items: int) -> None:
    for _ in range(items):
        ctx.report(queue.get())


@on_every_launcher
def test_producers_and_consumers_pass_everything_on_once_in_order_and_within_capacity(launch: Launcher) -> None:
    program, watcher = Program("queue"), Watcher()
    queue = program.service(Fifo)(capacity=2)
    program.worker(produce, copies=3)(queue, items=10)
    program.worker(consume, copies=2)(queue, items=15)
    launch(program, watcher)
    lengths = [record for who, record in watcher.records if who.startswith("produce")]
    assert len(lengths) == 30
    assert max(lengths) <= 2
    received = [record for who, record in watcher.records if who.startswith("consume")]
    assert sorted(received) == [(rank, item) for rank in range(3) for item in range(10)]
    for consumer in ("consume[0]", "consume[1]"):
        seen = [record for who, record in watcher.records if who == consumer]
        for rank in range(3):
            mine = [item for sender, item in seen if sender == rank]
            assert mine == sorted(mine)


@on_every_launcher
def test_workers_know_their_place(launch: Launcher) -> None:
    def introduce(ctx: Context) -> None:
        ctx.report((ctx.name, ctx.rank, ctx.copies, ctx.restored()))

    program, watcher = Program("places"), Watcher({"introduce[1]": "state"})
    program.worker(introduce, copies=2)()
    with program.host("elsewhere"):
        program.worker(introduce)()
    launch(program, watcher)
    assert sorted(watcher.records) == [
        ("introduce[0]", ("introduce[0]", 0, 3, None)),
        ("introduce[1]", ("introduce[1]", 1, 3, "state")),
        ("introduce[2]", ("introduce[2]", 2, 3, None)),
    ]


def wait_for_ever(ctx: Context, queue: Fifo) -> None:
    try:
        queue.get()
    except Stopped:
        ctx.report("stopped")
        raise


def break_down(ctx: Context, counter: Counter) -> None:
    counter.until(0)
    raise ZeroDivisionError("broke down")


@on_every_launcher
def test_the_first_failure_ends_all_and_is_raised_with_its_own_traceback(launch: Launcher) -> None:
    program, watcher = Program("failure"), Watcher()
    queue = program.service(Fifo)(1)
    program.worker(wait_for_ever, copies=3)(queue)
    program.worker(break_down)(program.service(Counter)())
    with pytest.raises(ZeroDivisionError, match="broke down") as caught:
        launch(program, watcher)
    assert "break_down" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert caught.value.__notes__ == ["in worker break_down"]
    assert [record for _, record in watcher.records] == ["stopped"] * 3


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
    program.worker(survive)(broken)
    program.worker(wait)(broken)
    launch(program, watcher)
    assert watcher.records == [("wait", True)]


@on_every_launcher
def test_later_failures_are_noted_on_the_first(launch: Launcher) -> None:
    def clumsy(ctx: Context, queue: Fifo) -> None:
        try:
            queue.get()
        except Stopped:
            raise OSError("while cleaning up") from None

    program = Program("failures")
    program.worker(clumsy)(program.service(Fifo)(1))
    program.worker(break_down)(program.service(Counter)())
    with pytest.raises(ZeroDivisionError) as caught:
        launch(program)
    assert caught.value.__notes__ == ["in worker break_down", "later in worker clumsy: OSError('while cleaning up')"]


@on_every_launcher
def test_a_service_that_cannot_be_made_is_an_error_before_any_worker_runs(launch: Launcher) -> None:
    def impossible() -> Counter:
        raise ValueError("impossible")

    program, watcher = Program("no service"), Watcher()
    program.worker(count)(program.service(impossible)(), times=1)
    with pytest.raises(ValueError, match="impossible"):
        launch(program, watcher)
    assert watcher.records == []


@on_every_launcher
def test_stop_ends_those_who_wait_and_those_who_look(launch: Launcher) -> None:
    def look(ctx: Context) -> None:
        while not ctx.stopped:
            pass
        ctx.report("looked")

    def stop(ctx: Context) -> None:
        ctx.stop()

    program, watcher = Program("stop"), Watcher()
    program.worker(wait_for_ever, copies=2)(program.service(Fifo)(1))
    program.worker(look)()
    program.worker(stop)()
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
    program.worker(last_words)(program.service(Counter)())
    launch(program, watcher)
    assert [record for _, record in watcher.records] == [1, 1]


@on_every_launcher
def test_an_observer_that_asks_to_end_ends_those_who_wait_and_those_who_look(launch: Launcher) -> None:
    class Impatient(Watcher):
        def report(self, worker: str, record: Any) -> None:
            super().report(worker, record)
            self.wants_end = self.wants_end or len(self.records) == 10

    def work(ctx: Context) -> None:
        while not ctx.stopped:
            ctx.report("work")

    program, watcher = Program("end"), Impatient()
    program.worker(work)()
    program.worker(wait_for_ever)(program.service(Fifo)(1))
    launch(program, watcher)
    assert watcher.records[:9] == [("work", "work")] * 9
    assert ("wait_for_ever", "stopped") in watcher.records


def add_up(ctx: Context, until: int) -> None:
    step, total = ctx.restored() or (0, 0)
    while step < until and not ctx.stopped:
        total += step
        step += 1
        ctx.report(total)
        if ctx.due():
            ctx.save((step, total))
            return


@on_every_launcher
def test_a_state_saved_when_due_is_restored_in_the_next_run(launch: Launcher) -> None:
    program, first = Program("sums"), Watcher()
    program.worker(add_up, copies=2)(until=5)
    first.wants_state = True
    launch(program, first)
    assert first.states == {"add_up[0]": (1, 0), "add_up[1]": (1, 0)}  # both saved after step 0
    second = Watcher(first.states)
    launch(program, second)
    # from step 1 with total 0: 1, 1 + 2, 3 + 3, 6 + 4; at a fresh start there would be five totals
    assert [total for who, total in second.records if who == "add_up[0]"] == [1, 3, 6, 10]
    assert [total for who, total in second.records if who == "add_up[1]"] == [1, 3, 6, 10]


@on_every_launcher
def test_a_handle_passes_public_methods_and_nothing_else(launch: Launcher) -> None:
    def pry(ctx: Context, counter: Any) -> None:
        for name in ("count", "_secret", "_hidden", "__len__", "missing"):
            with pytest.raises(AttributeError, match=name):
                getattr(counter, name)
        ctx.report(counter.add())

    program, watcher = Program("handles"), Watcher()
    program.worker(pry)(program.service(Counter)())
    launch(program, watcher)
    assert watcher.records == [("pry", 1)]


@on_every_launcher
def test_a_service_calls_another_and_wakes_those_who_wait_there(launch: Launcher) -> None:
    def hand_in(ctx: Context, desk: Desk) -> None:
        desk.hand_in("letter")

    program, watcher = Program("desk"), Watcher()
    queue = program.service(Fifo)(1)
    program.worker(consume)(queue, items=1)
    program.worker(hand_in)(program.service(Desk)(queue))
    launch(program, watcher)
    assert watcher.records == [("consume", "letter")]


@on_every_launcher
def test_a_service_that_would_have_to_wait_for_another_is_refused(launch: Launcher) -> None:
    def ask(ctx: Context, desk: Desk) -> None:
        desk.hand_out()

    program = Program("desk")
    program.worker(ask)(program.service(Desk)(program.service(Fifo)(1)))
    with pytest.raises(WouldBlock, match=r"Fifo\.get"):
        launch(program)


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


def signal_itself(ctx: Context) -> None:
    assert threading.current_thread() is not threading.main_thread()
    os.kill(os.getpid(), signal.SIGUSR1)
    while not ctx.stopped:
        time.sleep(0.001)
    ctx.report("ended")


@on_every_launcher
def test_signals_are_handled_while_a_lone_worker_runs(launch: Launcher) -> None:
    program, watcher = Program("signal"), Watcher()
    program.worker(signal_itself)()

    def ask_to_end() -> None:
        watcher.wants_end = True

    with on_signal(ask_to_end):
        launch(program, watcher)
    assert watcher.records == [("signal_itself", "ended")]


@on_every_launcher
def test_an_error_raised_by_a_signal_handler_ends_the_workers_and_comes_out(launch: Launcher) -> None:
    program, watcher = Program("interrupt"), Watcher()
    program.worker(signal_itself)()

    def interrupt() -> None:
        raise InterruptedError("by hand")

    with on_signal(interrupt), pytest.raises(InterruptedError, match="by hand"):
        launch(program, watcher)
    assert watcher.records == [("signal_itself", "ended")]


class Impatient(Watcher):
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
    monkeypatch.setattr(base, "LEAVE_SECONDS", 3600.0 if known else 0.1)  # that it waits for them, unless it is told
    program, released = Program("hang"), threading.Event()
    watcher = Impatient("hang_or_end[0]") if known else Impatient()
    program.worker(hang_or_end, copies=2)(released)
    with pytest.raises(EndWithout, match="enough"):
        threads(program, watcher)
    if known:
        assert watcher.states == {"hang_or_end[1]": "ended"}
    released.set()
