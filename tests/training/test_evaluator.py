"""Evaluations beside training: when, of what, one at a time, and what happens if one fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from some_parts import differences
from some_runs import checkpoint, result, start, trained
from some_sinks import wait

import gossamer
from gossamer.storage.checkpoint import Checkpoint, Store
from gossamer.storage.contents import survey
from gossamer.storage.runs import RunRecord
from gossamer.studies.jobs import is_finished
from gossamer.system.errors import UserError
from gossamer.training.evaluator import Evaluator

PLAYED = {
    "protocol": "plain", "episodes": 2, "std_return": 0.0, "returns": [1.0, 1.0], "greedy": False, "member": None,
    "cut_off": 0, "max_steps": 100, "epsilon": None, "metrics": {},
}  # fmt: skip
WAITS = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[2]).exists(): time.sleep(0.01)\n"
PRINTS = "print('a banner'); print(sys.argv[1])"


class Beside:
    """An evaluator every 100 steps, whose processes run a short script, and the run's checkpoints."""

    def __init__(self, folder: Path, script: str, every: int = 100, *, exact: bool = False, done: int = 0) -> None:
        self.go, self.script, self.told = folder / "go", script, list[str]()
        self.store = Store(folder / "checkpoints", keep=1)
        self.evaluator = Evaluator(
            self.command, self.store, every=every, done=done, exact=exact, failed=self.told.append
        )

    def command(self, found: Checkpoint) -> Sequence[str]:
        row = {
            **PLAYED,
            "steps": found.steps,
            "checkpoint": found.path.name,
            "mean_return": -found.steps,
        }
        return [sys.executable, "-c", self.script, json.dumps(row), str(self.go)]

    def keep(self, steps: int) -> None:
        """Write a checkpoint and offer it, as the observer does."""
        tree = {"a": steps, "progress": {"elapsed": steps / 100}}
        self.store.save(tree, steps=steps, score=float(steps))
        self.evaluator.offer(self.store.get("last"), 1.5)

    def steps(self) -> list[int]:
        return [row["steps"] for row in self.evaluator.take()]


def test_a_checkpoint_is_evaluated_each_time_a_multiple_is_passed(tmp_path: Path) -> None:
    beside = Beside(tmp_path, "import sys\n" + PRINTS)
    for steps in (90, 110, 150, 199, 210, 480, 490, 500):
        assert beside.evaluator.due(steps) == (steps in (110, 210, 480, 500))
        beside.keep(steps)
        wait(lambda: not beside.evaluator.running)
    assert beside.steps() == [110, 210, 480, 500]
    assert beside.steps() == []
    assert beside.evaluator.rows[0] == {
        **PLAYED, "seconds": 1.5, "steps": 110, "checkpoint": "step_000000000110", "mean_return": -110
    }  # fmt: skip
    found = beside.evaluator.to_dict()
    assert (found["last"]["steps"], found["best"]["steps"], found["failures"]) == (500, 110, 0)
    assert "returns" not in found["last"]


def test_of_several_games_the_result_has_the_mean_of_each(tmp_path: Path) -> None:
    beside = Beside(tmp_path, PRINTS)
    games = {"pong": {"mean_return": 2.0, "returns": [1.0, 3.0]}, "boxing": {"mean_return": 4.0, "returns": [4.0, 4.0]}}
    beside.evaluator.rows = [{"steps": 10, "mean_return": 3.0, "returns": [1.0, 3.0, 4.0, 4.0], "games": games}]
    means = {"pong": {"mean_return": 2.0}, "boxing": {"mean_return": 4.0}}
    assert beside.evaluator.to_dict()["last"] == {"steps": 10, "mean_return": 3.0, "games": means}
    assert games["pong"]["returns"] == [1.0, 3.0]


def test_exactly_each_multiple_is_evaluated_in_its_turn(tmp_path: Path) -> None:
    beside = Beside(tmp_path, WAITS + PRINTS, exact=True)
    for steps in (90, 110, 150, 210, 330, 350):
        beside.keep(steps)
    assert [beside.evaluator.wanted(steps) for steps in (399, 400)] == [False, True]
    # one is being played and two wait; these are kept besides the last one, which is the best, too
    assert beside.evaluator.left == 3
    assert [each.steps for each in beside.store.all()] == [110, 210, 330, 350]
    beside.go.touch()
    beside.evaluator.finish(beside.store.get("last"), 2.5)
    assert (beside.steps(), beside.evaluator.left) == ([110, 210, 330], 0)
    beside.store.prune()
    assert [each.steps for each in beside.store.all()] == [350]


def test_what_an_interrupted_session_had_no_time_for_is_evaluated_by_the_next(tmp_path: Path) -> None:
    first = Beside(tmp_path, WAITS + PRINTS, exact=True)
    for steps in (110, 210, 330):
        first.keep(steps)
    first.evaluator.stop()
    first.store.save({"a": 340}, steps=340, score=340.0)  # as at the end of a session
    assert (first.steps(), first.told) == ([], [])
    (tmp_path / "checkpoints" / "step_000000000210" / "state.json").write_text("damaged")
    again = Beside(tmp_path, "import sys\n" + PRINTS, exact=True, done=110)
    again.evaluator.take_up()  # what is damaged fails in a process of its own, if it reads it
    again.evaluator.finish(again.store.get("last"), 8.0)
    rows = again.evaluator.take()
    assert [(row["steps"], row["seconds"]) for row in rows] == [(210, 0.0), (330, 3.3)]


def test_its_process_has_one_thread_no_gpu_and_yields_to_training(tmp_path: Path) -> None:
    # Its session is that of training: between sessions, Linux does not compare priorities. Its process group is another
    # one, so that a terminal does not send it a Ctrl-C.
    beside = Beside(tmp_path, "import json, os, sys\nrow = json.loads(sys.argv[1])\n"
                    "row['returns'] = [os.getsid(0), os.getpgid(0), os.getpid()]\n"
                    "row['protocol'] = os.environ['OMP_NUM_THREADS'] + os.environ['CUDA_VISIBLE_DEVICES']\n"
                    "print(json.dumps(row))")  # fmt: skip
    beside.keep(100)
    wait(lambda: not beside.evaluator.running)
    (row,) = beside.evaluator.take()
    session, group, process = row["returns"]
    assert (session, group) == (os.getsid(0), process)
    assert process != os.getpid()
    assert row["protocol"] == "1"


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux only")
@pytest.mark.parametrize("limit", [1, None], ids=["one core", "all cores"])
def test_an_evaluation_runs_where_a_core_is_idle_or_has_a_low_priority(tmp_path: Path, limit: int | None) -> None:
    # It waits at its first import: `torch` is a module that tells the policy and the priority.
    cores = sorted(os.sched_getaffinity(0))[:limit]
    told = "print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), flush=True)"
    (tmp_path / "torch.py").write_text(f"import os\n{told}\n")
    root = Path(gossamer.__file__).parent.parent
    limited = f"import os; os.sched_setaffinity(0, {cores}); "
    words = [sys.executable, "-c", f"{limited}from gossamer.evaluation.background import main; main()", "{}"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        policy, priority = map(int, process.stdout.readline().split())
        process.kill()
    before = os.getpriority(os.PRIO_PROCESS, 0)
    alone = len(cores) == 1
    assert policy == (os.sched_getscheduler(0) if alone else os.SCHED_IDLE)
    assert priority == (min(19, before + 10) if alone else before)


def test_without_an_interval_nothing_is_evaluated(tmp_path: Path) -> None:
    beside = Beside(tmp_path, "", every=0)
    beside.keep(10**9)
    beside.evaluator.finish(beside.store.get("last"), 2.5)
    assert (beside.steps(), beside.told) == ([], [])


def test_there_is_one_at_a_time_and_its_checkpoint_stays(tmp_path: Path) -> None:
    beside = Beside(tmp_path, WAITS + PRINTS)
    for steps in (100, 200, 300):
        beside.keep(steps)
        assert not beside.evaluator.due(steps + 100)
    assert [each.steps for each in beside.store.all()] == [100, 300]  # `keep` is 1
    beside.go.touch()
    wait(lambda: not beside.evaluator.running)
    assert beside.evaluator.due(310)  # the next one is of what is newest now
    beside.keep(310)
    assert [each.steps for each in beside.store.all()] == [310]
    beside.evaluator.finish(beside.store.get("last"), 2.5)
    assert beside.steps() == [100, 310]


def test_the_end_waits_for_the_last_one(tmp_path: Path) -> None:
    beside = Beside(tmp_path, "import sys, time\ntime.sleep(0.2)\n" + PRINTS)
    beside.keep(100)
    beside.keep(200)
    beside.evaluator.finish(beside.store.get("last"), 2.5)
    assert [(row["steps"], row["seconds"]) for row in beside.evaluator.take()] == [(100, 1.5), (200, 2.5)]


def test_a_run_that_is_stopped_ends_it(tmp_path: Path) -> None:
    beside = Beside(tmp_path, WAITS + PRINTS)
    beside.keep(100)
    beside.evaluator.stop()
    assert not beside.evaluator.running
    beside.keep(200)
    beside.evaluator.finish(beside.store.get("last"), 2.5)
    assert (beside.steps(), beside.told, beside.evaluator.failures) == ([], [], 0)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("raise SystemExit('first line\\nno room')", "no room"),
        ("raise SystemExit(3)", "exit code 3"),
        ("print('not JSON')", "Expecting value: line 1 column 1 (char 0)"),
        ("pass", "list index out of range"),
    ],
)
def test_failures_are_told_and_counted(tmp_path: Path, script: str, why: str) -> None:
    beside = Beside(tmp_path, script)
    for steps in (100, 200):
        beside.keep(steps)
        wait(lambda: not beside.evaluator.running)
    assert beside.told == [f"evaluation at step {steps} failed: {why}" for steps in (100, 200)]
    assert beside.evaluator.to_dict() == {"last": None, "best": None, "failures": 2, "left_out": False}
    assert [each.steps for each in beside.store.all()] == [200]  # the first one is not held any more


def test_its_process_ends_with_the_run() -> None:
    words = [sys.executable, "-m", "gossamer.evaluation.background", "{}"]
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, b"", b"")


def test_a_run_evaluates_and_a_resumed_one_goes_on(tmp_path: Path) -> None:
    options = {"steps": 40, "eval_every": 40, "eval_episodes": 3}
    run = trained(tmp_path / "run", log="tensorboard,some_sinks:Kept", **options)
    (first,) = RunRecord(run.directory).evaluations
    assert (first["steps"], first["checkpoint"], len(first["returns"])) == (40, "step_000000000040", 3)
    alone = gossamer.evaluate(run.directory, episodes=3, checkpoint=first["checkpoint"])
    assert alone.returns == first["returns"]
    again = gossamer.resume(run.directory, steps=80)
    assert [row["steps"] for row in RunRecord(run.directory).evaluations] == [40, 80]
    assert again.result["evaluations"]["last"]["steps"] == 80
    assert again.result["evaluations"]["failures"] == 0
    assert result(run.directory)["evaluations"] == again.result["evaluations"]
    assert survey(run.directory).others == []
    assert "evaluated at step 40: mean return" in (run.directory / "run.log").read_text()


def test_a_resumed_run_makes_up_for_an_evaluation_that_was_lost(tmp_path: Path) -> None:
    """Its process was killed during the last one, after the last step."""
    run = trained(tmp_path / "run", steps=40, eval_every=40, eval_episodes=3)
    (kept,) = RunRecord(run.directory).evaluations
    (run.directory / "evaluations.jsonl").unlink()
    gossamer.resume(run.directory)
    assert [row["returns"] for row in RunRecord(run.directory).evaluations] == [kept["returns"]]


@pytest.mark.long
def test_a_run_evaluates_at_each_multiple(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=80, eval_every=24, eval_exact=True, eval_episodes=1)
    assert [row["steps"] for row in RunRecord(run.directory).evaluations] == [24, 48, 72]  # rollouts of 8 steps


def test_a_last_evaluation_that_a_signal_ends_is_made_up_for(tmp_path: Path) -> None:
    run, few = tmp_path / "run", ("--num-envs", 2, "--rollout-length", 4, "--steps", 80, "--threads", 1)
    words = ("paac", "--env", "catch", *few, "--eval-every", 40, "--eval-episodes", 100_000, "--run-dir", run)
    process = start("train", *words)
    log = run / "run.log"
    wait(lambda: log.exists() and re.search(r"waiting for (the|2) evaluations?", log.read_text()) is not None)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    left = result(run)["evaluations"]
    assert (process.returncode, left["last"], left["left_out"], left["failures"]) == (0, None, True, 0)
    assert not is_finished(run)  # of a study
    done = gossamer.resume(run, eval_episodes=1).result["evaluations"]
    assert (done["last"]["steps"], done["left_out"]) == (80, False)
    assert is_finished(run)


def test_checkpoints_for_evaluations_change_nothing_of_what_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = trained(tmp_path / "without")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    evaluated = trained(tmp_path / "with", eval_every=20)
    assert differences(checkpoint(evaluated.directory), checkpoint(without.directory)) == []
    assert evaluated.result["evaluations"]["failures"] > 1


def test_training_goes_on_if_evaluations_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    run = trained(tmp_path / "run", eval_every=80)
    assert run.result["ended"] == "all steps done"
    assert run.result["evaluations"] == {"last": None, "best": None, "failures": 1, "left_out": False}
    (event,) = run.result["events"]
    assert (event["kind"], event["error"]) == ("evaluation_failed", "evaluation at step 80 failed: exit code 1")
    assert "evaluation at step 80 failed: exit code 1; training goes on" in (run.directory / "run.log").read_text()


def test_a_goal_of_evaluations_needs_evaluations(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--stop-at-eval 3: no evaluations without --eval-every STEPS"):
        trained(tmp_path / "run", stop_at_eval=3)
    assert not (tmp_path / "run").exists()


def test_a_protocol_is_for_atari_games(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--eval-protocol noop: catch is not an Atari game; leave it out"):
        trained(tmp_path / "run", eval_every=40, eval_protocol="noop")
    assert not (tmp_path / "run").exists()


def test_a_goal_may_be_reached_by_the_last_evaluation_and_not_by_one_of_an_earlier_call(tmp_path: Path) -> None:
    """Counter's episodes all have a return of 45."""
    given: dict[str, Any] = {"env": "counter", "eval_every": 40, "eval_episodes": 1}
    run = trained(tmp_path / "run", steps=40, stop_at_eval=45.0, **given)
    found = result(run.directory)
    assert (found["ended"], found["solved_steps"], found["eval_solved_steps"]) == (
        "reached the return asked for",
        None,
        40,
    )
    again = gossamer.resume(run.directory, steps=48, stop_at_eval=45.0)  # the next evaluation is at 80
    assert (again.result["steps"], again.result["eval_solved_steps"]) == (48, None)


def test_a_resumed_run_can_evaluate_at_each_multiple_and_refuses_options_without_effect(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=40)
    for options, told in (
        ({"eval_exact": True}, "--eval-exact: no evaluations without --eval-every STEPS"),
        ({"eval_episodes": 3}, "--eval-episodes 3: no evaluations without --eval-every STEPS"),
        ({"anneal_steps": 0, "final_fraction": 0.5}, "--final-fraction 0.5: has no effect with --anneal-steps 0"),
    ):
        with pytest.raises(UserError, match=f"^{told}$"):
            gossamer.resume(run.directory, steps=80, **options)  # type: ignore[arg-type]
    gossamer.resume(run.directory, steps=120, eval_every=40, eval_exact=True, eval_episodes=1)
    assert [row["steps"] for row in RunRecord(run.directory).evaluations][-2:] == [80, 120]
