"""The look of figures."""

from __future__ import annotations

import pytest

from gossamer.reporting.style import figure, value_ticks


@pytest.mark.parametrize(
    ("low", "high", "some"),
    [
        (0, 17_500, {"0", "2,500", "17,500"}),
        (0, 2.5e6, {"500,000", "2,500,000"}),
        (-21, 21, {"−20", "0", "20"}),
        (-15.26, -15.18, {"−15.20", "−15.22"}),
    ],
)
def test_ticks_of_values(low: float, high: float, some: set[str]) -> None:
    made = figure(4, 3)
    axes = made.subplots()
    axes.plot([0, 1], [low, high])
    value_ticks(axes.yaxis)
    made.draw_without_rendering()
    assert some <= {label.get_text() for label in axes.get_yticklabels()}
