"""The list of runs: `gossamer runs`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from some_runs import trained

from gossamer import commands, evaluate, report
from gossamer.envs import UnknownEnv


def test_runs_that_cannot_be_read_are_named_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path / "good").directory
    for name in ("result", "rows", "settings"):
        shutil.copytree(run, tmp_path / name)
    (tmp_path / "rows" / "metrics.jsonl").unlink()
    (tmp_path / "rows" / "metrics.jsonl").mkdir()  # stands for a file that cannot be read
    (tmp_path / "result" / "result.json").write_text('{"steps": "80", "short": 0, "ended": "all steps done"}')
    (tmp_path / "settings" / "config.json").write_text("{")
    capsys.readouterr()
    commands.run("runs", [str(tmp_path), "--json"])
    out, err = capsys.readouterr()
    assert [each["directory"] for each in json.loads(out)] == [str(run)]
    first, unreadable, second = err.splitlines()
    assert first.startswith(f"skipped: {tmp_path / 'result' / 'result.json'}: damaged (steps is of a wrong type)")
    assert unreadable.startswith(f"skipped: {tmp_path / 'rows' / 'metrics.jsonl'}: cannot be read (")
    assert second.startswith(f"skipped: {tmp_path / 'settings' / 'config.json'}: truncated or altered")


def test_runs_of_overlapping_folders_are_listed_once_and_whole_in_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = tmp_path / ("a" * 120) / ("b" * 120)
    run = trained(long / "run").directory
    capsys.readouterr()
    commands.run("runs", [str(tmp_path), str(long), str(run)])
    lines = [each for each in capsys.readouterr().out.splitlines() if str(run) in each]
    assert len(lines) == 1
    assert "80" in lines[0].removeprefix(str(run)).split()
    assert "catch" in lines[0]


def test_runs_whose_environment_is_absent_are_listed_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path / "run").directory
    content = json.loads((run / "config.json").read_text())
    env = {"name": "nowhere:Mine", "on_env_error": "fail", "action_masks": False, "action_bounds": "clip"}
    (run / "config.json").write_text(json.dumps({**content, "env": env}))
    capsys.readouterr()
    commands.run("runs", [str(tmp_path), "--json"])
    out, err = capsys.readouterr()
    assert ([each["env"] for each in json.loads(out)], err) == (["nowhere:Mine"], "")
    assert report(run, out=tmp_path / "report").page.exists()
    told = "^unknown environment 'nowhere:Mine': no module 'nowhere' can be imported; run from its folder, or set"
    with pytest.raises(UnknownEnv, match=told):
        evaluate(run)
