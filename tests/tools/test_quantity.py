"""Text with units becomes SI numbers, and nothing else does."""

from __future__ import annotations

import math

import pytest

from gossamer.system.errors import UserError
from gossamer.tools.simulate.quantity import BYTES, BYTES_PER_SECOND, PER_SECOND, SECONDS, Quantity


@pytest.mark.parametrize(
    ("text", "quantity", "value"),
    [
        ("1Gb", BYTES_PER_SECOND, 1.25e8),
        ("1Gbps", BYTES_PER_SECOND, 1.25e8),
        ("8 kb/s", BYTES_PER_SECOND, 1e3),
        ("1Gbit/s", BYTES_PER_SECOND, 1.25e8),
        ("125MB/s", BYTES_PER_SECOND, 1.25e8),
        ("10B/s", BYTES_PER_SECOND, 10.0),
        ("inf", BYTES_PER_SECOND, math.inf),
        ("6.8MB", BYTES, 6.8e6),
        ("8Mb", BYTES, 1e6),
        ("1.5e3kB", BYTES, 1.5e6),
        ("40ms", SECONDS, 0.04),
        ("0.04s", SECONDS, 0.04),
        ("30us", SECONDS, 3e-5),
        (" 2 s ", SECONDS, 2.0),
        ("2min", SECONDS, 120.0),
        ("1e-3s", SECONDS, 1e-3),
        ("0s", SECONDS, 0.0),
        ("3/h", PER_SECOND, 3 / 3600),
        ("6/min", PER_SECOND, 0.1),
        ("0.5 /s", PER_SECOND, 0.5),
    ],
)
def test_text_has_a_unit(text: str, quantity: Quantity, value: float) -> None:
    assert quantity.parse("--x", text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "quantity", "told"),
    [
        ("40", SECONDS, "--x 40: the unit is missing; write 40ms or 40s"),
        ("0", SECONDS, "--x 0: the unit is missing; write 0ms or 0s"),
        ("10", BYTES_PER_SECOND, "--x 10: the unit is missing; write 10Mb/s (bits) or 10MB/s (bytes)"),
        ("2M", BYTES, "--x 2M: M is not a unit of bytes; write 2kB or 2MB"),
        ("3", PER_SECOND, "--x 3: the unit is missing; write 3/h or 3/min"),
        ("1Gb", SECONDS, "--x 1Gb: Gb is not a unit of seconds; write 1ms or 1s"),
        ("40ms", BYTES, "--x 40ms: ms is not a unit of bytes; write 40kB or 40MB"),
        ("40ms/s", SECONDS, "ms/s is not a unit of seconds"),
        ("6.8MB/s", BYTES, "MB/s is not a unit of bytes"),
        ("40msec", SECONDS, "msec is not a unit of seconds"),
        ("1Xb", BYTES, "Xb is not a unit of bytes"),
        ("1 2s", SECONDS, "--x 1 2s: "),
        ("fast", BYTES, "--x fast: not a quantity; write it as 10kB or 10MB"),
        ("", SECONDS, "not a quantity"),
        ("-1s", SECONDS, "--x -1s: not a quantity"),
        ("1.2.3s", SECONDS, "--x 1.2.3s: "),
        (".", BYTES, "not a quantity"),
        ("nan", SECONDS, "not a quantity"),
    ],
)
def test_other_text_is_refused(text: str, quantity: Quantity, told: str) -> None:
    with pytest.raises(UserError) as caught:
        quantity.parse("--x", text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("quantity", "value", "text"),
    [
        (SECONDS, 0.04, "40 ms"),
        (SECONDS, 0.99999, "1 s"),
        (SECONDS, 680_000.04, "188.9 h"),
        (SECONDS, 1e-9, "0.001 us"),
        (SECONDS, 0.0, "0 us"),
        (BYTES, 6.8e6, "6.8 MB"),
        (BYTES_PER_SECOND, 1.25e8, "1 Gb/s"),
        (BYTES_PER_SECOND, 10.0, "80 b/s"),
        (BYTES_PER_SECOND, math.inf, "inf"),
        (PER_SECOND, 1 / 30, "120/h"),
        (PER_SECOND, 0.0, "0/h"),
    ],
)
def test_people_read_the_largest_unit_that_fits(quantity: Quantity, value: float, text: str) -> None:
    assert quantity.text(value) == text
