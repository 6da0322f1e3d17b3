"""The list of runs: `gossamer runs`."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from some_runs import trained

from gossamer import commands, evaluate, report
from gossamer.envs import UnknownEnv
from gossamer.tools.runs import Line, table


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
    told = "^unknown environment 'nowhere:Mine': no module 'nowhere' can be imported; install its package, run from"
    with pytest.raises(UnknownEnv, match=told):
        evaluate(run)


LINES = [
    Line("runs/one", "interrupted", "paac", "ppo", "pong", 1, 1_234_567, 10_000_000, 20.125, 12_345.0),
    Line(f"{'long/' * 20}two", "running", "impala", "vtrace", "pong,breakout", 2, 500, 10_000_000, None, 5.0),
]


@pytest.mark.parametrize("width", [50, 80, 120])
def test_on_a_narrow_terminal_nothing_is_cut(width: int) -> None:
    screen = io.StringIO()
    table(LINES, Console(file=screen, width=width, force_terminal=True, color_system=None))
    lines = screen.getvalue().splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [each.directory for each in LINES]
    told = " ".join(screen.getvalue().split())
    assert "interrupted, paac ppo on pong, seed 1, 1,234,567 of 10,000,000 steps, return 20.12, 3:25:45" in told
    assert "running, impala vtrace on pong,breakout, seed 2, 500 of 10,000,000 steps, return -, 0:00:05" in told


def test_the_list_needs_no_more_than_ascii() -> None:
    content = io.BytesIO()
    with io.TextIOWrapper(content, encoding="ascii", write_through=True) as screen:
        table(LINES, Console(file=screen, width=300))
        assert content.getvalue().decode("ascii").splitlines()[2].split()[-3:] == ["10,000,000", "-", "0:00:05"]
