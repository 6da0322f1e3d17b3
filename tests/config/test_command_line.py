"""Values as typed on the command line."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Literal

import pytest

from gossamer.config.command_line import parse, to_int
from gossamer.system.errors import UserError


@pytest.mark.parametrize(
    ("word", "value"),
    [("1000", 1_000), ("1_000", 1_000), ("1e6", 1_000_000), ("2.5e5", 250_000), ("-3", -3), ("4.", 4)],
)
def test_ints(word: str, value: int) -> None:
    found = to_int(word)
    assert (found, type(found)) == (value, int)


@pytest.mark.parametrize("word", ["1.5", "1e-3", "1e999999999", "nan", "inf", "many", ""])
def test_no_ints(word: str) -> None:
    with pytest.raises(ValueError, match="invalid literal for int"):
        to_int(word)


@dataclass(frozen=True)
class Command:
    """A command."""

    how: Literal["noop", "sticky"] | None = None
    many: int = 3


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--how", "foo"], "--how 'foo': must be one of noop, sticky; see it --help"),
        (["--many", "x"], "--many 'x': must be of type int; see it --help"),
        (["--mani", "3"], "unknown option --mani; near: --many; see it --help"),
    ],
)
def test_an_error_is_one_line_in_any_encoding(
    words: list[str], message: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        parse(Command, words, prog="it")
