"""Values as typed on the command line."""

from __future__ import annotations

import pytest

from gossamer.config.command_line import to_int


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
