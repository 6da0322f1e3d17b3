"""A run whose environment fails or hangs: what is saved, and what the user is told."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from some_parts import Watcher, a_task
from some_runs import QUICK, checkpoint, rows, save_always, trained

import gossamer
from gossamer import cli
from gossamer.architectures import PAAC
from gossamer.envs import watchdog
from gossamer.envs.gym import Custom
from gossamer.launch.threads import threads
from gossamer.reporting.runs import RunFolder, load
from gossamer.storage.runs import RunRecord
from gossamer.system.errors import EnvironmentFailed, UserError

MINE = """
import os, signal, threading, gymnasium, numpy as np

class Good(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    age = 0
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.age += 1
        return np.zeros(2, np.float32), 1.0, self.age % 10 == 0, False, {}

class Fails(Good):
    "Its 30th step, in the 8th rollout of 4."
    def step(self, action):
        if self.age == 29:
            raise OSError("no coal left")
        return super().step(action)

class FailsAtOnce(Good):
    "But not at the first step, which is tried before the run."
    def step(self, action):
        if self.age == 1:
            raise OSError("no coal at all")
        return super().step(action)

class FailsInterrupted(Fails):
    def step(self, action):
        if self.age == 29:
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)

class NoTuple(Good):
    def step(self, action):
        return super().step(action)[:4]

class Hangs(Good):
    "At its 30th step."
    waiting, released = threading.Event(), threading.Event()
    def step(self, action):
        if self.age == 29:
            self.waiting.set()
            self.released.wait()
        return super().step(action)

class Late(Fails):
    "Before any episode has ended."
    def step(self, action):
        return *super().step(action)[:2], False, False, {}

def refuses():
    raise RuntimeError("no licence")
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)


def learned(directory: Path) -> dict[str, int]:
    """Steps that each member's state has."""
    return {name: state["learner"]["steps"] for name, state in checkpoint(directory)["workers"].items()}


def test_what_was_learned_is_saved_and_the_traceback_kept() -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        trained(Path("run"), env="mine:Fails", steps=1000)
    told = "--env mine:Fails: environment 0: step() raised OSError: no coal left (mine.py, line 19); "
    told += "traceback in run/run.log; the last checkpoint is step_000000000056"
    assert str(caught.value) == told
    assert learned(Path("run")) == {"act_and_learn": 56}  # 7 rollouts of 4 steps in 2 environments
    assert checkpoint(Path("run"))["workers"]["act_and_learn"]["actor"] == {}
    log = Path("run/run.log").read_text()
    assert 'raise OSError("no coal left")' in log
    assert "Traceback (most recent call last)" in log


def test_an_environment_that_fails_after_an_interrupt_ends_an_interrupted_run() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        trained(Path("run"), env="mine:FailsInterrupted", steps=1000)
    told = (
        "ended by SIGINT; meanwhile: --env mine:FailsInterrupted: environment 0: step() raised OSError: no coal left "
    )
    assert str(caught.value) == f"{told}(mine.py, line 19); the last checkpoint is step_000000000056"
    assert "Traceback (most recent call last)" in Path("run/run.log").read_text()


def test_it_goes_on_from_there() -> None:
    with pytest.raises(EnvironmentFailed):
        trained(Path("run"), env="mine:Fails", steps=1000)
    with pytest.raises(EnvironmentFailed, match="the last checkpoint is step_000000000112"):
        gossamer.resume("run")
    assert [row["steps"] for row in rows(Path("run"))] == sorted(row["steps"] for row in rows(Path("run")))


def test_a_resumed_run_that_fails_has_not_ended() -> None:
    ended = trained(Path("run"), env="mine:Fails", steps=40).result
    event = {"kind": "host", "time": "2026-01-01 00:00:00", "steps": 8, "name": "host0"}
    Path("run/result.json").write_text(json.dumps({**ended, "events": [event]}))
    with pytest.raises(UserError, match="the run has done 40 already"):
        gossamer.resume("run", steps=40)
    assert RunRecord(Path("run")).state == "ended"
    with pytest.raises(EnvironmentFailed, match="the last checkpoint is step_000000000096"):  # 40 + 7 rollouts of 8
        gossamer.resume("run", steps=1000)
    assert [row["steps"] for row in rows(Path("run"))] == [40]  # it failed before its first row
    assert RunRecord(Path("run")).state == "crashed"
    with pytest.raises(UserError, match=r"crashed at 96 of 1,000 steps; gossamer resume run continues it"):
        load([RunFolder(Path("run"))])
    assert gossamer.resume("run", steps=104).result["events"] == [event]
    assert (RunRecord(Path("run")).state, RunRecord(Path("run")).steps) == ("ended", 104)
    assert not Path("run/result-earlier.json").exists()


def test_every_member_is_saved() -> None:
    given = {**QUICK, "env": "mine:Fails", "learners": 2, "steps": 1000}
    with pytest.raises(EnvironmentFailed, match=r"in worker act_and_learn\[[01]\]; traceback in "):
        gossamer.train("gala", run_dir="run", **given)  # type: ignore[arg-type]
    assert sorted(learned(Path("run"))) == ["act_and_learn[0]", "act_and_learn[1]"]


def test_where_nothing_was_learned_nothing_is_kept() -> None:
    with pytest.raises(EnvironmentFailed, match=r"no coal at all .*; there is no checkpoint"):
        trained(Path("run"), env="mine:FailsAtOnce")
    assert not Path("run/checkpoints").exists()


@pytest.mark.parametrize(("name", "told"), [("NoTuple", "not 4 values"), ("refuses", "no licence")])
def test_what_shows_at_the_first_step_is_refused_before_anything_is_written(name: str, told: str) -> None:
    with pytest.raises(EnvironmentFailed, match=told):
        trained(Path("run"), env=f"mine:{name}")
    assert not Path("run").exists()


def test_the_command_says_it_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--env", "mine:Fails", "--num-envs", "2", "--rollout-length", "4", "--steps", "80", "--run-dir", "run"]
    monkeypatch.setattr(sys, "argv", ["gossamer", "train", "paac", *words])
    assert cli.main() == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("gossamer: --env mine:Fails: environment 0: step() raised OSError: no coal left")


def test_restarts_are_counted_and_reported() -> None:
    task, watcher = a_task(Custom("mine:Fails", on_error="restart")), Watcher(steps=400)
    threads(PAAC(num_envs=2, env_workers=0).program(task), watcher)
    failures = [failure for report in watcher.records for failure in report.failures]
    assert [failure.index for failure in failures] == [0, 1] * 6  # 200 steps of each, every 30th of which fails
    cut = [episode for report in watcher.records for episode in report.episodes]
    assert [episode.steps for episode in cut][4:6] == [10, 10]  # 20 + 9 good steps and the one that failed
    assert {(episode.env, episode.index) for episode in cut} == {("mine:Fails", 0), ("mine:Fails", 1)}


def test_the_result_says_how_many_were_restarted() -> None:
    run = trained(Path("run"), env="mine:Fails", steps=400, on_env_error="restart")
    assert run.result["environment_restarts"] == 12
    log = Path("run/run.log").read_text()
    assert log.count("raised OSError: no coal left") == log.count("Traceback") == 4  # the 1st, 2nd, 4th and 8th
    assert checkpoint(Path("run"))["progress"]["restarts"] == 12


def interrupt(when: Callable[[], bool]) -> None:
    """Send SIGINT once that is so."""
    while not when():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def noticed() -> bool:
    file = Path("run/run.log")
    return file.exists() and "has not responded" in file.read_text()


def hangs() -> bool:
    return "mine" in sys.modules and bool(sys.modules["mine"].Hangs.waiting.is_set())


def hung(monkeypatch: pytest.MonkeyPatch, when: Callable[[], bool] = noticed) -> str:
    """What is said at the end of a run that hangs and is interrupted."""
    monkeypatch.setattr(watchdog, "HANG_SECONDS", 0.5)
    interrupts = threading.Thread(target=interrupt, args=(when,), daemon=True)
    interrupts.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        trained(Path("run"), env="mine:Hangs", steps=10**6)
    sys.modules["mine"].Hangs.released.set()  # so that the threads end
    for thread in (interrupts, *threading.enumerate()):
        if thread.name.startswith(("Thread", "act_and_learn", "watchdog")):
            thread.join()
    return str(caught.value)


@pytest.mark.parametrize("when", [noticed, hangs])
def test_an_environment_that_hangs_is_named_and_left_behind(
    when: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = hung(monkeypatch, when)
    assert told.startswith("act_and_learn: environment 0 of mine:Hangs has not responded for ")
    assert told.endswith("; there is no checkpoint")
    log = Path("run/run.log").read_text()
    assert re.search(r"act_and_learn: environment 0 of mine:Hangs has not .* s; Ctrl-C ends the run without it", log)


def test_it_says_so_where_there_is_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    save_always(monkeypatch)
    told = hung(monkeypatch)
    # the 8th rollout of 4 steps in 2 environments hangs
    assert told.endswith("; the last checkpoint is step_000000000056")


def test_what_goes_wrong_in_the_last_games_says_that_training_is_done() -> None:
    # 64 steps are 16 of each environment, whose 30th is not reached; in a whole game it is
    given = {**QUICK, "env": "mine:Late", "learners": 2, "steps": 64}
    with pytest.raises(EnvironmentFailed, match=r"no coal left .*; training is done and saved in run; this was in"):
        gossamer.train("gala", run_dir="run", **given)  # type: ignore[arg-type]
    assert Path("run/result.json").exists()


def test_what_an_environment_s_failure_leaves_of_a_replay_memory() -> None:
    """It is in the last checkpoint, and goes on without a window across the gap: 56 steps, and 8 of each environment
    more until it fails again, in the 8th rollout."""
    given = {**QUICK, "env": "mine:Fails", "steps": 1000, "save_replay": True, "buffer_size": 500, "batch_size": 8}
    with pytest.raises(EnvironmentFailed):
        gossamer.train("dqn", run_dir="run", learning_starts=8, n_step=2, **given)  # type: ignore[arg-type]
    memory = checkpoint(Path("run"))["workers"]["act_and_learn"]["experience"]["store"]["memory"]
    assert list(memory["written"]) == [28, 28]
    assert memory["closed"].tolist() == []
    with pytest.raises(EnvironmentFailed):
        gossamer.resume("run")
    memory = checkpoint(Path("run"))["workers"]["act_and_learn"]["experience"]["store"]["memory"]
    assert list(memory["written"]) == [57, 57]  # with the gap
    assert memory["closed"].tolist() == [[0, 2, 0, 28]]
