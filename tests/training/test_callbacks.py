"""Callbacks: what they are told, that training does not wait for them, and how they end a run."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from some_runs import result, rows, save_always, trained
from some_sinks import wait

import gossamer
from gossamer import commands
from gossamer.commands.exits import guarded
from gossamer.storage.checkpoint import Store
from gossamer.system.errors import UserError
from gossamer.task import Episode
from gossamer.training import callbacks
from gossamer.training.callbacks import Callback, Callbacks, LiveRun, chosen

FOREVER: dict[str, Any] = {"steps": 10**9}


class Heard(Callback):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told = list[tuple[str, Any]]()
        self.threads = set[str]()

    def keep(self, what: str, content: Any) -> None:
        self.told.append((what, content))
        self.threads.add(threading.current_thread().name)

    def on_start(self, run: LiveRun) -> None:
        self.keep("start", (run.options["env"], run.directory.name))

    def on_report(self, run: LiveRun, metrics: Mapping[str, Any]) -> None:
        self.keep("report", metrics)

    def on_episode(self, run: LiveRun, episode: Episode) -> None:
        self.keep("episode", episode)

    def on_evaluation(self, run: LiveRun, evaluation: Mapping[str, Any]) -> None:
        self.keep("evaluation", evaluation)

    def on_checkpoint(self, run: LiveRun, path: Path) -> None:
        self.keep("checkpoint", path.name)

    def on_end(self, run: LiveRun, result: Mapping[str, Any] | None) -> None:
        self.keep("end", result)

    def of(self, what: str) -> list[Any]:
        return [content for kind, content in self.told if kind == what]


class Does(Callback):
    """Calls a function at each episode."""

    def __init__(self, what: Callable[[LiveRun], object]) -> None:
        self.what = what

    def on_episode(self, run: LiveRun, episode: Episode) -> None:
        self.what(run)


class Raises(Callback):
    def on_report(self, run: LiveRun, metrics: Mapping[str, Any]) -> None:
        raise ValueError("no such\nfigure")


class NeedsMore(Callback):
    def __init__(self, more: int) -> None: ...


def test_a_callback_is_told_of_everything_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_always(monkeypatch)
    heard = Heard()
    run = trained(tmp_path / "run", callbacks=[heard], eval_every=1_000_000)
    kinds = [kind for kind, _ in heard.told]
    assert (kinds[0], kinds[-1], kinds.count("end")) == ("start", "end", 1)
    assert heard.of("start") == [("catch", "run")]
    assert heard.of("report") == rows(run.directory)
    lines = (run.directory / "episodes.csv").read_text().splitlines()[1:]
    assert [(e.score, e.steps) for e in heard.of("episode")] == [
        (float(line.split(",")[5]), int(line.split(",")[6])) for line in lines
    ]
    wanted = [f"step_{steps:012}" for steps in range(8, 88, 8)]  # after each of ten rollouts, and at the end
    assert list(dict.fromkeys(heard.of("checkpoint"))) == wanted
    assert heard.of("end") == [run.result]
    assert heard.threads == {"callback Heard"}
    assert run.result["callbacks_missed"] == {}


def test_training_does_not_wait_for_a_slow_callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is released only when all steps have been acted and the checkpoint is written; two episodes may wait
    monkeypatch.setattr(callbacks, "CAPACITY", 2)
    run_dir, slow = tmp_path / "run", Heard()

    def released(run: LiveRun) -> None:
        slow.keep("start", None)
        wait(lambda: (run_dir / "result.json").exists())

    slow.on_start = released  # type: ignore[method-assign]
    run = trained(run_dir, callbacks=[slow], steps=800)
    missed = run.result["callbacks_missed"]["Heard"]
    assert len(slow.of("episode")) + len(slow.of("report")) + missed == run.result["episodes"] + len(rows(run_dir))
    assert len(slow.of("episode")) == 2
    assert [kind for kind, _ in slow.told][-2:] == ["checkpoint", "end"]  # these always come
    assert "callback Heard is too slow" in (run_dir / "run.log").read_text()


def test_a_callback_ends_the_run_and_says_why(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", callbacks=[Does(lambda run: run.stop("enough"))], **FOREVER)
    assert run.result["ended"] == "ended by the callback Does: enough"
    assert run.result["short"] == 0
    assert Store(run.directory / "checkpoints").get("last").steps == run.result["steps"] < 10**9
    again = gossamer.resume(run.directory, steps=run.result["steps"] + 8)
    assert again.result["ended"] == "all steps done"


def test_what_a_callback_records_is_in_the_rows(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", callbacks=[Does(lambda run: run.record("x", np.float32(0.5)))], steps=4000)
    wanted = [row.get("own/x") for row in rows(run.directory)]
    assert set(wanted) <= {None, 0.5}
    seen = list[dict[str, Any]]()

    def look(run: LiveRun) -> None:
        run.record("y", 3)
        seen.append({"steps": run.steps, **run.metrics})
        run.stop()

    trained(tmp_path / "other", callbacks=[Does(look)], **FOREVER)
    assert rows(tmp_path / "other")[-1]["own/y"] == seen[0]["own/y"] == 3


def test_a_callback_reads_the_newest_parameters(tmp_path: Path) -> None:
    # Checkpoints are a minute apart: what it sees is of one that was written for it
    seen = list[tuple[int, int, int]]()

    def look(run: LiveRun) -> None:
        before = run.steps
        policy = run.policy(greedy=True)
        action = policy.act(np.zeros(policy.observation_space.shape, policy.observation_space.dtype))
        seen.append((before, policy.snapshot.steps, int(action)))
        if len(seen) == 2:
            run.stop()

    run = trained(tmp_path / "run", callbacks=[Does(look)], **FOREVER)
    (first, of_first, action), (second, of_second, _) = seen[:2]
    assert first <= of_first <= second <= of_second <= run.result["steps"]
    assert action in (0, 1, 2)


def test_parameters_are_as_new_as_the_call_while_an_older_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, seen, writing = Store.save, list[tuple[int, int]](), threading.Event()

    def slow(store: Store, tree: Any, **more: Any) -> Any:
        writing.set()
        time.sleep(0.6)
        return save(store, tree, **more)

    def late(run: LiveRun) -> None:
        writing.wait()
        time.sleep(0.3)  # members go on
        before = run.steps
        seen.append((before, run.policy().snapshot.steps))
        run.stop()

    monkeypatch.setattr(Store, "save", slow)
    quick = {"env": "catch", "num_envs": 2, "rollout_length": 4, "threads": 1, "log": "none", **FOREVER}
    both = [Does(lambda run: run.policy()), Does(late)]
    gossamer.train("gala", learners=2, run_dir=tmp_path / "run", callbacks=both, **quick)
    assert seen[0][0] <= seen[0][1]


def test_a_callback_that_waits_for_parameters_does_not_outlive_a_run_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()

    def ask(run: LiveRun) -> None:
        heard.keep("start", None)
        run.policy()

    heard.on_start = ask  # type: ignore[method-assign]
    options: dict[str, Any] = {"num_envs": 2, "rollout_length": 4, "threads": 1, "run_dir": tmp_path / "run"}
    (tmp_path / "failing.py").write_text(FAILS)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="no coal left"):
        gossamer.train("paac", env="failing:Fails", callbacks=[heard], steps=80, **options)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("callback")]


FAILS = """
import gymnasium, numpy as np
class Fails(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    age = 0
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.age += 1
        if self.age == 3:
            raise OSError("no coal left")
        return np.zeros(2, np.float32), 1.0, False, False, {}
"""


BROKEN = """import gossamer
class Broken(gossamer.Callback):
    def {}(self, run, told):
        raise KeyError(7)
"""


@pytest.mark.parametrize("method", ["on_report", "on_end"])
def test_an_error_in_a_callback_ends_the_run_in_one_line(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"broken_{method}.py").write_text(BROKEN.format(method))
    monkeypatch.syspath_prepend(tmp_path)
    steps = "80" if method == "on_end" else "1_000_000"
    words = ["train", "paac", "--env", "catch", "--steps", steps, "--num-envs", "2", "--rollout-length", "4"]
    words += ["--threads", "1", "--run-dir", str(tmp_path / "run"), "--callback", f"broken_{method}:Broken"]
    assert guarded(lambda: commands.run(words[0], words[1:])) == 2
    last = Store(tmp_path / "run" / "checkpoints").get("last").path.name
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"gossamer: --callback broken_{method}:Broken: {method} raised KeyError: 7 (broken_{method}.py, line 4); "
        f"traceback in {tmp_path / 'run' / 'run.log'}; the last checkpoint is {last}"
    )
    log = (tmp_path / "run" / "run.log").read_text()
    assert "raise KeyError(7)" in log
    assert (tmp_path / "run" / "result.json").exists() == (method == "on_end")  # which comes after it


def test_a_run_that_fails_tells_its_callbacks(tmp_path: Path) -> None:
    heard = Heard()
    with pytest.raises(UserError, match="Raises: on_report raised ValueError: no such"):
        trained(tmp_path / "run", callbacks=[Raises, heard], **FOREVER)
    assert heard.of("end") == [None]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "--callback int: must be a class that derives from gossamer.Callback, or an instance"),
        (dict, "--callback dict: must be a class"),
        ("json:dumps", "--callback json:dumps: must be a class"),
        ("json:nothing", r"--callback json:nothing: cannot be imported \(.*\); give module:Name"),
        ("patience", "--callback patience: must be module:Name"),
        (NeedsMore, "--callback NeedsMore: making it raised TypeError: .*'more'"),
    ],
)
def test_what_is_no_callback_is_refused_before_anything_is_written(given: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        trained(tmp_path / "run", callbacks=[given])
    assert not (tmp_path / "run").exists()


def test_names_of_callbacks() -> None:
    assert list(chosen([Raises, Raises(), Heard()])) == ["Raises", "Raises 2", "Heard"]


def test_one_callback_needs_no_list() -> None:
    heard = Heard()
    assert chosen(heard) == {"Heard": heard}
    assert list(chosen(Raises)) == ["Raises"]
    with pytest.raises(UserError, match="--callback patience: must be module:Name"):
        chosen("patience")


def test_a_run_without_callbacks_has_none_to_wait_for() -> None:
    none = Callbacks()
    none.report({})
    none.end(None)
    assert none.wait()
    assert (none.ending, none.missed) == (False, {})


def test_results_say_nothing_new_without_callbacks(tmp_path: Path) -> None:
    found = result(trained(tmp_path / "run").directory)
    assert json.dumps(found["callbacks_missed"]) == "{}"
