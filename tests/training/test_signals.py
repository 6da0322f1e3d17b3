"""What signals do to a run: the first request saves, and only a second Ctrl-C ends it at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from some_runs import has_begun, result, start, wait_until

from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS
from gossamer.training.signals import Abandoned, Interrupted, Signals, exit_code, naming

INT, TERM = signal.SIGINT, signal.SIGTERM


class Asked:
    """Signals of a run, with a clock that a test sets."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.time = 100.0
        self.signals = Signals(self.requests.append, now=lambda: self.time)


def test_the_first_signal_is_a_request_and_more_of_it_are_the_same() -> None:
    asked = Asked()
    with asked.signals.handled():
        for number in (TERM, TERM, INT, TERM):
            os.kill(os.getpid(), number)
            asked.time += 10
    assert asked.requests == ["SIGTERM"]


@pytest.mark.parametrize("first", [(INT,), (TERM, INT), (INT, TERM, TERM)])
def test_a_second_interrupt_a_second_later_ends_at_once(first: tuple[signal.Signals, ...]) -> None:
    asked = Asked()
    for number in first:
        asked.signals(number, None)
    asked.time += 0.9  # the group of a terminal, or of `timeout --signal INT`, gets the same one again
    asked.signals(INT, None)
    asked.time += 0.1
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt, match="ended at once"):
            asked.signals(INT, None)
        asked.time += 4.9
        asked.signals(INT, None)  # an impatient hand
        asked.time += 0.1  # something holds up the end
    assert asked.requests == [first[0].name]


def test_the_handlers_of_before_come_back() -> None:
    before = [signal.getsignal(number) for number in (INT, TERM)]
    with Asked().signals.handled():
        assert signal.getsignal(INT) is signal.getsignal(TERM) is not before[0]
    assert [signal.getsignal(number) for number in (INT, TERM)] == before


def test_it_says_which_checkpoint_there_is_at_the_end() -> None:
    for asked, code in ((None, 130), ("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)):
        told = pytest.raises(Interrupted, match=r"^ended at once; there is no checkpoint$")
        with told as caught, naming(lambda: "there is no checkpoint", lambda asked=asked: asked):  # type: ignore[misc]
            raise KeyboardInterrupt("ended at once")
        assert caught.value.code == code


def test_other_threads_leave_signals_alone() -> None:
    found = []

    def look() -> None:
        with Asked().signals.handled():
            found.append(signal.getsignal(TERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(TERM)]


def test_a_part_that_may_be_left_out_is_left_out_once() -> None:
    asked = Asked()
    with pytest.raises(Abandoned), asked.signals.may_be_left_out():
        asked.signals(TERM, None)
    asked.signals(TERM, None)
    with asked.signals.may_be_left_out():
        pass
    asked.signals(TERM, None)
    assert asked.requests == ["SIGTERM"]


def test_a_ctrl_c_in_each_of_two_such_parts_leaves_out_both_and_ends_nothing_at_once() -> None:
    asked = Asked()
    for first in (True, False):
        with pytest.raises(Abandoned), asked.signals.may_be_left_out():
            asked.signals(INT, None)
        with asked.signals.may_be_left_out():
            asked.time += 0.9
            asked.signals(INT, None)  # the group of a terminal gets the same one again
        asked.time += 0.1
        assert asked.requests == [], first
    with pytest.raises(KeyboardInterrupt, match="ended at once"):
        asked.signals(INT, None)  # something else holds up the end


@pytest.mark.parametrize(
    ("ended", "short", "code"),
    [
        ("all steps done", 0, 0),
        ("231,520 steps short", 231520, 3),
        ("SIGINT", 0, 130),
        ("SIGTERM", 0, 143),
        ("SIGHUP", 0, 129),
    ],
)
def test_exit_codes(ended: str, short: int, code: int) -> None:
    assert exit_code({"ended": ended, "short": short}) == code


@pytest.mark.parametrize("number", [INT, signal.SIGHUP], ids=str)
def test_a_run_whose_output_nobody_reads_any_more_saves_and_ends(tmp_path: Path, number: signal.Signals) -> None:
    """As in `gossamer train ... 2>&1 | tee log`, where Ctrl-C ends tee, too, and where a terminal is closed."""
    directory = tmp_path / "run"
    process = start("train", "paac", "--env", "catch", "--steps", "100000000", "--threads", "1", "--run-dir", directory)
    wait_until(lambda: has_begun(directory), process)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    process.send_signal(number)
    assert process.wait(60) == exit_code({"ended": number.name, "short": 0})
    assert result(directory)["ended"] == number.name
    assert Store(directory / CHECKPOINTS).get("last").steps == result(directory)["steps"]


def test_under_nohup_a_closed_terminal_ends_nothing() -> None:
    asked, before = Asked(), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with asked.signals.handled():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not asked.requests


SLOW = """
import sys, time
import gymnasium, numpy as np
from gossamer import cli
class Slow(gymnasium.Env):
    "The {hang}th step of the first environment takes for ever."
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    age = 0
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {{}}
    def step(self, action):
        self.age += 1
        if self.age == {hang}:
            open("hangs", "w").close()
            time.sleep(1000)
        return np.zeros(2, np.float32), 1.0, self.age % 10 == 0, False, {{}}
sys.modules["slow"] = sys.modules["__main__"]
{more}
cli.run()
"""
ALWAYS = """
from functools import partial
from gossamer.training import session
kind = session.Checkpoints
session.Checkpoints = lambda *given, **more: kind(*given, **{**more, 'seconds': 0.0})
"""
BRIEF = ("--num-envs", "1", "--rollout-length", "4", "--threads", "1", "--run-dir", "run")


@pytest.mark.parametrize(("more", "told"), [("", "there is no checkpoint"), (ALWAYS, "the last checkpoint is step_")])
def test_a_second_interrupt_ends_though_an_environment_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    program = SLOW.format(hang=10, more=more)
    process = start("train", "paac", "--env", "slow:Slow", "--steps", "1000", *BRIEF, program=program)
    wait_until(lambda: (tmp_path / "hangs").exists(), process)
    assert process.stderr is not None
    process.send_signal(INT)
    line = process.stderr.readline()
    while "SIGINT: saving a checkpoint, then ending" not in line:
        line = process.stderr.readline()
        assert line
    process.send_signal(INT)  # within a second of the first it is the first again
    time.sleep(1.1)
    for _ in range(2):  # the second one ends it, a third one is left out
        process.send_signal(INT)
    err = process.stderr.read()
    process.wait()
    assert process.returncode == 130, err
    assert "terminate called" not in err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith(f"gossamer: ended at once; {told}")
    if more:
        named = err.split()[-1]
        Store(tmp_path / "run" / "checkpoints").get(named).load()


def test_sigterm_twice_saves_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    process = start("train", "paac", "--env", "catch", "--steps", "10000000", *BRIEF)
    wait_until(lambda: has_begun(run), process)
    while process.poll() is None:  # again and again, as a scheduler may
        process.terminate()
        time.sleep(0.01)
    _, err = process.communicate()
    assert process.returncode in (143, -15), err  # the second: after the run, while the interpreter leaves
    found = result(run)
    assert found["ended"] == "SIGTERM"
    assert Store(run / "checkpoints").get("last").steps == found["steps"]
    assert "terminate called" not in err
