"""Which runs a report takes, and what is said about the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from some_results import rising, write_run

from gossamer.reporting.runs import load, sources
from gossamer.storage import studies
from gossamer.storage.studies import PlannedRun
from gossamer.system.errors import UserError
from gossamer.tools.runs import line


def test_runs_are_found_once_at_any_depth(tmp_path: Path) -> None:
    one, two = write_run(tmp_path / "a" / "one", rising(1.0)), write_run(tmp_path / "two", rising(1.0), seed=2)
    found = sources([tmp_path, tmp_path / "a", one], {})
    assert sorted(each.directory for each in found) == [one, two]


def test_a_label_names_the_runs_below_a_folder_and_adds_them(tmp_path: Path) -> None:
    for name in ("a/1", "a/2", "b/1"):
        write_run(tmp_path / name, rising(1.0))
    found = sources([tmp_path / "b"], {"ours": tmp_path / "a"})
    assert [(each.directory.relative_to(tmp_path).as_posix(), each.label) for each in found] == [
        ("b/1", None), ("a/1", "ours"), ("a/2", "ours"),
    ]  # fmt: skip


@pytest.mark.parametrize("order", [("ours", "all"), ("all", "ours")])
def test_of_two_labels_that_of_the_folder_inside_the_other_counts(tmp_path: Path, order: tuple[str, str]) -> None:
    for name in ("new/1", "old/1"):
        write_run(tmp_path / name, rising(1.0))
    folders = {"ours": tmp_path / "new", "all": tmp_path}
    found = sources([], {label: folders[label] for label in order})
    labels = {each.directory.relative_to(tmp_path).as_posix(): each.label for each in found}
    assert labels == {"new/1": "ours", "old/1": "all"}


def test_a_study_names_its_runs_and_those_that_are_missing(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "1", rising(1.0))
    write_run(tmp_path / "other", rising(1.0))
    studies.write(tmp_path, [PlannedRun(f"runs/{seed}", "the label", "catch", seed, "paac") for seed in (1, 2)])
    runs, left_out = load(sources([tmp_path], {}))
    assert [(run.record.directory, run.label) for run in runs] == [(tmp_path / "runs" / "1", "the label")]
    assert [(each.directory, each.reason) for each in left_out] == [
        (tmp_path / "runs" / "2", "missing: it has not been started")
    ]


def test_a_damaged_study_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(UserError, match=r"study\.json: damaged"):
        sources([tmp_path], {})


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("config.json", "{", "config.json: truncated or altered"),
        ("result.json", "[]", "result.json: damaged (fields are missing)"),
        ("episodes.csv", "steps\n1,2\n", "episodes.csv: damaged"),
        ("episodes.csv", "steps\n10,0.5,a,catch,0,1,10\n10,0.", "episodes.csv: damaged (1 of 300 episodes)"),
        ("episodes.csv", "", "episodes.csv: damaged (0 of 300 episodes)"),
        ("episodes.csv", f"steps\n{'9' * 23},0.5,a,catch,0,1,10\n", "damaged (OverflowError("),
        ("metrics.jsonl", "{}\n", "metrics.jsonl: damaged"),
        ("result.json", {"policy_lag": {"mean": 1.0}}, "result.json: damaged (KeyError('max'))"),
        ("result.json", {"policy_lag": {"mean": "x", "max": 3}}, "result.json: damaged (ValueError("),
        ("result.json", None, "crashed at 3,000 of 3,000 steps; gossamer resume"),
        ("result.json", {"ended": "SIGINT"}, "interrupted at 3,000 of 3,000 steps"),
        ("result.json", {"short": 7}, "short at 3,000 of 3,000 steps"),
        ("result.json", {"mean_return": None}, "no episode has ended"),
        ("result.json", {"frames": "many"}, "result.json: damaged (frames is of a wrong type)"),
        ("result.json", {"hosts": ["x"]}, "result.json: damaged (hosts is of a wrong type)"),
        ("result.json", {"hosts": {"a": "x"}}, "result.json: damaged (AttributeError("),
        ("result.json", {"hosts": {"": 3}}, "result.json: damaged (AttributeError("),
        ("result.json", {"ended": 3}, "result.json: damaged (ended is of a wrong type)"),
        ("episodes.csv metrics.jsonl", "", "episodes.csv and metrics.jsonl: missing or empty"),
        ("episodes.csv metrics.jsonl", None, "episodes.csv and metrics.jsonl: missing or empty"),
        ("episodes.csv", "steps\n10,0.5,a,catch,0,nan,10\n", "episodes.csv: damaged (a number is not finite)"),
        ("gossip.json", '{"traffic": {"stal', "gossip.json: damaged (JSONDecodeError("),
        ("gossip.json", '{"traffic": {}}', "gossip.json: damaged (KeyError('staleness'))"),
        ("evaluation-plain.json", "{}", "evaluation-plain.json: damaged (KeyError("),
        ("evaluations.jsonl", '{"steps": 3000}\n', "evaluations.jsonl: damaged (KeyError("),
        ("evaluations.jsonl", "[]\n", "evaluations.jsonl: damaged (a line has no steps)"),
        ("metrics.jsonl", '{"steps": 3000, "time/env": "long"}\n', "metrics.jsonl: damaged (ValueError("),
    ],
)
def test_a_run_that_cannot_be_used_is_left_out_and_named(
    tmp_path: Path, file: str, text: str | dict[str, object] | None, reason: str
) -> None:
    good, bad = write_run(tmp_path / "good", rising(1.0)), write_run(tmp_path / "bad", rising(1.0))
    for name in file.split():
        if text is None:
            (bad / name).unlink()
        else:
            whole = text if isinstance(text, str) else json.dumps(json.loads((bad / name).read_text()) | text)
            (bad / name).write_text(whole)
    runs, left_out = load(sources([tmp_path], {}))
    assert [run.record.directory for run in runs] == [good]
    assert [each.directory for each in left_out] == [bad]
    assert left_out[0].reason.startswith(reason)


def test_no_run_that_has_ended_is_an_error_that_names_them(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rising(1.0))
    (run / "result.json").unlink()
    with pytest.raises(UserError, match=r"no run can be used \(.*crashed at 3,000"):
        load(sources([tmp_path], {}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 1, "runs": []}', "the study has no runs"),
        (
            '{"format": 1, "runs": [{"directory": 3, "label": "a", "env": "catch", "seed": 1, "command": "paac"}]}',
            "damaged",
        ),
    ],
)
def test_a_study_s_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(UserError, match=message):
        sources([tmp_path], {})


@pytest.mark.parametrize(("name", "what"), [("nowhere", "does not exist"), ("file", "is a file"), ("empty", "no run")])
def test_a_path_without_runs_is_refused(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=what):
        sources([tmp_path / name], {})


def test_a_run_without_machine_frames_and_time_can_be_used(tmp_path: Path) -> None:
    unknown = dict.fromkeys(("machine", "frames", "seconds", "hosts"))
    run = write_run(tmp_path / "run", rising(1.0), result=unknown)
    ((loaded,), left_out) = load(sources([run], {}))
    assert (left_out, loaded.frames_per_step) == ([], 1)
    assert loaded.machine == "unknown processor, ? cores, torch unknown"
    assert line(run).seconds == 0.0


def test_a_folder_with_very_many_folders_is_refused_and_the_search_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.storage.contents.TELL_EVERY", 2)
    monkeypatch.setattr("gossamer.reporting.runs.MOST_FOLDERS", 5)
    for name in ("a/1", "a/2", "b"):  # five folders with `a` and the root
        (tmp_path / name).mkdir(parents=True)
    told = list[str]()
    with pytest.raises(UserError, match="no run directory is in it"):
        sources([tmp_path], {}, told.append)
    assert told == [f"looking for runs in {tmp_path}: {seen} folders so far" for seen in (2, 4)]
    (tmp_path / "c").mkdir()
    with pytest.raises(UserError, match="more than 5 folders are in it; give a folder closer to the runs"):
        sources([tmp_path], {})
