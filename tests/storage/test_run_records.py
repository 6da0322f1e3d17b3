"""What is read of run directories, whole, unfinished and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from some_runs import trained

from gossamer.storage import runs
from gossamer.storage.contents import search
from gossamer.storage.lock import held, is_held
from gossamer.storage.runs import EpisodeRow, RunRecord
from gossamer.system.errors import UserError


def record(directory: Path, row: int = 0, **result: Any) -> RunRecord:
    """A directory with one row of metrics, and a result if one is given."""
    directory.mkdir(exist_ok=True)
    (directory / "metrics.jsonl").write_text(json.dumps({"steps": row, "mean_return": 1.5}) + "\n")
    if result:
        (directory / "result.json").write_text(json.dumps(result))
    return RunRecord(directory)


def test_a_finished_run_is_read_back(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=400)  # 2 environments: 200 steps each; a game of catch takes 9
    found = RunRecord(run.directory)
    assert (found.state, found.steps, found.mean_return) == ("ended", 400, run.result["mean_return"])
    assert found.config.env.name == "catch"
    assert found.rows[-1] == found.last_row
    assert len(found.episodes) == run.result["episodes"] == 2 * (200 // 9)
    assert sum(each.score for each in found.episodes) / len(found.episodes) == pytest.approx(found.mean_return)
    assert {(each.member, each.environment) for each in found.episodes} == {("act_and_learn", "catch")}
    assert {each.env_index for each in found.episodes} == {0, 1}
    assert {each.length for each in found.episodes} == {9}
    assert [each.steps for each in found.episodes] == sorted(each.steps for each in found.episodes)


@pytest.mark.parametrize(
    ("result", "state"),
    [
        ({}, "crashed"),
        ({"steps": 80, "short": 0, "ended": "all steps done"}, "ended"),
        ({"steps": 80, "short": 20, "ended": "20 steps short: .."}, "short"),
        ({"steps": 80, "short": 0, "ended": "SIGINT"}, "interrupted"),
        ({"steps": 79, "short": 0, "ended": "all steps done"}, "crashed"),  # of the session before
    ],
)
def test_the_state_of_a_run(tmp_path: Path, result: dict[str, Any], state: str) -> None:
    assert record(tmp_path, row=80, **result).state == state


def test_a_run_that_is_being_trained(tmp_path: Path) -> None:
    with held(tmp_path):
        assert is_held(tmp_path)
        assert record(tmp_path, row=80).state == "running"
        assert is_held(tmp_path)  # looking changes nothing
    assert not is_held(tmp_path)


def test_looking_at_a_lock_does_not_keep_a_run_from_starting(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    assert not is_held(tmp_path)
    with held(tmp_path):
        pass


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    found = record(tmp_path, row=80)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"steps": 90, "mean')
    (tmp_path / "episodes.csv").write_text("steps,..\n8,0.5,m[1],pong,3,-21,764\n9,0.6,m[1],po")
    assert [row["steps"] for row in found.rows] == [80]
    assert found.last_row["steps"] == 80
    assert found.episodes == [EpisodeRow(8, 0.5, "m[1]", "pong", 3, -21.0, 764)]


def test_the_last_row_is_found_in_a_long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "TAIL_BYTES", 100)
    lines = [json.dumps({"steps": n}) + "\n" for n in range(50)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    assert RunRecord(tmp_path).last_row == {"steps": 49}
    assert [row["steps"] for row in RunRecord(tmp_path).rows] == list(range(50))


def test_a_run_of_an_older_version_has_no_episodes(tmp_path: Path) -> None:
    assert record(tmp_path).episodes == []


@pytest.mark.parametrize(
    ("file", "text", "what"),
    [
        ("metrics.jsonl", "{no json}\n", "rows"),
        ("metrics.jsonl", '{"frames": 3}\n', "last_row"),
        ("metrics.jsonl", "[3]\n", "rows"),
        ("episodes.csv", "steps\n1,2,3\n", "episodes"),
        ("episodes.csv", "steps\nx,0.5,m,pong,3,-21,764\n", "episodes"),
        ("result.json", "{", "result"),
        ("result.json", '{"steps": 80}', "result"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, file: str, text: str, what: str) -> None:
    found = record(tmp_path)
    (tmp_path / file).write_text(text)
    with pytest.raises(UserError, match=rf"{file}: damaged"):
        getattr(found, what)


def test_runs_are_found_at_any_depth(tmp_path: Path) -> None:
    config = json.dumps({"format": 2, "gossamer": "0.1.0"})
    for name in ("b/seed-2", "b/seed-1", "a", "a/checkpoints/copy", ".hidden"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(config)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert [path.relative_to(tmp_path).as_posix() for path in search(tmp_path)] == ["a", "b/seed-1", "b/seed-2"]
    assert search(tmp_path / "a") == [tmp_path / "a"]
    assert search(tmp_path / "missing") == []


def test_a_run_that_failed_has_the_steps_of_its_last_checkpoint(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", steps=400)
    (run.directory / "result.json").unlink()
    (run.directory / "metrics.jsonl").write_text("")
    assert (RunRecord(run.directory).state, RunRecord(run.directory).steps) == ("crashed", 400)
