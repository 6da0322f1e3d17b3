"""Trainings that benchmarks watch: stand-ins that write marks, use CPU time and start processes of their own."""

from __future__ import annotations

import signal
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import watched

# Writes a mark of 10 steps for each of 10 virtual seconds, computes for 0.3 s of CPU time, then waits.
TRAINS = """
    import json, signal, sys, time
    with open(sys.argv[1], "w") as file:
        for second in range(11):
            file.write(json.dumps({"seconds": second, "steps": 10 * second}) + chr(10))
    while time.process_time() < 0.3: pass
    """
WAITS = "time.sleep(600)"


def started(folder: Path, *programs: str) -> list[str]:
    script = folder / "train.py"
    script.write_text("\n".join(textwrap.dedent(program) for program in programs))
    return [sys.executable, str(script), str(folder / "marks")]


@pytest.fixture(autouse=True)
def _interruptible() -> None:
    """Python ignores SIGINT if it was started with & by a shell, and so would the stand-ins."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_rate_is_taken_between_the_end_of_the_warm_up_and_the_last_mark() -> None:
    # The clock starts at 100. Marks 3 s and 7 s after it lie after a warm-up of 2 s: (1100 - 300) / (7 - 3) = 200.
    marks = [(100.0, 0), (101.5, 50), (103.0, 300), (105.0, 650), (107.0, 1100)]
    assert watched.rate(marks, warm_up=2.0) == 200.0
    assert watched.rate(marks, warm_up=0.0) == pytest.approx(1100 / 7)


def test_a_rate_needs_two_marks_after_the_warm_up() -> None:
    with pytest.raises(ValueError, match="measure for longer"):
        watched.rate([(0.0, 0), (3.0, 100)], warm_up=1.0)


def test_marks_are_the_whole_lines_after_the_first_step(tmp_path: Path) -> None:
    file = tmp_path / "marks"
    assert watched.read_marks(file) == []
    file.write_text('{"seconds": 1, "steps": 0}\n{"seconds": 2.5, "steps": 8, "trained": 4}\n{"seconds": 3, "st')
    assert watched.read_marks(file) == [(2.5, 8)]


def test_a_training_is_watched_and_interrupted(tmp_path: Path) -> None:
    with watched.training(started(tmp_path, TRAINS, WAITS), log=tmp_path / "log", marks=tmp_path / "marks") as run:
        marks = run.wait(9.0)
        assert marks == [(second, 10 * second) for second in range(1, 11)]
        deadline = time.monotonic() + 60
        while (used := run.cpu_seconds()) < 0.2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert used < 60
    assert run.process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in run.log.read_text()


def test_a_training_that_ends_early_says_why(tmp_path: Path) -> None:
    command = started(tmp_path, TRAINS, "raise SystemExit('no more games')")
    with (
        pytest.raises(RuntimeError, match=r"ended with 1, after 10 marks:\nno more games"),
        watched.training(command, log=tmp_path / "log", marks=tmp_path / "marks") as run,
    ):
        run.wait(9.5)


def test_a_training_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "STUCK_SECONDS", -8.5)  # 1 s in all
    command = started(tmp_path, "import time", WAITS)
    with (
        pytest.raises(RuntimeError, match="hangs, after 0 marks"),
        watched.training(command, log=tmp_path / "log", marks=tmp_path / "marks") as run,
    ):
        run.wait(9.5)


def test_processes_that_outlive_the_interrupt_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that ignores the interrupt, one in a session of its own, and one whose parent has ended."""
    monkeypatch.setattr(watched, "END_SECONDS", 0.5)
    monkeypatch.setattr(watched, "LAST_SECONDS", 0.5)
    child = """
        import subprocess
        deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(600)"
        parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {deaf!r}])"
        pipe = subprocess.PIPE
        one = subprocess.Popen([sys.executable, "-c", deaf], stdout=pipe)
        two = subprocess.Popen([sys.executable, "-c", deaf], stdout=pipe, start_new_session=True)
        three = subprocess.Popen([sys.executable, "-c", parent], stdout=pipe)
        for each in (one, two, three): each.stdout.readline()
        three.wait()
        with open(sys.argv[1], "a") as file:
            file.write(json.dumps({"seconds": 99, "steps": 99}) + chr(10))
    """
    command = started(tmp_path, TRAINS, child, WAITS)
    with watched.training(command, log=tmp_path / "log", marks=tmp_path / "marks") as run:
        run.wait(98.0)
        members = watched.family(run.process.pid)
        assert len(members) == 4
    assert not [process for process in members if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
