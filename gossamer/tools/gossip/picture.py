"""Plots a simulation of gossip: distance to consensus, efficiency and staleness over virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gossamer.diagnostics.plots import BLUE, GREY, ORANGE, STYLE
from gossamer.storage.files import atomic_write
from gossamer.tools.gossip.ledger import Curves
from gossamer.tools.gossip.scenario import Scenario
from gossamer.tools.measured import in_units

CRASHES = 50  # if there are more crashes, none is drawn


def draw(curves: Curves, s: Scenario, crashes: Sequence[tuple[float, str]], path: Path) -> None:
    """Write the plot to `path`. An existing file is replaced when the plot is complete."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12, 3.8), dpi=120, layout="constrained")
        distance, efficiency, staleness = figure.subplots(1, 3)
        _distance(distance, curves)
        _efficiency(efficiency, curves)
        _staleness(staleness, curves, s.staleness)
        for axes in (distance, efficiency, staleness):
            _over_time(axes, curves, crashes)
        text = in_units(s)
        figure.suptitle(
            f"{s.members} members on {s.hosts} hosts, {s.graph}; {text['bandwidth']}, {text['latency']}, "
            f"{text['message_size']} a message, {text['step_time']} an iteration",
            x=0.01,
            ha="left",
            fontsize=11,
        )
        atomic_write(path, lambda beside: figure.savefig(beside, format="png"))


def _distance(axes: Axes, curves: Curves) -> None:
    axes.set_title("Distance to consensus")
    axes.set_ylabel("farthest member, % of the norm of the mean")
    axes.plot(curves.seconds, 100 * curves.distance, color=BLUE, linewidth=1.4)
    if np.nan_to_num(curves.distance).max() > 0:
        axes.set_yscale("log", nonpositive="mask")
        axes.yaxis.set_major_formatter("{x:g}%")


def _efficiency(axes: Axes, curves: Curves) -> None:
    axes.set_title("Efficiency")
    axes.set_ylabel("computing, % of the members' time")
    axes.plot(curves.seconds, 100 * curves.efficiency, color=BLUE, linewidth=1.4)
    axes.set_ylim(0, 105)
    axes.yaxis.set_major_formatter("{x:g}%")


def _staleness(axes: Axes, curves: Curves, bound: float) -> None:
    axes.set_title("Staleness of averaged messages")
    axes.set_ylabel("iterations")
    axes.plot(curves.seconds, curves.staleness_max, ".-", color=GREY, label="max", linewidth=1, markersize=4)
    axes.plot(curves.seconds, curves.staleness_mean, ".-", color=BLUE, label="mean", linewidth=1.4, markersize=4)
    if math.isfinite(bound):
        axes.axhline(bound, color=ORANGE, linestyle="--", linewidth=1, label="bound")
    axes.legend(loc="best")


def _over_time(axes: Axes, curves: Curves, crashes: Sequence[tuple[float, str]]) -> None:
    axes.set_xlabel("virtual time, s" + (" (dotted: crashes)" if 0 < len(crashes) <= CRASHES else ""))
    axes.set_xlim(0, curves.seconds[-1])
    for when, _ in crashes if len(crashes) <= CRASHES else ():
        axes.axvline(when, color=ORANGE, linestyle=":", linewidth=0.8)
