"""Runs are found, forgotten, and read only while somebody watches."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest
from some_pages import add_rows, write_run

from gossamer.page import folder as folder_module
from gossamer.page.folder import Folder
from gossamer.page.run import Cursor
from gossamer.training import observer


def test_runs_are_found_at_any_depth_but_not_through_links(tmp_path: Path) -> None:
    outside = write_run(tmp_path / "outside" / "secret")
    runs = tmp_path / "runs"
    write_run(runs / "a")
    write_run(runs / "group" / "b")
    write_run(runs / "a" / "inside of a run")
    write_run(runs / ".hidden")
    (runs / "link").symlink_to(outside)
    (runs / "c").mkdir()
    (runs / "c" / "config.json").symlink_to(outside / "config.json")
    folder = Folder(runs)
    folder.scan()
    assert set(folder.runs) == {"a", "group/b"}
    shutil.rmtree(runs / "a")
    write_run(runs / "d")
    folder.scan()
    assert set(folder.runs) == {"group/b", "d"}


def test_a_folder_may_be_a_run_itself(tmp_path: Path) -> None:
    folder = Folder(write_run(tmp_path / "run"))
    folder.read_all()
    assert list(folder.runs) == ["."]
    assert folder.runs["."].summary()["name"] == "run"


def test_a_folder_that_does_not_become_a_run_is_looked_at_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    file = tmp_path / "run" / "config.json"
    file.write_text("{}")
    folder = Folder(tmp_path)
    folder.scan()
    assert not folder.runs
    shutil.rmtree(tmp_path / "run")
    write_run(tmp_path / "run")
    folder.scan()
    assert list(folder.runs) == ["run"]


def test_a_run_whose_settings_cannot_be_read_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "good")
    (write_run(tmp_path / "bad", result=True) / "config.json").write_text('{"format": 2, "goss')
    folder = Folder(tmp_path)
    folder.read_all()
    found = {key: (run.state, run.summary()["env"]) for key, run in folder.runs.items()}
    assert found == {"good": ("crashed", "catch"), "bad": ("damaged", None)}


def test_what_is_shown_is_less_than_a_second_old() -> None:
    """As docs/watching.md promises: the status is written, then looked at."""
    assert observer.STATUS_SECONDS + folder_module.POLL_SECONDS < 1


def test_files_are_read_while_somebody_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "POLL_SECONDS", 0.01)
    directory = write_run(tmp_path / "run")
    folder = Folder(tmp_path)

    def steps() -> object:
        return folder.runs["run"].now.get("steps")

    def readers() -> int:
        return sum(thread.name == "page reader" for thread in threading.enumerate())

    with folder.watched(("run",)), folder.watched(()):
        assert steps() == 30  # as soon as somebody watches
        assert readers() == 1
        add_rows(directory, 40, 40)
        with folder.changed:
            assert folder.changed.wait_for(lambda: steps() == 40, timeout=20)
    deadline = time.monotonic() + 20
    while readers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert readers() == 0
    add_rows(directory, 50, 50)
    assert steps() == 40


def test_runs_that_nobody_opened_are_read_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "BUDGET", 1)
    for name in "abc":
        write_run(tmp_path / name)
    folder = Folder(tmp_path)
    folder.scan()
    with folder.watched(("c",)):
        pass
    assert folder.runs["c"].now.get("steps") == 30
    assert [folder.runs[name].now.get("steps") for name in "ab"] == [30, None]


def test_another_run_in_the_place_of_one_that_was_removed_is_told_anew(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    write_run(tmp_path / "a")
    folder.read_all()
    _, cursor = folder.runs["a"].update(Cursor())
    shutil.rmtree(tmp_path / "a")
    folder.scan()
    write_run(tmp_path / "a", rows=8)
    folder.read_all()
    content, _ = folder.runs["a"].update(cursor)
    assert content is not None
    assert content["reset"] is True
    assert content["rows"]["columns"]["steps"] == [10 * i for i in range(1, 9)]
