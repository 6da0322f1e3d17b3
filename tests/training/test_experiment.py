"""A run and its directory: what is in it, and that nothing is written where something is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pytest
import torch
from some_parts import leaves
from some_runs import NAN_ENV, checkpoint, result, rows, save_always, trained

import gossamer
from gossamer.config.file import from_dict
from gossamer.config.resolve import Composition, configure
from gossamer.envs import UnknownEnv
from gossamer.storage.checkpoint import Store
from gossamer.storage.directory import load_config
from gossamer.system.errors import UserError
from gossamer.system.processes import cores
from gossamer.workers.learner import NonFinite

ENVS = Path(__file__).parents[1] / "envs"  # the folder of some_envs


def test_five_lines_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = gossamer.train("paac", env="catch", algorithm="ppo", steps=1_000)
    mean = gossamer.evaluate(run.directory, episodes=30).mean_return
    assert -1 <= mean <= 1
    assert run.directory.parent == tmp_path / "runs"
    assert run.directory.name.startswith("paac-catch-")
    assert (tmp_path / run.directory / "result.json").is_file()


def test_what_a_run_leaves(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    assert sorted(path.name for path in run.directory.iterdir()) == [
        "checkpoints",
        "config.json",
        "episodes.csv",
        "hosts.json",
        "metrics.jsonl",
        "result.json",
        "run.log",
        "spec.json",
        "status.json",
        "tensorboard",
    ]
    assert [path.name for path in (run.directory / "checkpoints").iterdir()] == ["step_000000000080"]
    assert list((run.directory / "tensorboard").iterdir())
    log = (run.directory / "run.log").read_text().splitlines()
    call = f"gossamer.train('paac', env='catch', run_dir={str(run.directory)!r}, "  # then the options
    assert log[0].split(" ", 2)[2].startswith(call)
    assert f"started at step 0 with gossamer {gossamer.__version__}" in log[1]
    assert log[-1].endswith("ended at step 80: all steps done")


def test_the_first_lines_say_which_sizes_were_chosen_for_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Composition, "sizes", lambda self: "sizes for 16 cores, no GPU: --num-envs 64 (16)")
    run = trained(tmp_path / "run")
    _, first, *_ = (run.directory / "run.log").read_text().splitlines()
    assert first.endswith(" sizes for 16 cores, no GPU: --num-envs 64 (16)")
    assert "sizes for 16 cores, no GPU: --num-envs 64 (16)\n" in capsys.readouterr().err


def test_the_config_is_complete_and_can_be_read_again(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    config = json.loads((run.directory / "config.json").read_text())
    assert (config["format"], config["gossamer"]) == (2, gossamer.__version__)
    expected = configure("paac", env="catch", num_envs=2, rollout_length=4, steps=80, threads=1)
    assert from_dict(config)[0] == load_config(run.directory) == expected


def test_the_result_names_its_protocol_and_how_it_ended(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=400)
    assert run.result == result(run.directory)
    found = run.result
    assert found["protocol"].startswith("training: mean of the last 100 training episodes")
    assert (found["ended"], found["steps"], found["frames"]) == ("all steps done", 400, 400)
    assert found["episodes"] == 44  # two environments, 200 steps each, 9 to an episode
    assert -1 <= found["mean_return"] <= 1
    assert found["checkpoint"] == "step_000000000400"
    assert found["seconds"] > 0
    assert found["config"] == json.loads((run.directory / "config.json").read_text())
    assert (found["solved_steps"], found["version"]) == (None, gossamer.__version__)
    assert found["machine"]["cores"] == cores()


def test_rows_have_their_keys(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", algorithm="ppo", epochs=1, num_minibatches=1, clip_range=0.2)
    (row,) = rows(run.directory)
    counts = {"steps", "learned", "reused", "frames", "updates", "seconds", "steps_per_second", "episodes"}
    counts |= {
        "mean_return",
        "machine/cores_busy",
        *(f"policy_lag_{name}" for name in ("mean", "p50", "p90", "max", "trajectories")),
    }
    learned = {"loss", "policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "gradient_norm", "learning_rate"}
    assert set(row) == counts | learned | {"time/env", "time/inference", "time/update", "time/other"}
    assert (row["steps"], row["updates"]) == (80, 10)


def test_it_ends_when_it_is_good_enough(tmp_path: Path) -> None:
    # Counter gives 0 + 1 + .. + 9 = 45 whatever is done: 100 episodes of 10 steps by 2 environments, 1,000 steps
    run = trained(tmp_path / "run", env="counter", rollout_length=10, steps=10**6, stop_at_return=45.0)
    assert run.result["ended"] == "reached the return asked for"
    assert run.result["solved_steps"] == 1000
    assert 1000 <= run.result["steps"] < 10**6
    assert run.result["mean_return"] == 45


def test_it_does_not_end_before_it_is_good_enough(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", env="counter", rollout_length=10, steps=1200, stop_at_return=45.1)
    assert (run.result["ended"], run.result["steps"]) == (
        "all steps done, the return asked for (45.1) was not reached",
        1200,
    )


def before_and_after(folder: Path) -> list[tuple[str, bytes]]:
    return [(str(path), path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()]


def test_a_run_that_is_there_is_not_touched(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    before = before_and_after(tmp_path)
    with pytest.raises(UserError, match=r"--run-dir .*run: exists already; go on with `gossamer resume .*run`, add"):
        trained(tmp_path / "run")
    assert before_and_after(tmp_path) == before
    again = trained(tmp_path / "run", overwrite=True, seed=2)
    assert len(rows(run.directory)) == 1
    assert again.result["config"]["run"]["seed"] == 2


def test_a_folder_that_is_no_run_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="thesis"):
            trained(tmp_path / "thesis", overwrite=overwrite)
    assert before_and_after(tmp_path) == [(str(tmp_path / "thesis" / "chapter1.tex"), b"years of work")]


def test_an_empty_folder_will_do_and_a_file_will_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    trained(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--run-dir .*file: is a file; give a directory"):
        trained(tmp_path / "file", overwrite=True)


@pytest.mark.parametrize(
    "given",
    [
        {"env": "cacth"},
        {"env": "tabular/CliffWalking-v0"},
        {"num_envs": 0},
        {"network": "nature"},
        {"network": "math:sqrt"},
        {"network": "nowhere:make"},
        {"device": "cuda:99"},
        {"keep": 0},
        {"env": "CartPole-v1", "num_envs": 4, "env_workers": 3},
    ],
    ids=str,
)
def test_nothing_is_written_where_something_is_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        trained(tmp_path / "run", **given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [{"eval_every": 40}, {"cluster": "local"}, {"env_workers": 2}], ids=str)
def test_other_processes_do_not_import_what_a_notebook_defines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    main = ModuleType("__main__")  # without a file
    vars(main)["Mine"] = lambda: gymnasium.make("CartPole-v1")
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(UserError, match=r"^--env __main__:Mine: other processes cannot import .*: put it in a file"):
        trained(tmp_path / "run", env="__main__:Mine", **given)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UnknownEnv, match=r"'__main__:Other': not defined in this process; other .*: put it in a file"):
        trained(tmp_path / "run", env="__main__:Other")


@pytest.mark.parametrize(
    "call",
    [
        "gossamer.train('paac', env='catch')",
        pytest.param("gossamer.resume('nothing')", marks=pytest.mark.long),
        "gossamer.study(['paac'], envs=['catch'], directory='st')",
    ],
)
def test_a_script_without_a_guard_is_not_run_again_by_worker_processes(tmp_path: Path, call: str) -> None:
    workers = "gossamer.train('paac', env='CartPole-v1', num_envs=2, env_workers=2, steps=20, log='none')"
    first = f"multiprocessing.parent_process() and {call}"  # in a worker only
    (tmp_path / "script.py").write_text(f"import multiprocessing, gossamer\n{first}\n{workers}\n")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    told = 'put its calls of gossamer under `if __name__ == "__main__":`'
    assert done.stderr.count(f"UserError: worker processes import this script: {told}\n") == 2
    assert done.stderr.count("Traceback") == 1  # of the script itself
    assert re.search(
        rf"EnvironmentFailed: .* during reset\(\) \(if a script started it, {re.escape(told)}", done.stderr
    )
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert not (tmp_path / "st").exists()


SCRIPT = """
import gossamer
from some_envs import Walk

class Mine(Walk):
    pass

{guard}
    gossamer.train("paac", env=Mine, num_envs=2, steps=80, rollout_length=4, log="none", run_dir="run", **{more})
"""


@pytest.mark.parametrize("more", [{}, {"env_workers": 2}], ids=str)
def test_a_script_trains_on_its_own_class(tmp_path: Path, more: dict[str, Any]) -> None:
    run_script(tmp_path, SCRIPT.format(guard='if __name__ == "__main__":', more=more))
    assert load_config(tmp_path / "run").env.name == "script:Mine"


def test_a_script_without_a_guard_does_not_train_again_when_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_script(tmp_path, SCRIPT.format(guard="if True:", more={}))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(ENVS)
    told = "--env script:Mine: script cannot be imported: it would train when it is imported: put its calls"
    with pytest.raises(UserError, match=told):
        gossamer.evaluate(tmp_path / "run", episodes=1)


def run_script(folder: Path, text: str) -> None:
    (folder / "script.py").write_text(text)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ENVS), *filter(None, sys.path)])}
    subprocess.run([sys.executable, "script.py"], cwd=folder, env=env, check=True, capture_output=True)


def test_a_network_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--network nature: does not fit observations \[50\] .*use mlp"):
        trained(tmp_path / "run", network="nature")


def test_a_loss_that_is_nan_ends_the_run_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sours.py").write_text(NAN_ENV)
    monkeypatch.syspath_prepend(tmp_path)
    save_always(monkeypatch)
    # the 30th step of both environments is in the 8th rollout of 4 steps: 64 steps in all
    with pytest.raises(NonFinite, match="became NaN or infinite at step 56"):
        trained(tmp_path / "run", env="sours:Sours", steps=1000)
    kept = Store(tmp_path / "run" / "checkpoints").get("last")
    assert kept.steps == 56
    weights = leaves(kept.load()["workers"]["act_and_learn"]["learner"])
    assert all(w.isfinite().all() for w in weights.values() if isinstance(w, torch.Tensor))
    assert not (tmp_path / "run" / "result.json").exists()
    assert "ended at step 56: NonFinite" in (tmp_path / "run" / "run.log").read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("architecture", "options"),
    [("dqn", {"learning_starts": 20, "batch_size": 32}), ("impala", {"actors": 2}), ("ga3c", {"agents": 2})],
    ids=["dqn", "impala", "ga3c"],
)
def test_a_nan_in_a_batch_of_other_trajectories_ends_the_run_too(
    architecture: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch's columns are windows of a memory, or slots of a queue."""
    (tmp_path / "sours.py").write_text(NAN_ENV)
    monkeypatch.syspath_prepend(tmp_path)
    options = {**options, "num_envs": 2, "rollout_length": 4, "steps": 1000, "threads": 1, "log": "none"}
    with pytest.raises(NonFinite, match=r"^the (loss|gradient) became NaN or infinite at step"):
        gossamer.train(architecture, env="sours:Sours", run_dir=tmp_path / "run", **options)


@pytest.mark.parametrize("algorithm", ["a2c", "ppo"])
def test_an_absurd_learning_rate_is_reported_too(tmp_path: Path, algorithm: str) -> None:
    with pytest.raises(NonFinite, match="at step"):
        trained(tmp_path / "run", algorithm=algorithm, learning_rate=1e39)


def test_a_config_that_is_damaged_is_named(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    file = run.directory / "config.json"
    whole = file.read_text()
    for damaged in (
        whole[:-20],
        "[]",
        "{}",
        whole.replace('"steps"', '"stops"'),
        whole.replace('"format": 2', '"format": 3'),
        whole.replace('"steps": 80', '"steps": null'),
        whole.replace('"steps": 80', '"steps": 0'),
    ):
        file.write_text(damaged)
        with pytest.raises(
            UserError,
            match=r"config\.json: (truncated or altered|run has unknown fields stops|format 3: |--steps (None|0): )",
        ):
            load_config(run.directory)
    for other in (tmp_path, tmp_path / "nothing", file):
        with pytest.raises(UserError, match=r"not a run directory \(no config\.json\)"):
            load_config(other)


def test_a_run_need_not_be_in_the_main_thread(tmp_path: Path) -> None:
    found: list[gossamer.Run] = []
    thread = threading.Thread(target=lambda: found.append(trained(tmp_path / "run")))
    thread.start()
    thread.join()
    assert checkpoint(found[0].directory)["workers"]["act_and_learn"]["learner"]["steps"] == 80


def test_a_run_cannot_begin_with_itself(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    before = sorted(run.directory.rglob("*"))
    with pytest.raises(UserError, match=r"^--init-from .*run: is the run directory itself, which begins empty; use an"):
        trained(tmp_path / "run", init_from=str(tmp_path / "run"), overwrite=True)
    assert sorted(run.directory.rglob("*")) == before


def test_a_run_that_ended_before_anything_was_learned_begins_anew(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=80)
    store = Store(run.directory / "checkpoints")
    last = store.get("last")
    store.save(last.load() | {"workers": {}}, steps=last.steps + 1, score=None)
    for ask in (gossamer.evaluate, gossamer.load):
        with pytest.raises(UserError, match="has no policy: the run ended before it had learned anything; resume it"):
            ask(run.directory)
    again = gossamer.resume(run.directory, steps=160)
    assert (again.result["ended"], again.result["steps"]) == ("all steps done", 160)
    assert "no member is in the checkpoint" in (run.directory / "run.log").read_text()


def test_a_run_stands_for_its_directory(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", env="CartPole-v1")
    assert gossamer.evaluate(run, episodes=1).file == str(tmp_path / "run" / "evaluation-plain.json")
    assert gossamer.resume(run, steps=run.result["steps"] + 8).directory == run.directory
    assert gossamer.load(run).action_space.shape == ()


class Signals(gossamer.Callback):
    """Sends SIGTERM to this process with the first report."""

    def on_report(self, run: gossamer.LiveRun, metrics: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_ends_the_script_too_after_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"SIGTERM: the run ended after a checkpoint; gossamer\.resume") as told:
        trained(tmp_path / "run", steps=10**9, callbacks=Signals())
    assert told.value.code == 143  # type: ignore[attr-defined]
    assert Store(tmp_path / "run" / "checkpoints").get("last").steps > 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["ended"] == "SIGTERM"
