"""The look of figures."""

from __future__ import annotations

import matplotlib as mpl
import pytest

from gossamer.reporting.style import STYLE, Palette, figure, label_lines, value_ticks


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


@pytest.mark.parametrize(("count", "samples"), [(7, set()), (9, {"-", "--"})])
def test_labels_show_the_dashes_of_their_lines_where_colours_are_used_twice(count: int, samples: set[str]) -> None:
    names = [f"method {i}" for i in range(count)]
    with mpl.rc_context(STYLE):
        axes = figure(4, 3).subplots()
        label_lines(axes, dict.fromkeys(names, 0.5), Palette(names))
    assert [text.get_text() for text in axes.texts if text.get_text()] == names
    assert {text.arrow_patch.get_linestyle() for text in axes.texts if text.arrow_patch is not None} == samples
