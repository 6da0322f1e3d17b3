"""Files are read on while they grow, and never through links."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from gossamer.page.files import Document, Lines


def test_only_complete_lines_are_read_and_each_once(tmp_path: Path) -> None:
    file = tmp_path / "a"
    lines = Lines(file)
    assert lines.read() == []  # there is no such file yet
    file.write_text("one\ntw")
    assert lines.read() == ["one"]
    assert lines.read() == []
    with open(file, "a") as more:
        more.write("o\nthree\n")
    assert lines.read() == ["two", "three"]


def test_a_file_that_is_gone_begins_anew(tmp_path: Path) -> None:
    """As the evaluations of a run that `train --overwrite` replaced with one without."""
    file = tmp_path / "a"
    file.write_text("one\n")
    lines = Lines(file)
    assert (lines.read(), lines.restarts) == (["one"], 0)
    file.unlink()
    for _ in range(2):
        assert (lines.read(), lines.restarts) == ([], 1)
    file.write_text("two\n")
    assert (lines.read(), lines.restarts) == (["two"], 1)


def test_pieces_of_any_size_give_the_same_lines(tmp_path: Path) -> None:
    wanted = [f"line {i} {'x' * (i % 7)}" for i in range(100)]
    (tmp_path / "a").write_text("\n".join(wanted) + "\n")
    for size in (20, 64, 1000, 1 << 20):
        lines, found = Lines(tmp_path / "a"), list[str]()
        while piece := lines.read(size):
            found += piece
        assert found == wanted


@pytest.mark.parametrize("how", ["cut off", "replaced"])
def test_a_file_that_begins_anew_is_read_anew(tmp_path: Path, how: str) -> None:
    file = tmp_path / "a"
    file.write_text("one\ntwo\n")
    lines = Lines(file)
    assert lines.read() == ["one", "two"]
    if how == "cut off":
        file.write_text("one\n")
    else:
        (tmp_path / "b").write_text("three\nfour\nfive\n")
        (tmp_path / "b").replace(file)
    assert lines.restarts == 0
    assert lines.read() == (["one"] if how == "cut off" else ["three", "four", "five"])
    assert lines.restarts == 1


def test_a_new_file_with_the_number_of_one_that_was_removed_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("one\ntwo\n")
    lines = Lines(file)
    assert lines.read() == ["one", "two"]
    file.write_text("three\nfour\nfive\n")  # the same inode, and longer
    assert lines.read() == ["three", "four", "five"]
    assert lines.restarts == 1


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, kind: str) -> None:
    secret, file = tmp_path / "secret", tmp_path / "a"
    secret.write_text('{"secret": 1}\n')
    if kind == "link":
        file.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(file)  # opening it would wait for a writer
    else:
        file.mkdir()
    assert Lines(file).read() == []
    document = Document(file)
    document.read()
    assert document.content == {}
    assert Lines(secret).read() == ['{"secret": 1}']  # as it is read without the link


def test_a_document_is_read_when_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    document = Document(file)
    assert not document.read()
    file.write_text('{"a": 1}')
    assert document.read()
    assert document.content == {"a": 1}
    assert not document.read()
    file.write_text('{"a": 22')  # damaged
    assert document.read()
    assert document.content == {}
    file.unlink()
    assert document.read()
    assert document.changed_at == 0


def test_an_error_of_the_disk_is_a_look_without_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a network file system for a moment."""
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text('{"x": 1}')
    lines, document = Lines(tmp_path / "a"), Document(tmp_path / "b")

    def fails(*given: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fails)
        patch.setattr(json, "load", fails)
        assert lines.read() == []
        assert (document.read(), document.content) == (False, {})
    assert lines.read() == ["one"]
    assert (document.read(), document.content) == (True, {"x": 1})
