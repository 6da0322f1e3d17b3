"""Plot of `gossip.json`: consensus distance and bound, divergence of policies, gradients, staleness and message age."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from gossamer.storage.files import atomic_write

BLUE, ORANGE, GREEN, GREY = "#1f77b4", "#d95f02", "#1b9e77", "#888888"
STYLE: Any = {
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.edgecolor": "none",
    "axes.axisbelow": True,
    "font.size": 9,
}
BARS = 40  # approximate number of bars in a histogram


def draw(gossip: dict[str, Any], path: Path) -> None:
    """Plot the result of `ConsensusMonitor.to_dict` to `path`. The file is written atomically."""
    windows, traffic = gossip["windows"], gossip["traffic"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 6.6), dpi=120, layout="constrained")  # not pyplot, which has global state
        grid = figure.add_gridspec(2, 12)
        _distance(figure.add_subplot(grid[0, :8]), windows)
        _tightness(figure.add_subplot(grid[0, 8:]), windows)
        _divergence(figure.add_subplot(grid[1, :3]), windows)
        _cosine(figure.add_subplot(grid[1, 3:6]), windows)
        _staleness(figure.add_subplot(grid[1, 6:9]), traffic["staleness"])
        _ages(figure.add_subplot(grid[1, 9:]), traffic["ages"])
        figure.suptitle(f"Gossip: {_title(gossip)}", x=0.01, ha="left", fontsize=11)
        atomic_write(path, lambda beside: figure.savefig(beside, format="png"))


def _title(gossip: dict[str, Any]) -> str:
    """Number of members and windows, and the error of the projection."""
    windows, projection = gossip["windows"], gossip.get("projection", {})
    if not windows:
        return "no observation window was completed"
    title = f"{windows[-1]['members']} members, {len(windows)} observation window{'s' * (len(windows) > 1)}"
    if not projection.get("standard_error"):
        return title  # small networks are not projected; old records have no projections
    expected, measured = projection["standard_error"], projection["measured_error"]
    seen = "" if measured is None else f", measured {measured:.1%}"
    return f"{title}; distances from {projection['dimensions']:,} random projections (error {expected:.1%}{seen})"


def _curve(axes: Axes, windows: Sequence[dict[str, Any]], name: str, label: str, colour: str, style: str = "-") -> None:
    """Plot one figure against environment steps, for the windows that have it."""
    known = [(window["steps"], window[name]) for window in windows if window.get(name) is not None]
    if known:
        dots = "." if len(known) <= 60 else ""
        axes.plot(*zip(*known, strict=True), style, marker=dots, color=colour, label=label, linewidth=1.4, markersize=5)


def _against_steps(axes: Axes, title: str, *, logarithmic: bool = False) -> None:
    axes.set_title(title)
    axes.set_xlabel("environment steps")
    if axes.get_legend_handles_labels()[1]:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.legend(loc="best")
        if logarithmic and axes.dataLim.y1 > 0:
            axes.set_yscale("log", nonpositive="mask")
    else:
        _empty(axes, "nothing measured")


def _empty(axes: Axes, why: str) -> None:
    axes.set(xticks=[], yticks=[], xlabel="")
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", color=GREY)


def _distance(axes: Axes, windows: Sequence[dict[str, Any]]) -> None:
    _curve(axes, windows, "bound", "consensus bound, from mixing weights and steps", ORANGE, "--")
    _curve(axes, windows, "distance", "distance of the farthest member", BLUE)
    _curve(axes, windows, "distance_rms", "root mean square over members", GREY)
    _against_steps(axes, "Consensus distance: members from their mean, $\\|x_i - \\bar x\\|_2$", logarithmic=True)


def _tightness(axes: Axes, windows: Sequence[dict[str, Any]]) -> None:
    _curve(axes, windows, "tightness", "distance / bound", BLUE)
    if axes.lines:
        axes.set_ylim(0, 1.05)
        axes.axhline(1, color=ORANGE, linestyle="--", linewidth=1)
    _against_steps(axes, "How much of the bound is used")


def _divergence(axes: Axes, windows: Sequence[dict[str, Any]]) -> None:
    _curve(axes, windows, "kl_max", "greatest pair", GREY)
    _curve(axes, windows, "kl", "mean over pairs", BLUE)
    _against_steps(axes, "KL between policies, nats", logarithmic=True)


def _cosine(axes: Axes, windows: Sequence[dict[str, Any]]) -> None:
    _curve(axes, windows, "gradient_cosine_others", "other pairs", GREY)
    _curve(axes, windows, "gradient_cosine_neighbours", "neighbours on the ring", GREEN)
    if axes.lines:
        axes.axhline(0, color="black", linewidth=0.6)
    _against_steps(axes, "Cosine of members' gradients")


def _bars(axes: Axes, title: str, below: str, names: Sequence[str], counts: Sequence[int]) -> None:
    axes.set_title(title)
    axes.set_xlabel(below)
    axes.grid(axis="x", visible=False)
    total = sum(counts)
    if total:
        axes.bar(range(len(counts)), [100 * count / total for count in counts], width=0.9, color=BLUE)
        every = -(-len(names) // 5)
        axes.set_xticks(range(0, len(names), every), list(names)[::every])
        axes.yaxis.set_major_formatter("{x:g}%")
    else:
        _empty(axes, "none")


def _staleness(axes: Axes, counts: dict[str, int]) -> None:
    counted = {int(behind): count for behind, count in counts.items()}
    low, high = min(counted, default=0), max(counted, default=0)
    width = -(-(high - low + 1) // BARS)
    low -= low % width  # a bin starts at 0
    bars = dict.fromkeys(range(low, high + 1, width), 0)
    for behind, count in counted.items():
        bars[behind - (behind - low) % width] += count
    below = "iterations behind" if width == 1 else f"iterations behind, from (bars of {width})"
    _bars(axes, "Messages' staleness", below, [str(behind) for behind in bars], list(bars.values()))


def _ages(axes: Axes, counts: dict[str, int]) -> None:
    counted = {int(exponent): count for exponent, count in counts.items()}
    exponents = range(min(counted, default=0), max(counted, default=0) + 1)
    names = [_time(2.0**exponent) for exponent in exponents]
    _bars(
        axes,
        "Messages' age",
        "since published, at least",
        names,
        [counted.get(exponent, 0) for exponent in exponents],
    )


def _time(milliseconds: float) -> str:
    """Format a power of two of milliseconds, as in `4ms`."""
    if milliseconds < 1:
        return f"{milliseconds * 1e3:.0f}µs"
    return f"{milliseconds:.0f}ms" if milliseconds < 1000 else f"{milliseconds / 1000:.0f}s"
