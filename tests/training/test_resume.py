"""N steps, then as many again, are 2 N steps: bit for bit, however the first half ended."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
import torch
from some_parts import OPTIMIZERS, differences
from some_runs import QUICK, checkpoint, has_begun, result, rows, save_always, start, trained, wait_until

import gossamer
from gossamer.storage.checkpoint import Store
from gossamer.storage.directory import load_config
from gossamer.storage.files import temporary
from gossamer.system.errors import DamagedCheckpoint, UserError

FEW = ("--num-envs", "2", "--rollout-length", "4", "--threads", "1")
algorithms = pytest.mark.parametrize("algorithm", ["a2c", "ppo"])


SCHEDULE = 1000  # of runs of different lengths that are to be the same: else it ends with each run


def assert_half_and_half_are_the_whole(folder: Path, **given: Any) -> None:
    whole = trained(folder / "whole", steps=80, anneal_steps=SCHEDULE, **given)
    half = trained(folder / "half", steps=40, anneal_steps=SCHEDULE, **given)
    assert differences(checkpoint(half.directory), checkpoint(whole.directory)) != []
    resumed = gossamer.resume(half.directory, steps=80)
    assert resumed.result["steps"] == 80
    assert differences(checkpoint(half.directory), checkpoint(whole.directory)) == []


@pytest.mark.parametrize(
    ("env", "optimizer", "algorithm"),
    [
        *(("catch", optimizer, "ppo") for optimizer in OPTIMIZERS),
        ("catch", "adam", "a2c"),
        ("identity", "adam", "ppo"),
        ("identity", "rmsprop-tf", "a2c"),
    ],
)
def test_resuming_is_exact(tmp_path: Path, env: str, optimizer: str, algorithm: str) -> None:
    assert_half_and_half_are_the_whole(tmp_path, env=env, optimizer=optimizer, algorithm=algorithm)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@algorithms
def test_resuming_is_exact_on_pictures(tmp_path: Path, algorithm: str, precision: str) -> None:
    options = {"num_minibatches": 4} if algorithm == "ppo" else {}
    assert_half_and_half_are_the_whole(
        tmp_path, env="catch-pixels", algorithm=algorithm, precision=precision, **options
    )


@pytest.mark.parametrize("memory", ["lstm", "gru"])
@algorithms
def test_resuming_is_exact_with_memory_and_statistics(tmp_path: Path, algorithm: str, memory: str) -> None:
    # Episodes of 22 steps: each half of the run, and each of its rollouts of 4 steps, ends inside one.
    minibatches = {"num_minibatches": 2} if algorithm == "ppo" else {}
    statistics = {"normalize_observations": True, "normalize_returns": True}
    options = {"env": "recall", "algorithm": algorithm, "memory": memory, **minibatches, **statistics}
    assert_half_and_half_are_the_whole(tmp_path, memory_units=8, **options)


def test_resuming_is_exact_with_environments_of_the_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "envs")
    assert_half_and_half_are_the_whole(tmp_path, env="some_envs:Walk")  # it can give its state


@algorithms
def test_resuming_is_exact_with_several_games(tmp_path: Path, algorithm: str) -> None:
    # Their returns are normalised; episodes have 8 steps, each half of the run ends inside one
    minibatches = {"num_minibatches": 2} if algorithm == "ppo" else {}
    games = "some_games:Small,some_games:Large"
    assert_half_and_half_are_the_whole(tmp_path, env=games, algorithm=algorithm, rollout_length=5, **minibatches)


def test_a_run_in_many_pieces_is_the_same_run(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", steps=80, anneal_steps=SCHEDULE)
    pieces = trained(tmp_path / "pieces", steps=8, anneal_steps=SCHEDULE)
    for steps in (16, 40, 48, 80):
        gossamer.resume(pieces.directory, steps=steps)
    assert differences(checkpoint(pieces.directory), checkpoint(whole.directory)) == []
    counted = [row["steps"] for row in rows(pieces.directory)]
    assert counted == [8, 16, 40, 48, 80]
    assert [row["updates"] for row in rows(pieces.directory)] == [1, 2, 5, 6, 10]
    seconds = [row["seconds"] for row in rows(pieces.directory)]
    assert seconds == sorted(seconds)
    log = (pieces.directory / "run.log").read_text()
    assert "resumed at step 48" in log
    assert "cannot give its state" not in log
    assert result(pieces.directory)["episodes"] == 8  # two environments of 40 steps, 9 to an episode


def test_resuming_without_a_number_goes_on_to_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path / "run", env="counter", rollout_length=10, steps=2000, stop_at_return=45.0)
    assert run.result["steps"] < 2000
    assert gossamer.resume(run.directory).result["steps"] == 2000
    again = gossamer.resume(run.directory)  # there is nothing left to do
    assert (again.result["ended"], again.result["steps"]) == ("all steps done", 2000)


def test_the_total_stays_with_the_run(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=40)
    gossamer.resume(run.directory, steps=80)
    assert json.loads((run.directory / "config.json").read_text())["run"]["steps"] == 80


@pytest.mark.parametrize("steps", [80, 79, 0, -1])
def test_too_few_steps_are_refused(tmp_path: Path, steps: int) -> None:
    run = trained(tmp_path / "run")
    with pytest.raises(UserError, match=rf"--steps {steps}: the run has done 80 already; give the total to go on to"):
        gossamer.resume(run.directory, steps=steps)
    assert result(run.directory)["steps"] == 80
    assert len(rows(run.directory)) == 1


def test_where_there_is_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run directory"):
        gossamer.resume(tmp_path, steps=100)
    run = trained(tmp_path / "run")
    with pytest.raises(UserError, match="--keep 0: must be at least 1"):
        gossamer.resume(run.directory, steps=100, keep=0)
    (run.directory / "checkpoints" / "step_000000000080" / "state.json").write_text("{}")
    with pytest.raises(DamagedCheckpoint, match=r"state\.json is truncated or altered"):
        gossamer.resume(run.directory, steps=100)


def test_an_environment_that_cannot_give_its_state_is_said_so_in_the_log(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", env="CartPole-v1", steps=40)
    assert "cannot give its state" not in (run.directory / "run.log").read_text()
    before = checkpoint(run.directory)["workers"]["act_and_learn"]["learner"]
    gossamer.resume(run.directory, steps=80)
    after = checkpoint(run.directory)["workers"]["act_and_learn"]["learner"]
    assert (before["steps"], after["steps"]) == (40, 80)
    assert differences(before["model"], after["model"]) != []
    log = (run.directory / "run.log").read_text()
    assert "CartPole-v1 cannot give its state: new episodes begin, all else goes on exactly" in log


def test_rows_later_than_the_checkpoint_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path / "run", steps=40)
    with open(run.directory / "metrics.jsonl", "a") as file:
        file.write('{"steps": 48}\n{"steps": 56}\n{"st')  # as after a crash long since the last checkpoint
    gossamer.resume(run.directory, steps=80)
    assert [row["steps"] for row in rows(run.directory)] == [40, 80]


def test_the_last_few_checkpoints_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_always(monkeypatch)
    run = trained(tmp_path / "run", env="counter", keep=2)  # no episode ends: none is better than another
    assert [c.steps for c in Store(run.directory / "checkpoints").all()] == [72, 80]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_first_and_nothing_is_lost(tmp_path: Path, number: signal.Signals) -> None:
    directory = tmp_path / "run"
    process = start("train", "paac", "--env", "catch", *FEW, "--steps", "10000000", "--run-dir", directory)
    wait_until(lambda: has_begun(directory), process)
    process.send_signal(number)
    printed, told = process.communicate()
    assert process.returncode == 128 + number, told  # as shells have it
    done = result(directory)["steps"]
    assert printed.startswith(f"{number.name}: {done:,} steps")
    assert f"{number.name}: saving a checkpoint, then ending" in told
    assert f"; checkpoint step_{done:012d}, everything is in " in printed
    assert result(directory)["ended"] == number.name
    assert [(e["kind"], e["name"], e["steps"] <= done) for e in result(directory)["events"]] == [
        ("signal", number.name, True)
    ]
    assert Store(directory / "checkpoints").get("last").steps == done

    gossamer.resume(directory, steps=done + 80)
    whole = trained(tmp_path / "whole", steps=done + 80, anneal_steps=10**7)
    assert differences(checkpoint(directory), checkpoint(whole.directory)) == []


ALWAYS = """
import sys
from functools import partial
import gossamer
from gossamer.training import session
kind = session.Checkpoints
session.Checkpoints = lambda *given, **more: kind(*given, **{**more, 'seconds': 0.0})
gossamer.train("paac", env="catch", num_envs=2, rollout_length=4, threads=1, steps=10**7, run_dir=sys.argv[1])
"""


def test_kill_9_leaves_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    checkpoints = directory / "checkpoints"
    process = start(directory, program=ALWAYS)  # it writes checkpoints most of its time
    wait_until(lambda: len(list(checkpoints.glob("step_*"))) >= 3, process)
    time.sleep(0.2)
    process.kill()
    process.communicate()

    last = Store(checkpoints).get("last")
    last.load()
    (directory / "checkpoints" / f".step_{last.steps + 8:012d}.1").mkdir()  # at the latest now there is a left-over
    gossamer.resume(directory, steps=last.steps + 80)
    assert not list(checkpoints.glob(".*"))
    whole = trained(tmp_path / "whole", steps=last.steps + 80, anneal_steps=10**7)
    assert differences(checkpoint(directory), checkpoint(whole.directory)) == []
    counted = [row["steps"] for row in rows(directory)]
    assert counted == sorted(counted)


def test_kill_9_of_actors_and_learner_leaves_no_process_and_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    checkpoints = directory / "checkpoints"
    options = ("--num-envs", "2", "--actors", "1", "--env-workers", "2", "--rollout-length", "4", "--depth", "8")
    process = start("train", "impala", "--env", "CartPole-v1", *options, "--threads", "1", "--steps", "10000000",
                    "--checkpoint-every", "0.2", "--run-dir", directory)  # fmt: skip
    wait_until(lambda: len(list(checkpoints.glob("step_*"))) >= 2, process)
    others = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert len(others) >= 2  # processes of environments
    assert psutil.wait_procs(others, timeout=30)[1] == []

    last = Store(checkpoints).get("last")
    counted = last.load()["progress"]
    lost = counted["steps"] - counted["learned"]
    total = last.steps + 80
    resumed = gossamer.resume(directory, steps=total).result
    assert resumed["ended"] == "all steps done"
    assert total <= resumed["steps"] == resumed["learned"] < total + 8  # the last lease may go beyond it
    log = (directory / "run.log").read_text()
    assert f"resumed at step {last.steps - lost}" in log
    assert (f"{lost:,} steps that were in the queue" in log) == (lost > 0)
    written = [row["steps"] for row in rows(directory)]
    assert written == sorted(written)


def test_runs_differ_only_by_their_seeds(tmp_path: Path) -> None:
    one, same, other = (trained(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert differences(checkpoint(one.directory), checkpoint(same.directory)) == []
    assert differences(checkpoint(one.directory), checkpoint(other.directory)) != []


def test_training_leaves_torch_s_global_stream_alone(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    trained(tmp_path / "run", **{**QUICK, "env": "catch-pixels"})
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_resumed_run_keeps_the_schedule_that_it_was_started_with(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=40, final_fraction=0.5, learning_rate=0.002)
    assert load_config(run.directory).optimization.anneal_steps == 40
    gossamer.resume(run.directory, steps=80)
    assert load_config(run.directory).optimization.anneal_steps == 40
    assert rows(run.directory)[-1]["learning_rate"] == pytest.approx(0.001)  # it has been at its end since step 40


def test_what_each_host_computes_with_is_kept_and_a_change_is_logged(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=40)
    (there,) = run.result["hosts"].values()
    assert (there["device"], there["threads"], there["torch"]) == ("cpu", 1, torch.__version__)
    assert there["precision"] in ("fp32", "bf16")  # what `auto` was here
    assert load_config(run.directory).network.precision == "auto"
    log = run.directory / "run.log"
    assert "machine computes with " in log.read_text()
    gossamer.resume(run.directory, steps=80)
    assert "differs" not in log.read_text()
    (run.directory / "hosts.json").write_text(json.dumps({"machine": {**there, "threads": 7, "torch": "1.0"}}))
    gossamer.resume(run.directory, steps=120)
    changed = f"threads 7, now 1; torch 1.0, now {torch.__version__}"
    assert f"machine differs from the run before: {changed}" in log.read_text()


def test_a_changed_schedule_is_that_of_the_whole_run(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=40, learning_rate=0.002, final_fraction=0.5)
    gossamer.resume(run.directory, steps=80, anneal_steps=80, learning_rate=0.004, final_fraction=0)
    plan = load_config(run.directory).optimization
    assert (plan.learning_rate, plan.anneal_steps, plan.final_fraction) == (0.004, 80, 0.0)
    # The last batch of 8 steps begins at step 72: 0.004 * (1 - 72 / 80).
    assert rows(run.directory)[-1]["learning_rate"] == pytest.approx(0.0004)
    with pytest.raises(UserError, match="--learning-rate -1: must be above 0"):
        gossamer.resume(run.directory, steps=120, learning_rate=-1)


def test_a_resumed_run_says_what_the_learning_rate_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path / "run", steps=40, anneal_steps=160, learning_rate=0.002, final_fraction=0)
    capfd.readouterr()
    gossamer.resume(run.directory, steps=80)
    told = "learning rate 0.0015 now, 0.001 at the end (step 80)"  # 0.002 * (1 - 40 / 160), 0.002 * (1 - 80 / 160)
    assert capfd.readouterr().err.splitlines()[0] == told
    log = (run.directory / "run.log").read_text().splitlines()
    asked = next(place for place, line in enumerate(log) if "gossamer.resume(" in line)
    assert log[asked].endswith(f"gossamer.resume({str(run.directory)!r}, steps=80)")
    assert "resumed at step 40" in log[asked + 1]
    assert log[asked + 2].endswith(told)


def test_a_run_that_could_learn_nothing_more_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=40, final_fraction=0)
    told = r"^--steps 80: the learning rate is 0 from step 40 on, .*; add --anneal-steps 80 .* or --final-fraction 0.1$"
    with pytest.raises(UserError, match=told):
        gossamer.resume(run.directory, steps=80)
    assert load_config(run.directory).run.steps == 40
    assert gossamer.resume(run.directory).result["steps"] == 40  # nothing is left to do
    assert gossamer.resume(run.directory, steps=80, anneal_steps=80).result["steps"] == 80
    assert gossamer.resume(run.directory, steps=120, anneal_steps=0).result["steps"] == 120


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_the_whole_group_leaves_the_environments_to_the_run(tmp_path: Path, number: int, code: int) -> None:
    """As job schedulers, `timeout` and terminals that are closed send it."""
    run, few = tmp_path / "run", ("--num-envs", "4", "--env-workers", "2", "--rollout-length", "4", "--threads", "1")
    words = ("paac", "--env", "CartPole-v1", *few, "--steps", "100000000", "--run-dir", run)
    process = start("train", *words, session=True)
    try:
        wait_until(lambda: has_begun(run), process)
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    found = result(run)
    assert (process.returncode, found["ended"], found["failures"]) == (code, signal.Signals(number).name, []), err
    assert out.startswith(signal.Signals(number).name)
    assert checkpoint(run)["workers"]["act_and_learn"]["learner"]["steps"] == found["steps"]


def test_a_run_that_was_killed_while_it_replaced_its_only_checkpoint_goes_on_from_it(tmp_path: Path) -> None:
    run = trained(tmp_path, steps=40)
    last = Store(run.directory / "checkpoints").get("last").path
    for path in last.parent.iterdir():
        path.rename(temporary(path))
    assert gossamer.resume(run.directory, steps=80).result["steps"] == 80


class Grows(gymnasium.Env[Any, Any]):
    """Code of the user's that has another action after a while."""

    actions = 2
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))

    def __init__(self) -> None:
        self.action_space = gymnasium.spaces.Discrete(self.actions)

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 0.0, True, False, {}


def test_a_run_whose_environment_has_changed_is_refused_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path / "run", env=f"{__name__}:Grows", steps=40)
    files = {name: (run.directory / name).read_bytes() for name in ("config.json", "spec.json", "result.json")}
    monkeypatch.setattr(Grows, "actions", 3)
    with pytest.raises(UserError, match=r"do not fit its network \(policy\.\w+\): the code of .*Grows .* has changed"):
        gossamer.resume(run.directory, steps=80)
    assert {name: (run.directory / name).read_bytes() for name in files} == files
    monkeypatch.undo()
    assert gossamer.resume(run.directory, steps=80).result["steps"] == 80
