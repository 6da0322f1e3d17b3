"""Searches are carried out: trials side by side, pruned, continued, with failures and signals."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gossamer import commands
from gossamer.searches import search, trials
from gossamer.searches.plan import SearchDesign
from gossamer.searches.search import Search, conducted
from gossamer.storage import searches, studies
from gossamer.storage.lock import held
from gossamer.storage.searches import TrialRecord
from gossamer.storage.studies import PlannedRun
from gossamer.studies import conductor, jobs
from gossamer.studies.display import StudyDisplay
from gossamer.system.errors import UserError

optuna = pytest.importorskip("optuna", reason="needs the extra [optuna]")

# Stands in for a run: its return rises to `value` in ten rows, then it waits for the file `go`, if that is given.
STAND_IN = """
import json, pathlib, signal, sys, time
directory, value, go = pathlib.Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
def result(ended, code):
    (directory / "result.json").write_text(json.dumps({"steps": 80, "short": 0, "ended": ended, "mean_return": value}))
    sys.exit(code)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: result("SIGNAL", 128 + number))
directory.mkdir(parents=True, exist_ok=True)
rows = [json.dumps({"steps": 8 * n, "mean_return": value * n / 10}) for n in range(1, 11 - bool(go))]
(directory / "metrics.jsonl").write_text("".join(row + "\\n" for row in rows))
while go and not pathlib.Path(go[0]).exists():
    time.sleep(0.01)
result("all steps done", 0)
"""
Value = Callable[[float, int], float | str]  # of gamma and the seed; a text is an error


def standing_in(monkeypatch: pytest.MonkeyPatch, value: Value, go: Callable[[PlannedRun], list[str]]) -> None:
    """Have stand-ins in place of runs; `go(run)` is empty for those that end at once."""

    def command(run: PlannedRun, directory: Path) -> list[str]:
        words = shlex.split(run.command)
        reached = value(float(words[words.index("--gamma") + 1]), run.seed)
        if isinstance(reached, str):
            return [sys.executable, "-c", f"raise SystemExit({reached!r})"]
        return [sys.executable, "-c", STAND_IN, str(directory), str(reached), *go(run)]

    monkeypatch.setattr(jobs, "command", command)
    monkeypatch.setattr(conductor, "POLL_SECONDS", 0.01)


def at_once(run: PlannedRun) -> list[str]:
    return []


def design(folder: Path, **given: Any) -> SearchDesign:
    default: dict[str, Any] = {
        "composition": "paac", "env": "catch", "vary": ("gamma=0.5..1",), "trials": 4, "seeds": (1,), "steps": 80,
        "directory": folder,
    }  # fmt: skip
    return SearchDesign(**{**default, **given})


def shown() -> tuple[Callable[..., StudyDisplay], StringIO]:
    text = StringIO()
    return lambda planned, folder: StudyDisplay(planned, folder, Console(file=text, width=200)), text


def test_the_best_trial_is_found_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(monkeypatch, lambda gamma, seed: 10 * gamma + seed, at_once)
    display, text = shown()
    done = conducted(design(tmp_path / "s", seeds=(1, 3), jobs=2), display)
    assert (done.complete, done.exit_code, len(done.trials)) == (True, 0, 4)
    best = done.best
    assert best is not None
    gamma = max(trial.options["gamma"] for trial in done.trials)
    assert best.value == pytest.approx(10 * gamma + 2)  # the mean over seeds 1 and 3
    assert best.command == f"gossamer train paac --gamma {gamma} --env catch --seed 1 --steps 80"
    assert f"gamma {gamma:.4g}: {best.value:.2f}, the best so far" in text.getvalue()
    assert "[8/8]" in text.getvalue()
    assert searches.read(tmp_path / "s") == (design(tmp_path / "s", seeds=(1, 3)).definition, list(done.trials))
    assert [run.label for run in studies.read(tmp_path / "s")] == [f"trial {n // 2}" for n in range(8)]
    stored = optuna.load_study(study_name="search", storage=f"sqlite:///{tmp_path / 's' / 'search.db'}")
    assert stored.best_params == best.options
    assert stored.best_value == best.value


def test_a_trial_with_the_values_of_an_earlier_one_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing_in(monkeypatch, lambda gamma, seed: 10 * gamma + seed, at_once)
    display, text = shown()
    folder = tmp_path / "s"
    done = conducted(design(folder, vary=("gamma=0.5,1",), trials=6, seeds=(1, 3)), display)
    assert (done.complete, len(done.trials)) == (True, 6)
    trained = [trial for trial in done.trials if trial.repeats is None]
    assert sorted(trial.options["gamma"] for trial in trained) == [0.5, 1.0]
    assert [trial.value for trial in done.trials] == [10 * trial.options["gamma"] + 2 for trial in done.trials]
    for trial in done.trials:
        if trial.repeats is not None:
            earlier = done.trials[trial.repeats]
            told = f"has the values of trial {earlier.number} ({trial.value:.2f}) and is not trained again"
            assert f"trial {trial.number} {told}" in text.getvalue()
            assert (trial.options, trial.directory) == (earlier.options, earlier.directory)
    assert {run.label for run in studies.read(folder)} == {f"trial {trial.number}" for trial in trained}


def test_a_trial_below_the_median_is_ended_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After three trials of 5 to 10, one whose return is a tenth waits for ever; its second seed never starts."""
    ended = [0.0, 0.0, 0.0]

    def value(gamma: float, seed: int) -> float:
        if len(ended) < 9:  # three trials of two seeds
            ended.append(gamma)
            return 10 * gamma
        return gamma

    monkeypatch.setattr(trials, "UNPRUNED_TRIALS", 3)
    standing_in(monkeypatch, value, lambda run: [str(tmp_path / "never")] if run.label == "trial 3" else [])
    display, text = shown()
    done = conducted(design(tmp_path / "s", seeds=(1, 2)), display)
    assert [trial.state for trial in done.trials] == ["finished"] * 3 + ["pruned"]
    assert done.complete
    assert "[7/7] trial 3 on catch, seed 1: pruned: 80 steps" in text.getvalue()
    assert not (tmp_path / "s" / "trial-3" / "catch" / "seed-2").exists()
    # The last row has 9 of 10 parts of the run, and so 9 of the 10 points; all of them have the same return.
    stored = optuna.load_study(study_name="search", storage=f"sqlite:///{tmp_path / 's' / 'search.db'}").trials[3]
    assert list(stored.intermediate_values) == list(range(9))
    assert done.trials[3].value == pytest.approx(0.9 * done.trials[3].options["gamma"])


def test_without_pruning_every_trial_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "UNPRUNED_TRIALS", 0)
    (tmp_path / "go").touch()
    standing_in(monkeypatch, lambda gamma, seed: -gamma * seed, lambda run: [str(tmp_path / "go")])
    done = conducted(design(tmp_path / "s", prune=False), shown()[0])
    assert [trial.state for trial in done.trials] == ["finished"] * 4


def test_a_search_goes_on_where_a_signal_ended_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "s"
    standing_in(monkeypatch, lambda gamma, seed: gamma, lambda run: [str(tmp_path / "go")] * (run.label == "trial 1"))

    def interrupt() -> None:
        end = time.monotonic() + 60
        while not (folder / "trial-1" / "catch" / "seed-1" / "metrics.jsonl").exists() and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    first = conducted(design(folder), shown()[0])
    thread.join()
    assert [trial.state for trial in first.trials] == ["finished", "running"]
    assert (first.complete, first.exit_code) == (False, 130)

    (tmp_path / "go").touch()
    display, text = shown()
    then = conducted(design(folder, trials=5), display)  # one more
    assert then.complete
    assert [trial.options for trial in then.trials[:2]] == [trial.options for trial in first.trials]
    assert [trial.state for trial in then.trials] == ["finished"] * 5
    assert len({trial.options["gamma"] for trial in then.trials}) == 5  # the sampler does not begin anew
    assert "[4/4]" in text.getvalue()  # the first one was finished before


def test_failures_are_told_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[float] = []

    def value(gamma: float, seed: int) -> float | str:
        began.append(gamma)
        return "gossamer: the disk is full" if len(began) == 1 else gamma

    standing_in(monkeypatch, value, at_once)
    done = conducted(design(tmp_path / "s"), shown()[0])
    assert [(trial.state, trial.reason) for trial in done.trials[:2]] == [
        ("failed", "gossamer: the disk is full"),
        ("finished", ""),
    ]
    assert (done.complete, done.exit_code) == (True, 0)

    standing_in(monkeypatch, lambda gamma, seed: "no", at_once)
    done = conducted(design(tmp_path / "t"), shown()[0])
    assert (done.best, done.complete, done.exit_code) == (None, False, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"composition": "gala"}, "has another search, with composition paac, not gala"),
        ({"vary": ("gamma=0.4..1",)}, r"has another search, with vary gamma=0\.5\.\.1, not gamma=0\.4"),
        ({"steps": None}, "with steps 80, not by default"),
    ],
)
def test_another_search_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], message: str
) -> None:
    standing_in(monkeypatch, lambda gamma, seed: gamma, at_once)
    conducted(design(tmp_path, trials=1), shown()[0])
    before = searches.read(tmp_path)
    with pytest.raises(UserError, match=message):
        conducted(design(tmp_path, **given), shown()[0])
    assert searches.read(tmp_path) == before


def test_a_folder_in_use_and_one_with_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(monkeypatch, lambda gamma, seed: gamma, at_once)
    folder = tmp_path / "s"
    conducted(design(folder, trials=1), shown()[0])
    with held(folder), pytest.raises(UserError, match="wait"):
        conducted(design(folder), shown()[0])
    with held(folder / "trial-0" / "catch" / "seed-1"), pytest.raises(UserError, match="another process is training"):
        conducted(design(folder), shown()[0])
    with pytest.raises(UserError, match=r"has files and no search\.json"):
        conducted(design(tmp_path), shown()[0])


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"format": 1, "definition": {}, "trials": [{"x": 1}]}'])
def test_a_damaged_search_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "search.json").write_text(text)
    with pytest.raises(UserError, match=r"search\.json: damaged"):
        searches.read(tmp_path)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[dict[str, Any]] = []
    options = {"learning_rate": 0.00123456, "num_envs": 8}
    records = (
        TrialRecord(0, "finished", options, 1.0, "trial-0/catch", "gossamer train paac --num-envs 8"),
        TrialRecord(1, "failed", options, None, "trial-1/catch", "", "the disk is full"),
        TrialRecord(2, "finished", {**options, "num_envs": 16}, 20.5, "trial-2/catch", "gossamer train paac --n 16"),
    )  # fmt: skip

    def conduct(composition: str, **given: Any) -> Search:
        asked.append({"composition": composition, **given})
        return Search(tmp_path, records, 4)

    monkeypatch.setattr(search, "search", conduct)
    words = [
        "paac --algorithm ppo",
        "--env",
        "catch",
        "--vary",
        "num-envs=8,16",
        "--vary",
        "gamma=0.9..1",
        "--trials",
        "4",
    ]
    assert commands.run("search", [*words, "--seeds", "2,3", "--no-prune", "--", "--threads", "1"]) == 3
    assert asked == [
        {
            "composition": "paac --algorithm ppo", "env": "catch", "vary": ("num-envs=8,16", "gamma=0.9..1"),
            "trials": 4, "seeds": [2, 3], "steps": None, "directory": Path("studies/search"), "jobs": 1,
            "options": ["--threads", "1"], "prune": False,
        }
    ]  # fmt: skip
    assert capsys.readouterr().out.splitlines() == [
        "trial  state     return  learning-rate  num-envs",
        "2      finished  20.50   0.001235       16",
        "0      finished  1.00    0.001235       8",
        "1      failed    –       0.001235       8         the disk is full",
        "4 trials: 2 finished, 1 failed; next: run the same command again to continue",
        "best: 20.50, trial 2",
        "gossamer train paac --n 16",
    ]
    assert commands.run("search", [*words, "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["best"]["number"], len(found["trials"]), found["complete"]) == (2, 3, False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vary": "gamma=0..1"}, "vary 'gamma=0..1': must be a list of strings"),
        ({"composition": ["paac"]}, "composition .*: must be the words of a command"),
        ({"trials": "many"}, "trials 'many': must be a whole number"),
        ({"trials": 0}, "--trials 0: must be at least 1"),
    ],
)
def test_keywords_that_cannot_be(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    keywords: dict[str, Any] = {
        "composition": "paac", "env": "catch", "vary": ["gamma=0.5..1"], "trials": 1, "directory": tmp_path,
    }  # fmt: skip
    with pytest.raises(UserError, match=message):
        search.search(**{**keywords, **given})


@pytest.mark.long
def test_trials_are_trained(tmp_path: Path) -> None:
    done = search.search(
        "paac --num-envs 2 --rollout-length 4", env="catch", vary=["learning-rate=1e-3,1e-2"], trials=2, steps=400,
        jobs=2, directory=tmp_path / "s", options=["--threads", "1"],
    )  # fmt: skip
    assert done.complete
    assert done.best is not None
    result = json.loads((tmp_path / "s" / done.best.directory / "seed-1" / "result.json").read_text())
    assert result["mean_return"] == done.best.value
    assert result["config"]["optimization"]["learning_rate"] == done.best.options["learning_rate"]


def test_a_folder_with_a_question_mark_has_its_own_database(tmp_path: Path) -> None:
    for name in ("a?1", "a?2"):
        (tmp_path / name).mkdir()
        found = trials.Trials(tmp_path / name, [], 0, prune=False)
        found.ask()
        assert found.count == 1
        assert (tmp_path / name / trials.DATABASE).exists()


def test_a_trial_whose_values_were_not_all_chosen_gets_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search was killed while it chose them."""
    planned = design(tmp_path / "s", vary=("gamma=0.5..1", "num-envs=2,4"))
    (tmp_path / "s").mkdir()
    chosen, suggest = list[str](), optuna.trial.Trial._suggest

    def killed(trial: Any, name: str, distribution: Any) -> Any:
        if chosen:
            raise KeyboardInterrupt
        chosen.append(name)
        return suggest(trial, name, distribution)

    with monkeypatch.context() as patched:
        patched.setattr(optuna.trial.Trial, "_suggest", killed)
        with pytest.raises(KeyboardInterrupt):
            trials.Trials(tmp_path / "s", planned.ranges, 0, prune=False).ask()
    stored = trials.Trials(tmp_path / "s", planned.ranges, 0, prune=False)
    (half,) = [record.options for record in stored.records()]
    assert list(half) == ["gamma"]
    (left,) = stored.unfinished()
    assert left.options.keys() == {"gamma", "num_envs"}
    assert left.options["gamma"] == half["gamma"]
    assert [record.options for record in stored.records()] == [left.options]
