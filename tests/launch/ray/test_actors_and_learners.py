"""Actors and learners apart on Ray: what they learn there, and hosts that are killed."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter as Counts
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from some_parts import Watcher, a_task, differences
from some_rollouts import Checked, Echoed, Uneven, act_numbered, assert_complete, written
from some_runs import learned

import gossamer
from gossamer.algorithms import VTrace
from gossamer.architectures import IMPALA
from gossamer.data import Array, Stamp, Step
from gossamer.envs.base import VectorEnv
from gossamer.envs.gym import Custom
from gossamer.envs.toy import Catch, Counter
from gossamer.exchange import Parameters
from gossamer.exchange.broadcast import Published
from gossamer.exchange.broadcast.parameters import PackedParameters, Reply
from gossamer.launch.ray.launcher import Ray
from gossamer.loops import act
from gossamer.runtime import Answer, Wait, waits
from gossamer.spaces import Spec
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS
from gossamer.task import Recovered

pytestmark = pytest.mark.ray
QUICK = Ray(call_seconds=20.0, stop_seconds=2.0)
STEPS = 2_000


def die_once(flag: Path) -> None:
    """End this process as kill -9 does, unless one has died so before."""
    try:
        flag.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class DeadlyCatch:
    """Catch. The first process that has acted so many steps in it dies."""

    flag: Path
    after: int
    name: str = "catch"

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        return Deadly(Catch().make(num_envs), self)


class Deadly:
    def __init__(self, inner: VectorEnv, made_by: DeadlyCatch) -> None:
        self._inner, self._made_by, self._steps = inner, made_by, 0

    @property
    def spec(self) -> Spec:
        return self._inner.spec

    @property
    def num_envs(self) -> int:
        return self._inner.num_envs

    def reset(self, seed: int) -> Array:
        return self._inner.reset(seed)

    def step(self, action: Array) -> Step:
        self._steps += 1
        if self._steps == self._made_by.after:
            die_once(self._made_by.flag)
        return self._inner.step(action)

    def frames(self) -> Array:
        return self._inner.frames()

    def close(self) -> None:
        self._inner.close()


@dataclass(frozen=True)
class DeadlyVTrace(VTrace):
    """V-trace. The first process that has learned so often dies."""

    flag: Path = Path()
    after: int = 30

    def losses(self, *given: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == self.after:
            die_once(self.flag)
        return super().losses(*given, **more)


calls: list[int] = []  # of this process


class Keeper(Watcher):
    """Gives back what dead workers had leased, and restores what was saved last."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.notes, self.dead = list[str](), set[str]()

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        if not idle and self.budget.near_end(worker, steps, 2):  # as a run's own observer: nobody leases all in advance
            return Answer.WAIT if self.budget.granted < self.budget.total else Answer.END
        return super().claim(worker, steps, idle=idle)

    def died(self, worker: str) -> None:
        self.dead.add(worker)
        self.budget.release(worker)

    def restored(self, worker: str) -> Any | None:
        return self.saved.get(worker)

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if isinstance(record, Recovered):
            self.notes.append(record.told(0))


def test_actors_of_a_host_that_is_killed_come_back(tmp_path: Path) -> None:
    env, watcher = DeadlyCatch(tmp_path / "died", after=40), Keeper(steps=STEPS)
    QUICK(IMPALA(hosts=2, actors=1, num_envs=3).program(a_task(env, VTrace())), watcher)
    assert (tmp_path / "died").exists()
    assert watcher.dead & {"act[0]", "act[1]", "act"}
    assert watcher.budget.acted >= STEPS
    acted = {rollout for report in watcher.records for rollout in report.handed_over}
    learned = {rollout for report in watcher.records for rollout in report.learned_of}
    assert {
        f"act[{rollout.actor}]" for rollout in learned - acted
    } <= watcher.dead  # sent, but not reported before it died
    assert sum(rollout.steps for rollout in acted - learned) <= 3 * 12  # what it was sending
    assert "learner" in watcher.saved["learn"]


@pytest.mark.parametrize("loading", [False, pytest.param(True, marks=pytest.mark.long)], ids=["", "loader"])
def test_a_learner_that_is_killed_goes_on_from_the_parameters_of_an_actor(tmp_path: Path, loading: bool) -> None:
    algorithm, watcher = DeadlyVTrace(flag=tmp_path / "died"), Keeper(steps=STEPS)
    QUICK(IMPALA(hosts=2, actors=1, num_envs=3, parallel_loading=loading).program(a_task(algorithm=algorithm)), watcher)
    assert (tmp_path / "died").exists()
    assert "learn" in watcher.dead
    assert ("load" in watcher.dead) == loading
    assert watcher.budget.acted >= STEPS
    (note,) = watcher.notes
    assert "from an actor's host" in note
    assert int(watcher.saved["learn"]["exchange"]["iteration"]) > DeadlyVTrace.after


def counted(file: Path) -> type[Parameters]:
    """The service of parameters. The learner's own one, not a copy, writes down the version of each reply with some."""

    class Counted(Parameters):
        _copy = True

        def publish(self, published: Published) -> None:
            self._copy = False
            super().publish(published)

        @waits
        def first(self) -> Wait[Published]:
            return self._noted((yield from wait_for(Parameters.first, self)))

        def newer(self, stamp: Stamp) -> Published | None:
            return self._noted(super().newer(stamp))

        @waits
        def after(self, stamp: Stamp | None) -> Wait[PackedParameters | Reply]:
            return self._noted((yield from wait_for(Parameters.after, self, stamp)))

        def _noted(self, reply: Any) -> Any:
            if not self._copy and isinstance(reply, Published | PackedParameters):
                with open(file, "a") as replies:
                    replies.write(f"{reply.stamp.version}\n")
            return reply

    return Counted


def wait_for(method: Any, *given: Any) -> Wait[Any]:
    """Call a method that may have to wait from another one."""
    return (yield from method.waits(*given))


def test_a_host_receives_each_version_of_the_parameters_once_for_all_its_actors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three actors in turn with the learner, a batch of three rollouts at a time: 20 batches, by the versions 0 to 19.
    monkeypatch.setattr(sys.modules[IMPALA.__module__], "Parameters", counted(tmp_path / "replies"))
    watcher = Uneven(dict.fromkeys(("act[0]", "act[1]", "act[2]"), 20))
    launch = Ray(call_seconds=30.0, stop_seconds=2.0)  # after a call that takes longer, parameters are sent again
    launch(IMPALA(hosts=1, actors=3, num_envs=3, depth=1).program(a_task(algorithm=VTrace())), watcher)
    versions = list(map(int, (tmp_path / "replies").read_text().splitlines()))
    assert versions[:20] == list(range(20))
    assert versions[20:] in ([], [20])  # `fetch` may be faster than the actors are at ending
    assert sum((Counts(report.lag) for report in watcher.records), Counts[int]()) == {0: 60}


def test_two_learners_are_equal_in_every_checkpoint(tmp_path: Path) -> None:
    run = gossamer.train(
        "impala", env="catch", learners=2, hosts=1, actors=1, num_envs=4, rollout_length=4, threads=1, steps=1_000,
        checkpoint_every=0.5, cluster="auto", run_dir=tmp_path / "run",
    )  # fmt: skip
    assert (run.result["ended"], run.result["learned"]) == ("all steps done", run.result["steps"])
    checkpoints = Store(run.directory / CHECKPOINTS).all()
    assert checkpoints[-1].steps == run.result["steps"] >= 1_000
    for each in checkpoints:
        learners = each.load()["workers"]
        first, second = (learners[f"learn[{rank}]"] for rank in range(2))
        assert first["exchange"]["iteration"] == second["exchange"]["iteration"] > 0
        assert differences(first["learner"]["model"], second["learner"]["model"]) == []


def test_continuous_actions_line_up_between_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "envs"))
    task, watcher = a_task(Custom("some_envs:box"), Echoed(gamma=0.5), rate=0.0), Keeper(steps=96)
    QUICK(IMPALA(hosts=1, actors=1, num_envs=3).program(task), watcher)
    assert sum(report.learned for report in watcher.records) == watcher.budget.acted == 96


DEADLY = """
import os, signal
from collections import Counter
from pathlib import Path
from gossamer.algorithms import VTrace
from gossamer.system.options import options

calls = Counter()  # of this process

def die_once(kind, call):
    calls[kind] += 1
    if calls[kind] == call and not os.path.exists(flag := Path(__file__).with_name(kind)):
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)

@options
class Deadly(VTrace):
    def act(self, *given, **more):
        die_once("act", 200)
        return super().act(*given, **more)

    def losses(self, *given, **more):
        die_once("learn", 60)
        return super().losses(*given, **more)
"""


def test_the_result_tells_of_workers_that_died_and_of_learners_that_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = gossamer.train(
        "impala", env="catch", algorithm="deadly:Deadly", hosts=1, actors=1, num_envs=3, rollout_length=4, threads=1,
        steps=2_000, cluster="auto", run_dir=tmp_path / "run",
    )  # fmt: skip
    assert run.result["ended"] == "all steps done"
    died = [event for event in run.result["events"] if event["kind"] == "worker_died"]
    assert [event["worker"] for event in died] == ["act"]
    assert died[0]["unreported"] > 0
    (restarted,) = [event for event in run.result["events"] if event["kind"] == "learner_restarted"]
    assert restarted["version"] >= 0 <= restarted["lost"]
    assert "updates lost" in (run.directory / "run.log").read_text()


@pytest.mark.long
@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_rollouts_line_up_between_processes(memory: str, tmp_path: Path) -> None:
    env, algorithm = Counter(7, truncate=True), Checked(gamma=0.5, file=tmp_path / "seen")
    task = a_task(env, algorithm, rate=0.0, rollout_length=5, memory=memory, memory_units=4)
    watcher = Uneven({"act[0]": 25, "act[1]": 15})
    program = IMPALA(hosts=2, actors=1, num_envs=3, depth=3).program(task)
    QUICK(program.with_loops({act: act_numbered}), watcher)
    assert sum(report.learned for report in watcher.records) == watcher.budget.acted == (25 + 15) * 5 * 3
    assert_complete(written(tmp_path / "seen"), [25 * 5] * 3 + [15 * 5] * 3)


@pytest.mark.long
@pytest.mark.parametrize("hosts", [0, 1])  # of actors; 0: they are on the learner's
@pytest.mark.parametrize("name", ["impala", "appo"])
def test_catch_is_learned_with_the_default_settings(name: str, hosts: int, tmp_path: Path) -> None:
    run = learned(tmp_path, name, hosts=hosts, steps=150_000, cluster="auto")
    assert ("send" in run.result["time"]) == bool(hosts)  # rollouts cross between processes
