"""One run, read again and again, gives what one complete look gives."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from some_pages import add_rows, row, write_run, write_status

from gossamer.page import run as run_module
from gossamer.page.run import Cursor, RunView
from gossamer.page.series import Series
from gossamer.storage.lock import held


class Told:
    """What a browser has put together of updates."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}
        self.cursor = Cursor()

    def take(self, run: RunView) -> None:
        news, self.cursor = run.update(self.cursor)
        if news is None:
            return
        if news["reset"]:
            self.content = {"rows": {}, "episodes": {}, "log": []}
        for table in ("rows", "episodes"):
            columns = self.content[table]
            for name, values in news[table]["columns"].items():
                column = columns.get(name, [])[: news[table]["from"]]
                columns[name] = column + [None] * (news[table]["from"] - len(column)) + values
        self.content["log"] += news["log"]
        self.content |= {name: news[name] for name in news.keys() - {"rows", "episodes", "log", "reset"}}


def looked(directory: Path) -> RunView:
    run = RunView(directory.name, directory)
    run.read_all()
    return run


def complete(directory: Path) -> dict[str, Any]:
    told = Told()
    told.take(looked(directory))
    return told.content


@pytest.mark.parametrize("seed", range(5))
def test_updates_add_up_to_one_complete_look(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when rows are thinned, a column comes late, and the run is resumed from an earlier step."""
    monkeypatch.setattr(run_module, "Series", lambda **given: Series(25, **given))
    rng, directory = random.Random(seed), write_run(tmp_path / "run", 0)
    run, browsers, steps = RunView("run", directory), [Told(), Told()], 0
    for round in range(12):
        count = rng.randrange(0, 9)
        add_rows(directory, steps + 10, steps + 10 * count, **({"late": 1.0} if round > 5 else {}))
        steps += 10 * count
        with open(directory / "run.log", "a") as log:
            log.write(f"2026-01-02 03:04:05 round {round}\n")
        if round == 8:  # resumed: what came after the checkpoint is dropped, in files that replace the old ones
            kept = (directory / "metrics.jsonl").read_text().splitlines(keepends=True)[: steps // 20]
            (directory / "new").write_text("".join(kept))
            (directory / "new").replace(directory / "metrics.jsonl")
            steps = 10 * len(kept)
        run.read_all()
        for browser in browsers[: 1 + (rng.random() < 0.5)]:  # the second one looks more rarely
            browser.take(run)
    for browser in browsers:
        browser.take(run)
        assert browser.content == complete(directory)


def test_evaluations_are_told_whenever_one_is_added(tmp_path: Path) -> None:
    directory, told = write_run(tmp_path / "run"), Told()
    run = looked(directory)
    told.take(run)
    assert told.content["evaluations"] == []
    for steps in (10, 20):
        line = {"steps": steps, "seconds": 1.5, "protocol": "plain", "mean_return": 0.5, "returns": [0.0, 1.0]}
        with open(directory / "evaluations.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        run.read_all()
        told.take(run)
        assert [each["steps"] for each in told.content["evaluations"]] == list(range(10, steps + 1, 10))
    assert "returns" not in told.content["evaluations"][0]
    add_rows(directory, 40, 40)
    run.read_all()
    assert "evaluations" not in (run.update(told.cursor)[0] or {})
    (directory / "new").write_text('{"steps": 5, "mean_return": 1.0}\n"no row"\n')
    (directory / "new").replace(directory / "evaluations.jsonl")
    run.read_all()
    told.take(run)
    assert told.content["evaluations"] == [{"steps": 5, "mean_return": 1.0}]


def test_nothing_new_is_nothing_told(tmp_path: Path) -> None:
    run, told = looked(write_run(tmp_path / "run")), Told()
    told.take(run)
    run.poll()
    assert run.update(told.cursor) == (None, told.cursor)


def test_a_cursor_survives_as_text_and_anything_else_begins_anew(tmp_path: Path) -> None:
    cursor = looked(write_run(tmp_path / "run")).update(Cursor())[1]
    assert Cursor.parse(str(cursor)) == cursor
    for text in ("", "x", "1-2-3", "1-2-3-4-x", "1-2-3-4-" + "9" * 99, "-1-2-3-4"):
        assert Cursor.parse(text) == Cursor()


@pytest.mark.parametrize("result", [{"steps": "30"}, {"steps": None}, {"ended": 3}, {"steps": [], "ended": {}}])
def test_a_result_of_a_wrong_type_is_none(tmp_path: Path, result: dict[str, Any]) -> None:
    directory = write_run(tmp_path / "run")
    (directory / "result.json").write_text(json.dumps(result))
    run = looked(directory)
    assert (run.state, run.result) == ("crashed", {})
    assert complete(directory)["result"] == {}


def test_parts_of_a_wrong_type_are_none(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", 3, row=["no row"])
    (directory / "config.json").write_text('{"format": 2, "gossamer": "0.1.0", "run": 3, "env": ["catch"]}')
    assert looked(directory).now["steps"] == 30
    assert looked(directory).summary()["env"] is None


def test_the_newest_row_may_be_in_the_status_only(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", 3, row=row(35, policy_lag_trajectories={"0": 7}))
    assert looked(directory).now == row(35)  # a histogram is no number: it has no curve
    add_rows(directory, 40, 40)
    assert looked(directory).now["steps"] == 40


def test_a_small_document_is_told_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", members=[])
    run = looked(directory)
    first, cursor = run.update(Cursor())
    assert first is not None
    assert first["config"]["run"] == {"steps": 1000, "seed": 3}
    write_status(directory, members=["one"])
    run.poll()
    second, _ = run.update(cursor)
    assert second is not None
    assert "config" not in second
    assert second["status"] == {"members": ["one"]}


def test_states(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    assert looked(directory).state == "crashed"
    with held(directory):
        assert looked(directory).state == "running"
    for ended, short, state in (("all steps done", 0, "ended"), ("SIGINT", 0, "interrupted"), ("h away", 9, "short")):
        (directory / "result.json").write_text(json.dumps({"ended": ended, "steps": 30, "short": short}))
        assert looked(directory).state == state
        assert looked(directory).summary()["ended"] == ended
        with held(directory):  # it still plays its last games, or serves its page
            assert looked(directory).state == state
    write_status(directory, row=row(30))
    with held(directory):  # it was resumed since
        assert looked(directory).state == "running"
    add_rows(directory, 40, 40)  # and crashed
    assert looked(directory).state == "crashed"
    assert looked(directory).summary()["ended"] == ""


def test_a_resumed_run_has_no_result_until_it_ends_again(tmp_path: Path) -> None:
    directory, told = write_run(tmp_path / "run", 5), Told()
    (directory / "result.json").write_text(json.dumps({"steps": 50, "ended": "steps"}))
    run = looked(directory)
    told.take(run)
    with held(directory):
        write_status(directory)
        run.read_all()
        told.take(run)
        assert (run.state, told.content["result"], run.summary()["ended"]) == ("running", {}, "")
    run.read_all()
    told.take(run)
    assert (run.state, told.content["result"]["ended"]) == ("ended", "steps")


def test_a_run_has_the_speed_of_the_whole(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run")
    add_rows(directory, 40, 40, steps_per_second=99.0)  # of the last ten seconds
    assert looked(directory).summary()["steps_per_second"] == 10.0  # 40 steps in 4 s
    result = {"ended": "all steps done", "steps": 40, "short": 0, "mean_return": 0.5, "steps_per_second": 7.5}
    (directory / "result.json").write_text(json.dumps(result))
    assert looked(directory).summary()["steps_per_second"] == 7.5


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", 2)
    with open(directory / "metrics.jsonl", "a") as rows, open(directory / "episodes.csv", "a") as episodes:
        rows.write('{"steps": 30, "sec\n[1, 2]\n')
        episodes.write("30,3.0,cut\n")
    add_rows(directory, 40, 40)
    told = complete(directory)
    assert [steps for steps in told["rows"]["steps"] if steps is not None] == [10, 20, 40]
    assert told["episodes"]["steps"] == [10, 20, 40]


def test_each_game_has_a_column_of_its_returns(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", 0)
    add_rows(directory, 10, 20, games=["pong", "boxing"])
    assert complete(directory)["episodes"] == {
        "steps": [10, 10, 20, 20],
        "seconds": [1.0, 1.0, 2.0, 2.0],
        "length": [9, 9, 9, 9],
        "return/pong": [0.1, None, 0.2, None],
        "return/boxing": [None, 0.2, None, 0.4],
    }


def test_the_summary_has_a_small_curve(tmp_path: Path) -> None:
    run = looked(write_run(tmp_path / "run", 500))
    summary = run.summary()
    assert 2 <= len(summary["spark"]) <= run_module.SPARK
    assert summary["spark"][-1] == 5.0
    assert summary["spark"] == sorted(summary["spark"])
    assert (summary["name"], summary["architecture"], summary["env"]) == ("run", "gala", "catch")
