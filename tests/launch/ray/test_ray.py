"""What is specific to programs on Ray: hosts that fail, what crosses between processes, clusters that cannot be used.

What holds on every launcher is in `test_launchers`. Hosts import this module: it imports nothing that takes long.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from some_programs import Counter, Fifo, Impatient, Watcher, work

from gossamer.launch.ray import launcher
from gossamer.launch.ray.errors import ClusterUnreachable, HostFailed, LackOfResources
from gossamer.launch.ray.launcher import Ray
from gossamer.program import Program
from gossamer.runtime import Context, Unreachable

pytestmark = pytest.mark.ray
QUICK = Ray(call_seconds=20.0, stop_seconds=2.0)


def test_an_error_that_cannot_be_pickled_says_what_it_was() -> None:
    class Odd(Exception):
        """One that cannot be unpickled: what it keeps is not what it is made of."""

        def __init__(self, one: str, other: str) -> None:
            super().__init__(f"{one} and {other}")

    class Broken:
        def work(self) -> None:
            raise Odd("one", "other")

    def survive(ctx: Context, service: Broken) -> None:
        with pytest.raises(RuntimeError, match="Odd: one and other"):
            service.work()
        ctx.report("told")

    program, watcher = Program("broken"), Watcher()
    broken = program.service(Broken)()
    with program.host("second"):
        program.worker(survive)(broken)
    QUICK(program, watcher)
    assert watcher.of("survive") == ["told"]


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
            here = (step, total)
            ctx.claim(0, lambda here=here: (ctx.report("saved"), here)[1])

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
        ctx.claim(0, lambda here=step: here)
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


class KillsAtEnd(Watcher):
    """Kills the host of `stay` once `leave` has ended."""

    def ended(self, worker: str) -> None:
        if worker == "leave":
            while not self.of("stay"):
                time.sleep(0.01)
            os.kill(self.of("stay")[0][0], signal.SIGKILL)


def test_a_restarted_worker_knows_which_others_have_ended(tmp_path: Path) -> None:
    restarted = tmp_path / "restarted"

    def leave(ctx: Context) -> None: ...

    def leave_later(ctx: Context) -> None:  # as far as the launcher knows: it may hear of an end after the restart
        while not restarted.exists():
            time.sleep(0.01)

    def stay(ctx: Context) -> None:
        ctx.report((os.getpid(), ctx.ended_before))
        while ctx.restarts == 0:
            time.sleep(0.01)
        restarted.touch()
        while len(ctx.ended_before) < 2:
            time.sleep(0.01)

    program, watcher = Program("ended"), KillsAtEnd()
    program.worker(stay)()
    with program.host("other"):
        program.worker(leave)()
        program.worker(leave_later)()
    QUICK(program, watcher)
    assert [ended for _, ended in watcher.of("stay")] == [frozenset(), {"leave"}]


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
        ctx.report((ctx.restarts, queue.get()))

    def die(ctx: Context, queue: Fifo) -> None:
        while queue.waiters() == 0 and ctx.restarts == 0:
            time.sleep(0.01)
        if ctx.restarts == 0:
            os.kill(os.getpid(), signal.SIGKILL)

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
        program.worker(die)(queue)
    QUICK(program, watcher)
    assert watcher.of("take") == [(1, "item")]


def test_a_call_that_need_not_wait_but_takes_too_long_is_given_up() -> None:
    class Slow:
        def nap(self) -> None:
            time.sleep(1.0)

        def answer(self) -> bool:
            return True

    def call(ctx: Context, slow: Slow) -> None:
        connected = False
        while not connected:  # which may take long on a busy machine
            with suppress(Unreachable):
                connected = slow.answer()
        with pytest.raises(Unreachable, match=r"Slow\.nap.*0\.2 s"):
            slow.nap()
        ctx.report("given up")

    program, watcher = Program("slow"), Watcher()
    slow = program.service(Slow)()
    with program.host("second"):
        program.worker(call)(slow)
    Ray(call_seconds=0.2)(program, watcher)
    assert watcher.of("call") == ["given up"]


@pytest.mark.parametrize("reports", [False, True])
def test_a_host_that_fails_again_and_again_fails_the_program(reports: bool, tmp_path: Path) -> None:
    """Also if it has reported before it fails, as all loops do."""

    def die(ctx: Context) -> None:
        if reports:
            ctx.report("here")
            until_heard(tmp_path / "die")
        os.kill(os.getpid(), signal.SIGKILL)

    program = Program("hopeless")
    program.worker(die)()
    with pytest.raises(HostFailed, match=r"host main has failed 2 times.*restarts=1"):
        Ray(restarts=1)(program, Hearing(tmp_path))


class Hearing(Watcher):
    """It makes a file in a folder for each worker that it gets a report of."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        (self.folder / worker).touch()


def until_heard(heard: Path) -> None:
    while not heard.exists():
        time.sleep(0.01)


def kill_for_good(ctx: Context, heard: Path) -> None:
    import ray

    ctx.report("going")
    until_heard(heard)
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
    time.sleep(60)


def test_a_host_that_is_gone_for_good_ends_the_program_once_the_others_have_ended(tmp_path: Path) -> None:
    def finish(ctx: Context) -> None:
        ctx.sleep(1.0)
        ctx.save("finished")

    program, watcher = Program("gone"), Hearing(tmp_path)
    program.worker(kill_for_good)(tmp_path / "kill_for_good")
    with program.host("other"):
        program.worker(finish)()
    Ray(gone_seconds=1.0)(program, watcher)
    assert watcher.states == {"finish": "finished"}
    assert watcher.of("kill_for_good") == ["going"]


def test_a_host_that_is_gone_for_good_and_was_alone_is_an_error(tmp_path: Path) -> None:
    program = Program("gone")
    program.worker(kill_for_good)(tmp_path / "kill_for_good")
    with pytest.raises(HostFailed, match="did not come back within 1 s: kill_for_good"):
        Ray(gone_seconds=1.0)(program, Hearing(tmp_path))


def test_two_hosts_that_are_gone_for_good_do_not_wait_for_each_other(tmp_path: Path) -> None:
    program = Program("gone")
    program.worker(kill_for_good)(tmp_path / "kill_for_good[0]")
    with program.host("other"):
        program.worker(kill_for_good)(tmp_path / "kill_for_good[1]")
    with pytest.raises(HostFailed, match=r"did not come back within 1 s: kill_for_good\[0\], kill_for_good\[1\]"):
        Ray(gone_seconds=1.0)(program, Hearing(tmp_path))


# What is needed before anything runs.


def test_lack_of_resources_says_who_needs_what_and_what_there_is() -> None:
    program = Program("big")
    with program.host("learner", gpus=2):
        program.worker(work)()
    with pytest.raises(LackOfResources, match=r"'learner' needs 1 cpus, 2 gpus.*6 cpus, 1 gpus"):
        QUICK(program)


def test_hosts_share_a_gpu_and_get_their_share_again_after_a_crash(tmp_path: Path) -> None:
    program, watcher = Program("sharing"), Hearing(tmp_path)
    for name in ("one", "two"):
        with program.host(name, gpus=1):
            program.worker(see_gpu)(tmp_path)
    QUICK(program, watcher)
    assert watcher.of("see_gpu[0]") == ["0 after 0 restarts", "0 after 1 restarts"]
    assert watcher.of("see_gpu[1]") == ["0 after 0 restarts"]


def see_gpu(ctx: Context, heard: Path) -> None:
    """Report the GPU that Ray assigned. The first of two hosts then crashes once."""
    ctx.report(f"{os.environ['CUDA_VISIBLE_DEVICES']} after {ctx.restarts} restarts")
    if ctx.rank == 0 and not ctx.restarts:
        until_heard(heard / "see_gpu[0]")
        os.kill(os.getpid(), signal.SIGKILL)


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
        with pytest.raises(ClusterUnreachable, match=rf"{address}: not reachable \(connection refused\)") as caught:
            Ray(address)(empty())
    assert "\n" not in str(caught.value)


def test_a_listener_that_is_no_cluster_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    without_a_ray(monkeypatch)
    monkeypatch.setattr(launcher, "CONNECT_SECONDS", 3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ClusterUnreachable, match=f"{address}: no answer from Ray within 3 s"):
            Ray(address)(empty())


def test_where_ray_is_not_installed_it_says_how_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match="Ray is not installed"):
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
        from gossamer.program import Program
        from gossamer.runtime import Silent
        class Watcher(Silent):
            def report(self, worker, record):
                print(f"{worker} {record}\\n", end="")  # at once: two hosts may report at the same time
        def speak(ctx):
            ctx.report((os.environ["RAY_AUTH_MODE"], os.nice(0)))
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
    here = os.nice(0)  # hosts have the priority of the program
    assert sorted(said[:2]) == [f"speak[0] ('token', {here})", f"speak[1] ('token', {here})"]
    assert said[2:] == ["False True", "0o600"]
