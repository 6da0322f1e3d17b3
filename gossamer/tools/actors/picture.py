"""Plots a simulation of actors and learners: who waits, the policy lag, and utilisation over virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gossamer.data import Array
from gossamer.diagnostics.plots import BARS, BLUE, GREEN, GREY, ORANGE, STYLE
from gossamer.storage.files import atomic_write
from gossamer.tools.actors.ledger import Ledger, Span
from gossamer.tools.actors.scenario import ActorScenario
from gossamer.tools.measured import in_units

POINTS = 60  # of a curve
ROWS = {  # row -> figures, from left to right, with their labels
    "actors": {
        "actors_act": "act",
        "waits_for_slots": "wait for a slot",
        "actors_send": "send",
        "waits_for_parameters": "wait for parameters",
    },
    "learners": {"utilisation": "update", "waits_for_batches": "wait for batches", "averaging": "wait for each other"},
}


def draw(found: Mapping[str, Any], s: ActorScenario, ledger: Ledger, path: Path) -> None:
    """Write the plot to `path`. An existing file is replaced when the plot is complete."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12, 3.8), dpi=120, layout="constrained")
        shares, lag, time = figure.subplots(1, 3)
        _shares(shares, found)
        _lag(lag, found["lag"], s)
        _over_time(time, s, ledger)
        text = in_units(s)
        figure.suptitle(
            f"{s.actors} actors on {s.hosts} hosts, {s.learners} learner{'s' * (s.learners > 1)}; {text['bandwidth']}, "
            f"{text['latency']}, {text['update_time']} a pass, reuse {s.reuse}",
            x=0.01,
            ha="left",
            fontsize=11,
        )
        atomic_write(path, lambda beside: figure.savefig(beside, format="png"))


def _shares(axes: Axes, found: Mapping[str, Any]) -> None:
    axes.set_title("Who waits")
    for y, parts in enumerate(ROWS.values()):
        left = 0.0
        for (key, label), colour in zip(parts.items(), (BLUE, ORANGE, GREY, GREEN), strict=False):
            width = 100 * found[key]
            axes.barh(y, width, left=left, color=colour, height=0.5)
            if width > 12:
                text = f"{label}\n{width:.0f}%"
                axes.annotate(text, (left + width / 2, y), ha="center", va="center", color="white", size=8)
            left += width
    axes.set_yticks(range(len(ROWS)), list(ROWS))
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of their time")
    axes.grid(axis="y", visible=False)


def _lag(axes: Axes, counts: Mapping[str, int], s: ActorScenario) -> None:
    lags, total = {int(lag): count for lag, count in counts.items()}, sum(counts.values())
    width = -(-(max(lags) + 1) // BARS)
    bars = np.zeros(max(lags) // width + 1)
    for lag, count in lags.items():
        bars[lag // width] += 100 * count / total
    axes.set_title("Policy lag")
    axes.bar((np.arange(len(bars)) + 0.5) * width - 0.5, bars, width=0.9 * width, color=BLUE)
    axes.axvline(s.lag_bound, color=ORANGE, linestyle="--", linewidth=1, label="bound by credit")
    axes.set_xlabel("optimizer steps from acting to learning")
    axes.set_ylabel("% of the rollouts")
    axes.grid(axis="x", visible=False)
    axes.legend(loc="best")


def _over_time(axes: Axes, s: ActorScenario, ledger: Ledger) -> None:
    times, full = (np.array(values, float) for values in zip(*ledger.queue, strict=True))
    edges = np.linspace(0.0, ledger.totals.end, POINTS + 1)
    axes.set_title("Over time")
    axes.plot(edges[1:], 100 * busy(ledger.updates, edges) / s.learners, color=BLUE, linewidth=1.4)
    axes.set_ylim(0, 105)
    axes.set_ylabel("learners update, % of their time", color=BLUE)
    axes.axvspan(0, ledger.totals.start, color=GREY, alpha=0.15, linewidth=0)
    axes.set_xlabel("virtual time, s (shaded: warm-up)")
    axes.set_xlim(0, edges[-1])
    queue = axes.twinx()
    queue.plot(times, full, ".", color=ORANGE, markersize=3)
    queue.set_ylim(0, max(1.0, full.max() * 1.1))
    queue.set_ylabel("full batches in the queue", color=ORANGE)
    queue.grid(visible=False)


def busy(spans: Sequence[Span], edges: Array) -> Array:
    """The mean number [N] of spans that are under way, in each interval between the N + 1 edges."""
    starts, ends = (np.array([getattr(span, name) for span in spans]) for name in ("start", "end"))
    inside = np.minimum(ends, edges[1:, None]) - np.maximum(starts, edges[:-1, None])
    mean: Array = np.maximum(inside, 0).sum(1) / np.diff(edges)
    return mean
