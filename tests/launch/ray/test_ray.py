"""Programs on Ray: the same answers, ends and errors as on threads, and what is Ray's alone: hosts that fail."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.config.build import program as build
from gossamer.config.names import ARCHITECTURES
from gossamer.config.resolve import configure
from gossamer.launch.ray import launcher as launcher
from gossamer.launch.ray.errors import ClusterUnreachable, HostFailed, LackOfResources
from gossamer.launch.ray.launcher import Ray, check_room
from gossamer.program import Context, Host, Program, Stopped, Unreachable, Wait, WouldBlock, waits
from gossamer.task import Report

pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")


@pytest.fixture(scope="module")
def local() -> Iterator[None]:
    """One Ray of this machine for all tests; the launcher uses it as it is."""
    import ray

    before = signal.getsignal(signal.SIGTERM)
    ray.init(
        address="local",
        num_cpus=16,
        num_gpus=0,
        object_store_memory=200_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()
    signal.signal(signal.SIGTERM, before)


pytestmark = pytest.mark.usefixtures("local")
QUICK = Ray(call_seconds=2.0, stop_seconds=2.0)


class Watcher:
    """An observer that keeps what it is told; asks to end, and for states, when told to."""

    def __init__(self, states: dict[str, Any] | None = None) -> None:
        self.states = dict(states or {})
        self.records: list[tuple[str, Any]] = []
        self.saves: list[str] = []
        self.wanted: set[str] = set()  # workers whose state is due
        self.wants_end = False

    def restored(self, worker: str) -> Any | None:
        return self.states.get(worker)

    def report(self, worker: str, record: Any) -> None:
        self.records.append((worker, record))

    def due(self, worker: str) -> bool:
        return worker in self.wanted

    def save(self, worker: str, state: Any) -> None:
        self.states[worker] = state
        self.saves.append(worker)
        self.wanted.discard(worker)

    def stopping(self) -> bool:
        return self.wants_end

    def of(self, worker: str) -> list[Any]:
        return [record for who, record in self.records if who == worker]


class Fifo:
    def __init__(self, capacity: int) -> None:
        self.capacity, self.items, self.waiting, self.came = capacity, deque[Any](), 0, 0

    @waits
    def put(self, item: Any) -> Wait[int]:
        while len(self.items) >= self.capacity:
            yield
        self.items.append(item)
        return len(self.items)

    @waits
    def get(self) -> Wait[Any]:
        self.waiting, self.came = self.waiting + 1, self.came + 1
        try:
            while not self.items:
                yield
            return self.items.popleft()
        finally:
            self.waiting -= 1

    def waiters(self) -> int:
        return self.waiting

    def ever(self) -> int:
        return self.came


class Barrier:
    """Nobody leaves a round before all have come; nobody enters the next before all have left."""

    def __init__(self, members: int) -> None:
        self.members, self.inside, self.leaving = members, 0, False

    @waits
    def meet(self) -> Wait[None]:
        while self.leaving:
            yield
        self.inside += 1
        self.leaving = self.inside == self.members
        while not self.leaving:
            yield
        self.inside -= 1
        self.leaving = self.inside > 0


class Counter:
    def __init__(self) -> None:
        self.count, self._secret = 0, 0

    def add(self) -> int:
        before = self.count
        time.sleep(0)
        self.count = before + 1
        return self.count

    @waits
    def until(self, count: int) -> Wait[int]:
        while self.count < count:
            yield
        return self.count

    def _hidden(self) -> None: ...


def produce(ctx: Context, queue: Fifo, items: int) -> None:
    for item in range(items):
        ctx.report(queue.put((ctx.rank, item)))


def consume(ctx: Context, queue: Fifo, items: int) -> None:
    for _ in range(items):
        ctx.report(queue.get())


def test_a_queue_between_hosts_passes_everything_on_once_in_order_and_within_capacity() -> None:
    program, watcher = Program("queue"), Watcher()
    with program.host("queue"):
        queue = program.service(Fifo)(capacity=2)
        program.worker(produce)(queue, items=20)
    with program.host("producers"):
        program.worker(produce, copies=2)(queue, items=20)
    with program.host("consumers"):
        program.worker(consume, copies=2)(queue, items=30)
    QUICK(program, watcher)
    lengths = [record for who, record in watcher.records if who.startswith("produce")]
    assert len(lengths) == 60
    assert max(lengths) <= 2
    received = [record for who, record in watcher.records if who.startswith("consume")]
    assert sorted(received) == [(rank, item) for rank in range(3) for item in range(20)]
    for consumer in ("consume[0]", "consume[1]"):
        for rank in range(3):
            mine = [item for sender, item in watcher.of(consumer) if sender == rank]
            assert mine == sorted(mine)


def test_a_barrier_keeps_hosts_together() -> None:
    def march(ctx: Context, barrier: Barrier, counter: Counter) -> None:
        for step in range(1, 4):
            counter.add()
            barrier.meet()
            ctx.report(counter.until(3 * step) >= 3 * step)
            barrier.meet()
            ctx.report(counter.until(0))  # nobody has begun the next step: exactly 3 for each
            barrier.meet()

    program, watcher = Program("march"), Watcher()
    barrier, counter = program.service(Barrier)(3), program.service(Counter)()
    for host in ("main", "second", "third"):
        with program.host(host):
            program.worker(march)(barrier, counter)
    QUICK(program, watcher)
    for rank in range(3):
        assert watcher.of(f"march[{rank}]") == [True, 3, True, 6, True, 9]


def test_workers_know_their_place() -> None:
    def introduce(ctx: Context) -> None:
        ctx.report((ctx.name, ctx.rank, ctx.copies, ctx.restarts, ctx.restored(), os.getpid()))

    program, watcher = Program("places"), Watcher({"introduce[1]": "state"})
    program.worker(introduce, copies=2)()
    with program.host("elsewhere"):
        program.worker(introduce)()
    QUICK(program, watcher)
    first, second, third = sorted(record for _, record in watcher.records)
    assert first[:5] == ("introduce[0]", 0, 3, 0, None)
    assert second[:5] == ("introduce[1]", 1, 3, 0, "state")
    assert third[:5] == ("introduce[2]", 2, 3, 0, None)
    assert first[5] == second[5]  # a host is one process,
    assert len({os.getpid(), first[5], third[5]}) == 3  # of its own


def wait_for_ever(ctx: Context, queue: Fifo) -> None:
    try:
        queue.get()
    except Stopped:
        ctx.report("stopped")
        raise


def break_down(ctx: Context, counter: Counter) -> None:
    counter.until(0)
    raise ZeroDivisionError("broke down")


def test_the_first_failure_ends_all_and_is_raised_as_itself_with_its_traceback_there() -> None:
    program, watcher = Program("failure"), Watcher()
    queue = program.service(Fifo)(1)
    with program.host("second"):
        program.worker(wait_for_ever, copies=2)(queue)
    with program.host("third"):
        program.worker(wait_for_ever)(queue)
        program.worker(break_down)(program.service(Counter)())
    with pytest.raises(ZeroDivisionError, match="broke down") as caught:
        QUICK(program, watcher)
    assert caught.value.__notes__ == ["in worker break_down"]
    assert "in break_down" in str(caught.value.__cause__)
    assert [record for _, record in watcher.records] == ["stopped"] * 3


class Odd(Exception):
    """One that cannot be pickled: what it keeps is not what it is made of."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


@pytest.mark.parametrize(("fails", "with_what"), [(KeyError, "broken"), (Odd, "one and other")])
def test_a_failure_inside_a_service_is_the_callers(fails: type[Exception], with_what: str) -> None:
    class Broken:
        def work(self) -> None:
            raise KeyError("broken") if fails is KeyError else Odd("one", "other")

    def survive(ctx: Context, service: Broken) -> None:
        try:
            service.work()
        except Exception as error:
            ctx.report((type(error).__name__, str(error)))

    program, watcher = Program("broken"), Watcher()
    broken = program.service(Broken)()
    with program.host("second"):
        program.worker(survive)(broken)
    QUICK(program, watcher)
    ((name, text),) = watcher.of("survive")
    assert name == ("KeyError" if fails is KeyError else "RuntimeError")  # an error that cannot cross says what it was
    assert with_what in text


def test_a_service_that_cannot_be_made_is_an_error_before_any_worker_runs() -> None:
    def impossible() -> Counter:
        raise ValueError("impossible")

    def speak(ctx: Context) -> None:
        ctx.report("spoke")

    program, watcher = Program("no service"), Watcher()
    program.service(impossible)()
    with program.host("second"):
        program.worker(speak)()
    with pytest.raises(ValueError, match="impossible"):
        QUICK(program, watcher)
    assert watcher.records == []


def test_stop_ends_those_who_wait_and_those_who_look_on_every_host() -> None:
    def look(ctx: Context) -> None:
        while not ctx.stopped:
            ctx.sleep(60.0)  # ends with the program
        ctx.report("looked")

    def stop(ctx: Context, queue: Fifo) -> None:
        while queue.waiters() < 2:
            time.sleep(0.01)
        ctx.stop()

    program, watcher = Program("stop"), Watcher()
    queue = program.service(Fifo)(1)
    program.worker(wait_for_ever)(queue)
    with program.host("second"):
        program.worker(wait_for_ever)(queue)
        program.worker(look)()
    with program.host("third"):
        program.worker(stop)(queue)
    QUICK(program, watcher)
    assert sorted(record for _, record in watcher.records) == ["looked", "stopped", "stopped"]


class Impatient(Watcher):
    """Ends the program after ten reports."""

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        self.wants_end = self.wants_end or len(self.records) == 10


def work(ctx: Context) -> None:
    while not ctx.stopped:
        ctx.report("work")


def test_an_observer_that_asks_to_end_ends_all() -> None:
    program, watcher = Program("end"), Impatient()
    with program.host("second"):
        program.worker(work)()
    program.worker(wait_for_ever)(program.service(Fifo)(1))
    QUICK(program, watcher)
    assert watcher.records[:9] == [("work", "work")] * 9
    assert ("wait_for_ever", "stopped") in watcher.records


def test_what_an_observer_raises_is_the_workers_failure() -> None:
    class Full(Watcher):
        def report(self, worker: str, record: Any) -> None:
            raise OSError(28, "No space left on device")

    program = Program("full")
    program.worker(work)()
    with pytest.raises(OSError, match="No space left") as caught:
        QUICK(program, Full())
    assert caught.value.__notes__[0] == "in worker work"


def test_no_report_is_lost_or_out_of_order_at_the_end() -> None:
    def chatter(ctx: Context) -> None:
        for number in range(3000):
            ctx.report(number)
        ctx.save("done")

    program, watcher = Program("chatter"), Watcher()
    for host in ("one", "two"):
        with program.host(host):
            program.worker(chatter)()
    QUICK(program, watcher)
    assert watcher.of("chatter[0]") == watcher.of("chatter[1]") == list(range(3000))
    assert watcher.states == {"chatter[0]": "done", "chatter[1]": "done"}


def test_a_state_that_is_due_is_saved_once_and_restored_in_the_next_run() -> None:
    def add_up(ctx: Context, until: int) -> None:
        step, total = ctx.restored() or (0, 0)
        ctx.report(step)
        while step < until and not ctx.stopped:
            total += step
            step += 1
            if ctx.due():
                ctx.save((step, total))
                ctx.report("saved")
            time.sleep(0.001)

    class Twice(Watcher):
        """Wants two states of each, the second after it has the first."""

        def save(self, worker: str, state: Any) -> None:
            super().save(worker, state)
            if self.saves.count(worker) == 1:
                self.wanted.add(worker)
            elif all(self.saves.count(who) == 2 for who in ("add_up[0]", "add_up[1]")):
                self.wants_end = True

    program, watcher = Program("sums"), Twice()
    for host in ("one", "two"):
        with program.host(host):
            program.worker(add_up)(until=1_000_000)
    watcher.wanted = {"add_up[0]", "add_up[1]"}
    QUICK(program, watcher)
    assert sorted(watcher.saves) == ["add_up[0]", "add_up[0]", "add_up[1]", "add_up[1]"]
    assert watcher.of("add_up[0]") == [0, "saved", "saved"]
    step, total = watcher.states["add_up[1]"]
    assert total == step * (step - 1) // 2
    second = Impatient(watcher.states)
    second.wants_end = True
    QUICK(program, second)
    assert second.of("add_up[1]") in ([step], [])  # nothing is started for an end


class Desk:
    """A service that holds another."""

    def __init__(self, queue: Fifo) -> None:
        self.queue = queue

    def count(self) -> int:
        return self.queue.waiters()

    def hand_out(self) -> Any:
        return self.queue.get()


def test_a_service_calls_another_on_another_host_and_must_not_wait_there() -> None:
    def ask(ctx: Context, desk: Desk) -> None:
        ctx.report(desk.count())
        with pytest.raises(WouldBlock, match=r"Fifo\.get"):
            desk.hand_out()
        ctx.report("refused")

    program, watcher = Program("desk"), Watcher()
    with program.host("queue"):
        queue = program.service(Fifo)(1)
    with program.host("desk"):
        desk = program.service(Desk)(queue)
    program.worker(ask)(desk)
    QUICK(program, watcher)
    assert watcher.of("ask") == [0, "refused"]


def test_a_handle_of_another_host_passes_public_methods_and_nothing_else() -> None:
    def pry(ctx: Context, counter: Any) -> None:
        for name in ("count", "_secret", "_hidden", "__len__", "missing"):
            with pytest.raises(AttributeError, match=name):
                getattr(counter, name)
        ctx.report(counter.add())

    program, watcher = Program("handles"), Watcher()
    counter = program.service(Counter)()
    with program.host("second"):
        program.worker(pry)(counter)
    QUICK(program, watcher)
    assert watcher.records == [("pry", 1)]


def test_arrays_cross_and_belong_to_whom_they_were_sent_to() -> None:
    class Post:
        def deliver(self, packet: Any) -> tuple[int, bool]:
            return int(packet.sum()), packet.flags.writeable

    def send(ctx: Context, post: Post) -> None:
        ctx.report(post.deliver(np.ones(3_000_000, np.uint8)))

    program, watcher = Program("post"), Watcher()
    post = program.service(Post)()
    with program.host("second"):
        program.worker(send)(post)
    QUICK(program, watcher)
    assert watcher.of("send") == [(3_000_000, True)]


# Hosts that fail.


def survive(ctx: Context, counter: Counter) -> None:
    """Counts, and is killed from outside; saves when asked."""
    step = ctx.restored() or 0
    ctx.report(("up", os.getpid(), ctx.restarts, step))
    while not ctx.stopped:
        step += 1
        counter.add()
        if ctx.due():
            ctx.save(step)
        ctx.sleep(0.01)


def lean_on(ctx: Context, counter: Counter) -> None:
    """Calls another host whether it is there or not, until it has been away and is back."""
    away = False
    while not ctx.stopped:
        try:
            counter.add()
            if away:
                ctx.report("went on")
                away = False
        except Unreachable:
            if not away:
                ctx.report("away")
            away = True
        ctx.sleep(0.01)


class Killer(Watcher):
    """Kills a host once it has a state of its worker; ends the program when it is up again and called again."""

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if worker == "survive" and record[2] == 0:
            self.wanted.add("survive")
        self.wants_end = self.wants_end or (len(self.of("survive")) > 1 and "went on" in self.of("lean_on"))

    def save(self, worker: str, state: Any) -> None:
        super().save(worker, state)
        if len(self.saves) == 1:
            os.kill(self.of("survive")[0][1], signal.SIGKILL)


def test_a_host_that_is_killed_starts_again_from_what_it_saved_and_the_others_go_on() -> None:
    program, watcher = Program("killed"), Killer()
    with program.host("mortal"):
        counter = program.service(Counter)()
        program.worker(survive)(counter)
    with program.host("other"):
        program.worker(lean_on)(counter)
    QUICK(program, watcher)
    (_, before, starts, _), (_, after, restarts, step) = watcher.of("survive")
    assert before != after
    assert (starts, restarts) == (0, 1)
    assert step == watcher.states["survive"] > 0
    assert watcher.of("lean_on") == ["away", "went on"]


def test_who_waits_for_a_host_that_dies_is_told() -> None:
    def wait(ctx: Context, queue: Fifo) -> None:
        with pytest.raises(Unreachable, match=r"Fifo\.get"):
            queue.get()
        ctx.report("told")
        ctx.stop()

    def die(ctx: Context, queue: Fifo) -> None:
        while queue.waiters() == 0 and ctx.restarts == 0:
            time.sleep(0.01)
        if ctx.restarts == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    program, watcher = Program("wait"), Watcher()
    with program.host("mortal"):
        queue = program.service(Fifo)(1)
        program.worker(die)(queue)
    with program.host("other"):
        program.worker(wait)(queue)
    QUICK(program, watcher)
    assert watcher.records == [("wait", "told")]


def test_what_a_host_waited_for_when_it_died_is_left_to_whoever_lives() -> None:
    def take(ctx: Context, queue: Fifo) -> None:
        if ctx.restarts == 0:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
        ctx.report((ctx.restarts, queue.get()))

    def give(ctx: Context, queue: Fifo) -> None:
        while queue.ever() < 2 or queue.waiters() > 1:  # both have come, the dead one first, and it is given up
            time.sleep(0.01)
        queue.put("item")

    program, watcher = Program("left"), Watcher()
    with program.host("queue"):
        queue = program.service(Fifo)(1)
        program.worker(give)(queue)
    with program.host("mortal"):
        program.worker(take)(queue)
    QUICK(program, watcher)
    assert watcher.of("take") == [(1, "item")]


def test_a_call_that_need_not_wait_but_takes_too_long_is_given_up() -> None:
    class Slow:
        def nap(self) -> None:
            time.sleep(1.0)

    def call(ctx: Context, slow: Slow) -> None:
        with pytest.raises(Unreachable, match=r"Slow\.nap.*0\.2 s"):
            slow.nap()
        ctx.report("given up")

    program, watcher = Program("slow"), Watcher()
    slow = program.service(Slow)()
    with program.host("second"):
        program.worker(call)(slow)
    Ray(call_seconds=0.2)(program, watcher)
    assert watcher.of("call") == ["given up"]


def test_a_host_that_fails_again_and_again_fails_the_program() -> None:
    def die(ctx: Context) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    program = Program("hopeless")
    program.worker(die)()
    with pytest.raises(HostFailed, match=r"host main has failed 2 times.*restarts=1"):
        Ray(restarts=1)(program)


def kill_for_good(ctx: Context) -> None:
    import ray

    ctx.report("going")
    time.sleep(0.5)  # the report is on its way
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
    time.sleep(60)


def test_a_host_that_is_gone_for_good_ends_the_program_once_the_others_have_ended() -> None:
    def finish(ctx: Context) -> None:
        ctx.sleep(1.0)
        ctx.save("finished")

    program, watcher = Program("gone"), Watcher()
    program.worker(kill_for_good)()
    with program.host("other"):
        program.worker(finish)()
    Ray(gone_seconds=1.0)(program, watcher)
    assert watcher.states == {"finish": "finished"}
    assert watcher.of("kill_for_good") == ["going"]


def test_a_host_that_is_gone_for_good_and_was_alone_is_an_error() -> None:
    program = Program("gone")
    program.worker(kill_for_good)()
    with pytest.raises(HostFailed, match="never came back within 1 s: kill_for_good"):
        Ray(gone_seconds=1.0)(program)


# What is needed before anything runs.


def test_lack_of_resources_says_who_needs_what_and_what_there_is() -> None:
    program = Program("big")
    with program.host("learner", gpus=1):
        program.worker(work)()
    with pytest.raises(LackOfResources, match=r"'learner' needs 1 cpus, 1 gpus.*16 cpus, 0 gpus"):
        QUICK(program)


def test_hosts_have_to_fit_on_machines_one_by_one() -> None:
    two = {"a": (4.0, 0.0), "b": (2.0, 1.0)}
    check_room([Host("x", 3), Host("y", 1), Host("z", 2, 1)], two)  # 3 and 1 on a, 2 and the gpu on b
    with pytest.raises(LackOfResources, match="'x' needs 5 cpus, 0 gpus on one node, which"):
        check_room([Host("x", 5)], two)  # six in all, and yet
    with pytest.raises(LackOfResources, match=r"'y' needs 3 cpus.*beside the program's other hosts"):
        check_room([Host("x", 3), Host("y", 3)], two)


@pytest.mark.parametrize("address", ["ray://10.0.0.1:10001", "nowhere", "10.0.0.1:", ""])
def test_an_address_is_checked_as_it_is_given(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        Ray(address)


def without_a_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this process were connected to none."""
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)


def empty() -> Program:
    program = Program("empty")
    program.service(Counter)()
    return program


def test_a_cluster_where_nobody_listens_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_ray(monkeypatch)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ClusterUnreachable, match=f"{address}: nobody listens") as caught:
            Ray(address)(empty())
    assert "\n" not in str(caught.value)


def test_a_listener_that_is_no_cluster_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_ray(monkeypatch)
    monkeypatch.setattr(launcher, "CONNECT_SECONDS", 3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ClusterUnreachable, match=f"{address}: no answer of Ray within 3 s"):
            Ray(address)(empty())


def test_where_ray_is_not_installed_it_says_how_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "gossamer\[ray\]"'):
        Ray()(empty())


def run(script: str, **env: str) -> str:
    """Run a script in a process of its own; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_neither_the_package_nor_threads_import_ray() -> None:
    script = """
        import sys, gossamer, gossamer.cli, gossamer.launch.ray.launcher
        from gossamer.launch.threads import threads
        from gossamer.program import Program
        program = Program("one")
        program.worker(lambda ctx: None)()
        threads(program)
        print([name for name in sys.modules if name.split(".")[0] == "ray"])
    """
    assert run(script) == "[]\n"


def test_a_ray_of_its_own_has_room_for_all_hosts_and_ends_with_the_program(tmp_path: Path) -> None:
    script = """
        import os, signal, pathlib
        from gossamer.launch.ray.launcher import Ray
        from gossamer.program import Program, Silent
        class Watcher(Silent):
            def report(self, worker, record):
                print(worker, record)
        def speak(ctx):
            ctx.report(os.environ["RAY_AUTH_MODE"])
        program = Program("own")
        for host in ("one", "two"):
            with program.host(host, cpus=os.cpu_count()):
                program.worker(speak)()
        handler = lambda number, frame: None
        signal.signal(signal.SIGTERM, handler)
        Ray()(program, Watcher())
        import ray
        print(ray.is_initialized(), signal.getsignal(signal.SIGTERM) is handler)
        print(oct((pathlib.Path.home() / ".ray/auth_token").stat().st_mode & 0o777))
    """
    said = run(script, HOME=str(tmp_path)).splitlines()
    assert sorted(said[:2]) == ["speak[0] token", "speak[1] token"]
    assert said[2:] == ["False True", "0o600"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_runs_unchanged(architecture: str) -> None:
    program, watcher = build(configure(architecture, env="catch", num_envs=4, steps=200, threads=1)), Watcher()
    QUICK(program, watcher)
    reports = [record for _, record in watcher.records if isinstance(record, Report)]
    assert max(report.steps for report in reports) >= 200 / len(program.crew)
    assert set(watcher.states) <= {copy.name for copy in program.crew}
    assert watcher.states
