"""The look of figures."""

from __future__ import annotations

import matplotlib as mpl
import pytest

from gossamer.reporting.style import STYLE, figure, value_ticks


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


def test_a_label_with_dollars_is_no_formula() -> None:
    with mpl.rc_context(STYLE):
        made = figure(4, 3)
        made.subplots().set_title(r"lr $\alpha$_1 $x^$")
        made.draw_without_rendering()
