"""What is written is there completely or not at all, and is JSON that every parser takes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from gossamer.storage.files import Content, atomic_write, to_json, write_json


def folder_of(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("new")


@pytest.mark.parametrize(
    "content", ["new", b"new", lambda beside: beside.write_text("new")], ids=["text", "bytes", "function"]
)
def test_a_file_is_replaced(tmp_path: Path, content: Content) -> None:
    (tmp_path / "a.txt").write_text("old")
    atomic_write(tmp_path / "a.txt", content)
    assert (tmp_path / "a.txt").read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_appears_complete(tmp_path: Path) -> None:
    atomic_write(tmp_path / "folder", folder_of)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "inside"]


def test_the_temporary_file_is_beside_and_has_the_suffix(tmp_path: Path) -> None:
    seen: list[Path] = []
    atomic_write(tmp_path / "film.gif", lambda beside: (seen.append(beside), beside.write_text("")))
    (beside,) = seen
    assert (beside.parent, beside.suffix) == (tmp_path, ".gif")
    assert beside.name.startswith(".film.")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_failure_changes_nothing(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.txt").write_text("old")

    def fails(beside: Path) -> None:
        folder_of(beside) if kind == "folder" else beside.write_text("half")
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        atomic_write(tmp_path / "a.txt", fails)
    assert os.listdir(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_the_file_is_on_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: order.append(Path(os.readlink(f"/proc/self/fd/{handle}")).suffix))
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: (order.append("rename"), replace(self, to))[1])
    (tmp_path / "folder").mkdir()
    atomic_write(tmp_path / "folder" / "a.txt", "new")
    assert order == [".txt", "rename", ""]  # the file, its name, the folder that has the name


def test_what_json_has_no_number_for_is_null() -> None:
    content = {"mean": float("nan"), "rows": [1.5, float("inf"), (float("-inf"), None)], "deep": {"loss": float("nan")}}
    assert json.loads(to_json(content)) == {"mean": None, "rows": [1.5, None, [None, None]], "deep": {"loss": None}}
    assert to_json({"mean": np.float64("nan")}) == '{"mean": null}'  # NumPy's doubles are Python's


def test_json_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"a": object()})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]
