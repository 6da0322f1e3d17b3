"""Runs are found, forgotten, and read only while somebody watches."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from some_pages import CONFIG, add_rows, write_run

from gossamer.page import folder as folder_module
from gossamer.page.folder import Folder
from gossamer.page.run import Cursor
from gossamer.training import writer


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


@pytest.mark.parametrize("content", ["[]", "3", '{"env": "of another program"}', "\udcff", "{", None])
def test_what_has_metrics_and_is_no_run_is_damaged(tmp_path: Path, content: str | None) -> None:
    """As in `gossamer runs` and `gossamer report`."""
    file = write_run(tmp_path / "group" / "bad") / "config.json"
    if content is None:
        file.unlink()
    else:
        file.write_text(content, errors="surrogateescape")
    folder = Folder(tmp_path)
    folder.read_all()
    assert {key: run.state for key, run in folder.runs.items()} == {"group/bad": "damaged"}
    told, _ = folder.runs["group/bad"].update(Cursor())
    assert told is not None
    assert (told["config"], told["now"]["steps"]) == ({}, 30)
    file.write_text(json.dumps(CONFIG))  # it is restored
    folder.read_all()
    assert folder.runs["group/bad"].state == "crashed"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_settings_that_are_no_regular_file_are_never_opened(tmp_path: Path, kind: str) -> None:
    file = write_run(tmp_path / "runs" / "bad") / "config.json"
    file.unlink()
    if kind == "link":
        file.symlink_to(write_run(tmp_path / "outside") / "config.json")
    else:
        os.mkfifo(file)  # opening it would wait for a writer
    folder = Folder(tmp_path / "runs")
    folder.read_all()
    told, _ = folder.runs["bad"].update(Cursor())
    assert told is not None
    assert (folder.runs["bad"].state, told["config"]) == ("damaged", {})


def test_a_damaged_run_hides_no_other(tmp_path: Path) -> None:
    write_run(tmp_path / "good")
    (tmp_path / "metrics.jsonl").write_text("")  # a copy of a part of a run
    folder = Folder(tmp_path)
    folder.read_all()
    assert {key: run.state for key, run in folder.runs.items()} == {"good": "crashed", ".": "damaged"}


def test_what_is_shown_is_less_than_a_second_old() -> None:
    """As docs/watching.md promises: the status is written, then looked at; new runs are searched for."""
    assert writer.STATUS_SECONDS + folder_module.POLL_SECONDS < 1
    assert folder_module.SCAN_EVERY * folder_module.POLL_SECONDS < 1


def look(folder: Folder, *numbers: int) -> None:
    with folder.changed:
        for number in numbers:
            folder._look(number)


def steps(folder: Folder) -> dict[str, object]:
    return {key: run.now["steps"] for key, run in folder.runs.items()}


def test_every_second_look_finds_new_runs_and_reads_those_that_do_not_train(tmp_path: Path) -> None:
    old, folder = write_run(tmp_path / "old"), Folder(tmp_path)
    look(folder, 0)
    write_run(tmp_path / "new")
    add_rows(old, 40, 40)
    look(folder, 1)
    assert steps(folder) == {"old": 30}
    look(folder, 2)
    assert steps(folder) == {"old": 40, "new": 30}


def test_in_a_large_folder_every_tenth_look_reads_runs_that_neither_train_nor_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "MANY", 2)
    runs = [write_run(tmp_path / name) for name in ("old", "resumed", "shown")]
    folder = Folder(tmp_path)
    with folder.changed, folder.watched(("shown",)):  # its thread waits for this one
        for run in runs:
            add_rows(run, 40, 40)
        (runs[1] / "config.json").write_text(json.dumps({**CONFIG, "preset": "paper"}))  # resumed with other options
        look(folder, 1)
        assert steps(folder) == {"old": 30, "resumed": 30, "shown": 30}
        look(folder, 2)
        assert steps(folder) == {"old": 30, "resumed": 40, "shown": 40}
        write_run(tmp_path / "new")
        look(folder, *range(3, 10))
        assert steps(folder) == {"old": 30, "resumed": 40, "shown": 40, "new": 30}
        look(folder, 10)
        assert steps(folder) == {"old": 40, "resumed": 40, "shown": 40, "new": 30}


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
