"""What a saved service starts with after its host has failed: nothing, the last checkpoint, or its last snapshot."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from some_programs import Watcher
from some_services import Reports

from gossamer.launch.base import Crew
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.launch.snapshots import Snapshots
from gossamer.program import OnRestart, Program
from gossamer.runtime import SILENT, Context, Unreachable


class Count:
    """A saved service that counts."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def settled(self) -> bool:
        return True

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def ask(ctx: Context, count: Count, times: int) -> None:
    for _ in range(times):
        ctx.sleep(1.0)
        try:
            ctx.report(count.add())
        except Unreachable:
            ctx.report("unreachable")


@pytest.mark.parametrize(
    ("on_restart", "seconds", "first"),
    [
        (OnRestart.EMPTY, 0.0, 1),
        (OnRestart.CHECKPOINT, 0.0, 101),
        # Read before the calls at 2 and at 4 seconds: the counts 101 and 103. The host fails at 4.5 seconds.
        (OnRestart.SNAPSHOT, 2.0, 104),
        (OnRestart.SNAPSHOT, 10.0, 101),  # not read yet: the last checkpoint
    ],
)
def test_in_the_simulation(on_restart: OnRestart, seconds: float, first: int) -> None:
    """The run goes on from a checkpoint with the count 100."""
    program, reports = Program("counting"), Reports({"Count": {"count": 100}})
    with program.host("far"):
        count = program.service(Count, saved=True, on_restart=on_restart, snapshot_seconds=seconds)()
    with program.host("near"):
        program.worker(ask)(count, times=7)
    Simulation(0, Network(timeout=0.1), Faults(crashes=[(4.5, "far", 1.0)]))(program, reports)
    # It asks at 1, 2, 3 and 4, in vain at 5 (and until 5.1), then at 6.1 and 7.1
    assert reports.of("ask") == [101, 102, 103, 104, "unreachable", first, first + 1]


class Mortal(Count):
    """It counts in a process that it can end."""

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def kill_after_snapshots(ctx: Context, count: Mortal) -> None:
    while count.add() < 120:
        pass
    time.sleep(3.0)  # at least one reading of the state after the last call
    with suppress(Unreachable):
        count.die()
    while True:
        try:
            ctx.report(count.add())
            return
        except Unreachable:
            ctx.sleep(0.1)


@pytest.mark.ray
@pytest.mark.parametrize(
    ("on_restart", "seconds", "first"),
    [
        pytest.param(OnRestart.EMPTY, 0.0, 1, marks=pytest.mark.long),
        pytest.param(OnRestart.CHECKPOINT, 0.0, 101, marks=pytest.mark.long),
        (OnRestart.SNAPSHOT, 0.2, 121),
    ],
)
def test_on_ray(on_restart: OnRestart, seconds: float, first: int) -> None:
    from gossamer.launch.ray.launcher import Ray

    program, watcher = Program("counting"), Watcher({"Mortal": {"count": 100}})
    with program.host("far"):
        count = program.service(Mortal, saved=True, on_restart=on_restart, snapshot_seconds=seconds)()
        program.worker(stay)()
    with program.host("near"):
        program.worker(kill_after_snapshots)(count)
    Ray(call_seconds=20.0, stop_seconds=2.0)(program, watcher)
    assert watcher.of("kill_after_snapshots") == [first]


def test_polls_go_on_while_a_large_state_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The state is read after 2 seconds and arrives at 60; then 2 seconds later a second one, which never arrives."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)")
    from gossamer.launch.ray import supervisor as module

    now, asked, cancelled, arrived = 0.0, list[float](), list[object](), set[float]()
    program = Program("counting")
    program.service(Count, saved=True, on_restart=OnRestart.SNAPSHOT, snapshot_seconds=2.0)()

    def states(services: list[str]) -> float:
        asked.append(now)
        return now

    actor = SimpleNamespace(states=SimpleNamespace(remote=states))
    run = module.Deployment(Crew(SILENT, lambda: None), None, {"one": actor}, module.Limits(5.0, 1, 120.0, 10.0))
    supervisor = module.Supervisor(run, "one", ["work"], program.services)
    supervisor._up = True
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(ray, "wait", lambda answers, timeout: (arrived & set(answers), set(answers) - arrived))
    monkeypatch.setattr(ray, "get", lambda answer: {"Count": f"state at {answer:g}"})
    monkeypatch.setattr(ray, "cancel", cancelled.append)
    for second in range(190):
        now = float(second)
        if second == 60:
            arrived.add(2.0)
        supervisor._read_snapshots()
        assert supervisor._snapshots.state("Count", lambda name: "none") == ("none" if second < 60 else "state at 2")
    assert asked == [2.0, 62.0, 184.0]
    assert cancelled == [62.0]
    assert caplog.messages == ["host one: its services' states did not arrive within 120 s"]
    assert supervisor._up


def stay(ctx: Context) -> None:
    """A host needs a worker."""
    ctx.sleep(0.5)


def test_only_a_saved_service_is_restored_and_only_snapshots_have_a_period() -> None:
    program = Program("refused")
    more: Any
    for more, why in (
        ({"on_restart": OnRestart.CHECKPOINT}, "only a saved service has a state"),
        ({"saved": True, "on_restart": OnRestart.SNAPSHOT}, "must be positive"),
        ({"saved": True, "snapshot_seconds": 1.0}, "0 otherwise"),
    ):
        with pytest.raises(ValueError, match=why):
            program.service(Count, **more)


def test_each_service_is_read_when_its_period_is_over() -> None:
    program = Program("two")
    program.service(Count, saved=True, on_restart=OnRestart.SNAPSHOT, snapshot_seconds=2.0)()
    program.service(Mortal, saved=True)()
    snapshots = Snapshots(program.services)
    assert (snapshots.due(1.9), snapshots.due(2.5)) == ([], ["Count"])
    snapshots.keep("Count", "state", 2.5)
    assert (snapshots.due(4.4), snapshots.due(4.5)) == ([], ["Count"])
    assert snapshots.state("Count", lambda name: "checkpoint") == "state"
    assert snapshots.state("Mortal", lambda name: "checkpoint") is None
