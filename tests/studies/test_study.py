"""Studies are carried out: side by side, again, with failures and signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from some_runs import trained

import gossamer
from gossamer import cli, commands
from gossamer.storage import studies
from gossamer.storage.lock import held
from gossamer.storage.studies import PlannedRun
from gossamer.studies import conductor, jobs, study
from gossamer.studies.display import StudyDisplay
from gossamer.studies.plan import Design, check, settled
from gossamer.studies.study import Study, conducted
from gossamer.system.errors import UserError

TINY = ("--num-envs", "2", "--rollout-length", "4", "--threads", "1")
# Stands in for a run: waits for the file `go` beside the study, then leaves a result as training does.
STAND_IN = """
import json, pathlib, signal, sys, time
directory, go = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
def result(ended, code):
    (directory / "result.json").write_text(json.dumps({"steps": 80, "short": 0, "ended": ended, "mean_return": 1.5}))
    sys.exit(code)
signal.signal(signal.SIGINT, lambda *_: result("SIGINT", 130))
directory.mkdir(parents=True)
print("begun", flush=True)
while not go.exists():
    time.sleep(0.01)
result("all steps done", 0)
"""


def standing_in(monkeypatch: pytest.MonkeyPatch, folder: Path, fails: Callable[[PlannedRun], bool]) -> None:
    """Have stand-ins in place of runs; those that fail print two lines and end."""

    def command(run: PlannedRun, directory: Path) -> list[str]:
        if fails(run):
            return [sys.executable, "-c", "print('begun'); raise SystemExit('gossamer: the disk is full')"]
        return [sys.executable, "-c", STAND_IN, str(directory), str(folder / "go")]

    monkeypatch.setattr(jobs, "command", command)
    monkeypatch.setattr(study, "check", lambda runs: None)


def shown(width: int = 200) -> tuple[Callable[..., StudyDisplay], StringIO]:
    text = StringIO()
    return lambda planned, folder: StudyDisplay(planned, folder, Console(file=text, width=width)), text


def design(folder: Path, **given: Any) -> Design:
    return Design(("paac", "gala"), ("catch",), (1, 2), folder, **given)


def begun(folder: Path) -> int:
    return sum("begun" in log.read_text() for log in folder.glob("*/catch/seed-?.log"))


def wait_until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_so_many_runs_go_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(monkeypatch, tmp_path, lambda run: False)
    display, text = shown()
    done: list[Study] = []
    thread = threading.Thread(target=lambda: done.append(conducted(design(tmp_path / "s", jobs=3), display)))
    thread.start()
    wait_until(lambda: begun(tmp_path / "s") == 3)
    time.sleep(3 * conductor.POLL_SECONDS)
    assert begun(tmp_path / "s") == 3  # the fourth waits
    (tmp_path / "go").touch()
    thread.join(60)
    (made,) = done
    assert (made.complete, made.exit_code, made.counts) == (True, 0, {"finished": 4, "not started": 0})
    assert [outcome.run.directory for outcome in made.outcomes] == [
        "paac/catch/seed-1", "gala/catch/seed-1", "paac/catch/seed-2", "gala/catch/seed-2",
    ]  # fmt: skip
    assert "[4/4]" in text.getvalue()
    assert "gala on catch, seed 2: finished: 80 steps, mean return 1.50" in text.getvalue()


def test_a_failure_is_told_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(monkeypatch, tmp_path, lambda run: run.directory == "paac/catch/seed-1")
    (tmp_path / "go").touch()
    display, text = shown()
    made = conducted(design(tmp_path / "s"), display)
    assert (made.complete, made.exit_code) == (False, 3)
    assert made.counts == {"failed": 1, "finished": 3, "not started": 0}
    assert made.outcomes[0].reason == "gossamer: the disk is full"
    assert "paac on catch, seed 1: failed: gossamer: the disk is full" in text.getvalue()


def test_a_run_that_another_process_trains_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(monkeypatch, tmp_path, fails=lambda run: False)
    (tmp_path / "go").touch()
    (tmp_path / "study" / "paac" / "catch" / "seed-1").mkdir(parents=True)
    (tmp_path / "study" / "study.json").write_text('{"format": 1, "runs": []}')
    display, text = shown()
    with held(tmp_path / "study" / "paac" / "catch" / "seed-1"):
        done = conducted(Design(("paac",), ("catch",), (1, 2), tmp_path / "study"), display)
    assert done.counts == {"finished": 1, "failed": 1, "not started": 0}
    assert "another process is training it" in text.getvalue()


@pytest.mark.parametrize("name", ["compositions", "envs", "options"])
def test_a_text_in_place_of_a_list_is_refused(tmp_path: Path, name: str) -> None:
    given: dict[str, Any] = {"compositions": ["paac"], "envs": ["catch"], "directory": tmp_path / "study"}
    with pytest.raises(UserError, match=f"^{name} 'catch': must be a list of strings$"):
        gossamer.study(**{**given, name: "catch"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seeds": "12"}, "^seeds '12': must be a whole number, or a list of them$"),
        ({"seeds": 2.5}, "^seeds 2.5: must be a whole number"),
        ({"seeds": True}, "^seeds True: must be a whole number"),
        ({"seeds": [1, "2"]}, r"^seeds \[1, '2'\]: must be a whole number, or a list of them$"),
        ({"steps": 80.5}, "^steps 80.5: must be a whole number$"),
        ({"jobs": 1.5}, "^jobs 1.5: must be a whole number$"),
        ({"jobs": None}, "^jobs None: must be a whole number$"),
        ({"cluster": 3}, "^cluster 3: must be local, auto or IP:PORT$"),
        ({"directory": None}, "^directory None: must be a path$"),
        ({"envs": [3]}, "^env 3: must be a name, as pong, "),
        ({"options": ["--steps", 3]}, "^options: 3 is not a string$"),
    ],
)
def test_values_of_other_types_are_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {"compositions": ["paac"], "envs": ["catch"], "directory": tmp_path / "study", **given}
    with pytest.raises(UserError, match=message):
        gossamer.study(**whole)


def test_only_what_a_run_has_logged_itself_is_its_reason(tmp_path: Path) -> None:
    log = tmp_path / "seed-1.log"
    log.write_text("all steps done\n")
    assert jobs.last_line(log, log.stat().st_size) == ""
    assert jobs.last_line(log) == "all steps done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_runs_and_starts_no_more(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing_in(monkeypatch, tmp_path, lambda run: False)

    def interrupt() -> None:
        wait_until(lambda: begun(tmp_path / "s") == 2)
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    thread = threading.Thread(target=interrupt)
    thread.start()
    made = conducted(design(tmp_path / "s", jobs=2), shown()[0])
    thread.join()
    assert made.counts == {"interrupted": 2, "not started": 2}
    assert (made.complete, made.exit_code) == (False, 128 + number)
    assert signal.getsignal(number) is before


def test_a_run_that_a_signal_ends_alone_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(monkeypatch, tmp_path, lambda run: False)
    (tmp_path / "go").touch()
    others = jobs.command

    def command(run: PlannedRun, directory: Path) -> list[str]:
        alone = run.directory.endswith("seed-2") and run.label == "paac"
        return [sys.executable, "-c", "raise SystemExit(130)"] if alone else others(run, directory)

    monkeypatch.setattr(jobs, "command", command)
    made = conducted(design(tmp_path / "s"), shown()[0])
    assert made.counts == {"finished": 3, "interrupted": 1, "not started": 0}
    assert made.exit_code == 3


def test_no_run_is_left_behind_by_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(monkeypatch, tmp_path, lambda run: False)
    started: list[jobs.Job] = []
    begin = jobs.start
    monkeypatch.setattr(jobs, "start", lambda *given: started.append(begin(*given)) or started[-1])

    def breaks(running: Any) -> None:
        raise RuntimeError("the display broke")

    display = StudyDisplay(4, tmp_path, Console(file=StringIO()))
    monkeypatch.setattr(display, "update", breaks)
    with pytest.raises(RuntimeError, match="the display broke"):
        conducted(design(tmp_path / "s", jobs=2), lambda planned, folder: display)
    assert [job.process.poll() is not None for job in started] == [True, True]


def test_a_run_with_a_checkpoint_is_resumed_and_another_one_begins(tmp_path: Path) -> None:
    run, *_ = design(tmp_path, options=("--stop-at-return", "0.5")).runs()
    directory = tmp_path / run.directory
    (directory / "checkpoints").mkdir(parents=True)
    words = jobs.command(run, directory)[4:]  # after `python -P -m gossamer.cli`
    options = ["--env", "catch", "--seed", "1", "--stop-at-return", "0.5"]
    assert words == ["train", "paac", *options, "--run-dir", str(directory), "--overwrite"]
    (directory / "checkpoints" / "step_000000000080").mkdir()
    words = jobs.command(run, directory)[4:]
    assert words == ["resume", str(directory), "--stop-at-return", "0.5"]


def test_the_time_of_a_run_that_goes_on_is_what_is_left_of_it(tmp_path: Path) -> None:
    run, *_ = design(tmp_path, options=("--max-seconds", "60")).runs()
    directory = tmp_path / run.directory
    (directory / "checkpoints" / "step_000000000080").mkdir(parents=True)
    (directory / "metrics.jsonl").write_text('{"steps": 80, "seconds": 20.0}\n')
    assert jobs.command(run, directory)[4:] == ["resume", str(directory), "--max-seconds", "40.0"]


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "result.json"])
def test_a_run_that_cannot_be_read_fails_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    directory = trained(tmp_path / "paac/catch/seed-1").directory
    studies.write(tmp_path, [PlannedRun("paac/catch/seed-1", "paac", "catch", 1, "paac --env catch --seed 1")])
    (directory / name).unlink()
    (directory / name).mkdir()  # for a file that cannot be read: root can read every file
    standing_in(monkeypatch, tmp_path, fails=lambda run: False)
    (tmp_path / "go").touch()
    ended = conducted(Design(("paac",), ("catch",), (1, 2), tmp_path), shown()[0]).outcomes
    assert [outcome.status for outcome in ended] == ["failed", "finished"]
    assert ended[0].reason


def test_each_run_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[Any] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3, 4})
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: pinned.append(cores))
    for share in range(2):
        jobs._pin(7, share, 2)
    jobs._pin(7, 0, 6)  # more runs than cores: the system divides
    assert pinned == [[0, 2, 4], [1, 3]]


def test_a_run_that_was_killed_during_its_last_evaluation_is_not_finished(tmp_path: Path) -> None:
    directory = trained(tmp_path / "run", eval_every=40, eval_episodes=1).directory
    assert jobs.is_finished(directory)
    result = json.loads((directory / "result.json").read_text())
    evaluations = result.pop("evaluations")  # which stands in it only after the last evaluation
    (directory / "result.json").write_text(json.dumps(result))
    assert not jobs.is_finished(directory)
    left_out = result | {"evaluations": evaluations | {"left_out": True}}
    (directory / "result.json").write_text(json.dumps(left_out))
    assert not jobs.is_finished(directory)


def test_a_study_is_trained_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    folder, given = tmp_path / "study", {"envs": ["catch"], "seeds": np.int64(1), "steps": 8e1, "options": TINY}
    first = gossamer.study(["paac --max-seconds 1e-9"], directory=folder, **given)  # type: ignore[arg-type]
    assert first.complete  # it has reached the time that was asked for
    grown = gossamer.study(["paac --max-seconds 1e-9", "ppo: paac --algorithm ppo"], directory=folder, **given)  # type: ignore[arg-type]
    assert [outcome.status for outcome in grown.outcomes] == ["finished before", "finished"]
    result = json.loads((folder / "ppo/catch/seed-1/result.json").read_text())
    assert (result["steps"], result["config"]["algorithm"]["name"]) == (80, "ppo")


def test_the_command_line_replaces_what_a_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[dict[str, Any]] = []

    def conduct(**given: Any) -> Study:
        asked.append(given)
        return Study(Path(given["directory"]), (), 0)

    monkeypatch.setattr(study, "study", conduct)
    file = tmp_path / "atari.toml"
    file.write_text('envs = ["catch"]\nseeds = 3\nsteps = 50\noptions = "--threads 1"\n[compositions]\nA = "paac"\n')
    kept = {"compositions": ["A: paac"], "options": ["--threads", "1"]}
    assert commands.run("study", [str(file)]) == 0
    assert asked[-1] == {**kept, "envs": ["catch"], "seeds": 3, "steps": 50, "directory": Path("studies/atari")}
    typed = ["--env", "recall", "--seeds", "4,5", "--steps", "60", "--dir", "here", "--jobs", "2"]
    assert commands.run("study", [str(file), *typed]) == 0
    replaced = {"envs": ("recall",), "seeds": [4, 5], "steps": 60, "directory": Path("here"), "jobs": 2}
    assert asked[-1] == {**kept, **replaced}
    assert commands.run("study", [str(file), "--", "--num-envs", "2"]) == 0
    assert asked[-1]["options"] == ["--num-envs", "2"]
    with pytest.raises(UserError, match="give one file, or compositions"):
        commands.run("study", [str(file), "paac"])
    assert "0 runs" in capsys.readouterr().out


def test_the_command(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "gossamer.cli", "study", "paac", "--env", "catch", "--seeds", "4,", "--steps", "80"]
    words += ["--dir", str(tmp_path / "study"), "--json", "--", *TINY]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (0, 2), ran.stderr
    found = json.loads(ran.stdout)
    assert (found["complete"], [run["directory"] for run in found["runs"]]) == (True, ["paac/catch/seed-4"])
    listed = subprocess.run(
        [*words[:3], "runs", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    ).stdout.splitlines()
    assert listed[0].split() == ["run", "state", "architecture", "env", "seed", "steps", "return", "time"]
    assert listed[1].split()[1:7] == ["ended", "paac", "a2c", "catch", "4", "80"]


def test_another_study_in_the_folder_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "study"
    with settled(folder, design(folder).runs()):
        pass
    words = ["study", "paac", "--env", "catch", "--seeds", "9,", "--dir", str(folder)]
    monkeypatch.setattr("sys.argv", ["gossamer", *words])
    assert cli.main() == 2
    told = f"gossamer: --dir {folder}: has another study, with paac/catch/seed-1; give another directory\n"
    assert capsys.readouterr() == ("", told)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_run_that_was_killed_says_by_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    standing_in(monkeypatch, tmp_path, lambda run: False)
    dying = f"import os; print('steps 8/80', flush=True); os.kill(os.getpid(), {int(number)})"
    monkeypatch.setattr(jobs, "command", lambda run, directory: [sys.executable, "-c", dying])
    display, _ = shown()
    found = conducted(design(tmp_path / "s"), display)
    assert {outcome.status for outcome in found.outcomes} == {"failed"}
    memory = " (out of memory?)" if number == signal.SIGKILL else ""
    assert {outcome.reason for outcome in found.outcomes} == {f"killed by {signal.Signals(number).name}{memory}"}


def test_a_run_that_cannot_be_started_is_a_failure_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing_in(monkeypatch, tmp_path, lambda run: False)
    (tmp_path / "go").touch()
    start = jobs.start

    def failing(run: PlannedRun, *given: Any) -> jobs.Job:
        if run.seed == 1:
            raise OSError("no more processes")
        return start(run, *given)

    monkeypatch.setattr(jobs, "start", failing)
    display, _ = shown()
    found = conducted(design(tmp_path / "s"), display)
    assert found.counts == {"failed": 2, "finished": 2, "not started": 0}
    assert {each.reason for each in found.outcomes if each.run.seed == 1} == {"cannot be started: no more processes"}


def test_a_signal_that_comes_while_a_run_is_started_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(monkeypatch, tmp_path, lambda run: False)
    start = jobs.start

    def interrupted(*given: Any) -> jobs.Job:
        job = start(*given)
        while "begun" not in job.log.read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        return job

    monkeypatch.setattr(jobs, "start", interrupted)
    display, _ = shown()
    found = conducted(design(tmp_path / "s"), display)
    assert found.counts == {"interrupted": 1, "not started": 3}


@pytest.mark.parametrize("nohup", [False, True], ids=["terminal", "nohup"])
def test_a_terminal_that_closes_ends_the_runs_but_not_under_nohup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nohup: bool
) -> None:
    standing_in(monkeypatch, tmp_path, lambda run: False)

    def close_terminal() -> None:
        wait_until(lambda: begun(tmp_path / "s") == 1)
        os.kill(os.getpid(), signal.SIGHUP)
        (tmp_path / "go").touch()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    thread = threading.Thread(target=close_terminal)
    thread.start()
    try:
        made = conducted(design(tmp_path / "s"), shown()[0])
    finally:
        thread.join()
        signal.signal(signal.SIGHUP, before)
    assert made.counts["not started"] == (0 if nohup else 3)


@pytest.mark.parametrize("words", [["--max-seconds", "3"], ["--learning-rate", "1e-3"]])
def test_an_option_of_runs_before_the_dashes_is_told_where_to_stand(words: list[str]) -> None:
    with pytest.raises(UserError, match=f"{words[0]}: options of every run come after `--`: ... -- {words[0]} ..."):
        commands.run("study", ["paac", "--env", "catch", *words])


def test_a_run_whose_last_evaluation_a_signal_ended_is_not_finished(tmp_path: Path) -> None:
    """It ends with 0 itself: what it learned is whole. One that has reached its return would go on to train."""
    for left_out, solved, status in ((True, None, "interrupted"), (False, None, "finished"), (True, 64, "finished")):
        result = {"steps": 80, "short": 0, "ended": "all steps done", "evaluations": {"left_out": left_out}}
        (tmp_path / "result.json").write_text(json.dumps({**result, "solved_steps": solved}))
        process = subprocess.Popen([sys.executable, "-c", "pass"])
        process.wait()
        run = PlannedRun(directory="x", label="paac", env="catch", seed=1, command="paac")
        assert jobs.Job(run, tmp_path, tmp_path / "log", process, 0).outcome().status == status


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--stop-at-eval 18", "paac on catch: --stop-at-eval 18: no evaluations without --eval-every STEPS"),
        ("--callback early:Erly", "paac on catch: --callback early:Erly: "),
    ],
)
def test_what_a_run_refuses_first_is_refused_before_any_is_trained(tmp_path: Path, words: str, told: str) -> None:
    plan = Design(("paac",), ("catch",), (1,), tmp_path / "s", options=tuple(words.split()))
    with pytest.raises(UserError, match=f"^{re.escape(told)}"):
        check(plan.runs())
