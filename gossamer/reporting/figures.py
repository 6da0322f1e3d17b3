"""All figures of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl

from gossamer.reporting import bars, lines
from gossamer.reporting.captions import Drawn
from gossamer.reporting.comparison import Comparison
from gossamer.reporting.measures import MeanCurve, Scores
from gossamer.reporting.profiles import Profile
from gossamer.reporting.style import STYLE, Palette


def draw(
    comparison: Comparison,
    scores: Scores,
    summary: Mapping[str, Any],
    means: Sequence[MeanCurve],
    profiles: Sequence[Profile],
) -> list[Drawn]:
    """Every figure for which there is something to draw. `summary`: the result of `reporting.summary`."""
    palette = Palette([method.label for method in comparison.methods])
    over_envs = [mean for mean in means if not mean.env]
    with mpl.rc_context(STYLE):
        drawn = [
            lines.curves(comparison, summary, means, palette),
            *lines.aggregated(summary, over_envs, palette),
            bars.scores(comparison, scores, summary, palette),
            *bars.aggregates(summary, palette),
            lines.profiles(profiles, summary, palette),
            *bars.improvement(summary, palette),
            *bars.thresholds(summary, palette),
            bars.speed(comparison, summary, palette),
        ]
        for each in drawn:
            each.figure.draw_without_rendering()
            each.figure.set_layout_engine("none")  # it is laid out once, not again for each kind of file
    return drawn
