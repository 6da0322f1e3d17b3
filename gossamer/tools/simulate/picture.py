"""The plot of a simulation: panels side by side, such as shares of time, histograms and curves over virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gossamer.data import Array
from gossamer.diagnostics.plots import BARS, BLUE, GREEN, GREY, ORANGE, STYLE
from gossamer.storage.files import atomic_write

POINTS = 60  # maximum number of points of a curve
CRASHES = 50  # if there are more crashes, none is drawn


class Panel(Protocol):
    """A part of the plot."""

    def draw(self, axes: Axes) -> None: ...


def draw(path: Path, title: str, panels: Sequence[Panel]) -> None:
    """Write the plot to `path`. An existing file is replaced when the plot is complete."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12, 3.8), dpi=120, layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
            panel.draw(axes)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        atomic_write(path, lambda beside: figure.savefig(beside, format="png"))


@dataclass(frozen=True)
class Shares:
    """Stacked bars: what each sort of workers did, in % of its time."""

    title: str
    rows: Mapping[str, Mapping[str, str]]  # sort of workers -> figures, from left to right, with their labels
    figures: Mapping[str, float]

    def draw(self, axes: Axes) -> None:
        axes.set_title(self.title)
        for y, parts in enumerate(self.rows.values()):
            left = 0.0
            for (key, label), colour in zip(parts.items(), (BLUE, ORANGE, GREY, GREEN), strict=False):
                width = 100 * self.figures[key]
                axes.barh(y, width, left=left, color=colour, height=0.5)
                if width > 12:
                    text = f"{label}\n{width:.0f}%"
                    axes.annotate(text, (left + width / 2, y), ha="center", va="center", color="white", size=8)
                left += width
        axes.set_yticks(range(len(self.rows)), list(self.rows))
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of their time")
        axes.grid(axis="y", visible=False)


@dataclass(frozen=True)
class Histogram:
    """A histogram of lags, with their bound."""

    title: str
    counts: Mapping[str, int]  # lag -> rollouts, gradients or messages
    xlabel: str
    ylabel: str
    bound: float
    label: str  # of the bound

    def draw(self, axes: Axes) -> None:
        lags, total = {int(lag): count for lag, count in self.counts.items()}, sum(self.counts.values())
        width = -(-(max(lags) + 1) // BARS)
        bars = np.zeros(max(lags) // width + 1)
        for lag, count in lags.items():
            bars[lag // width] += 100 * count / total
        axes.set_title(self.title)
        axes.bar((np.arange(len(bars)) + 0.5) * width - 0.5, bars, width=0.9 * width, color=BLUE)
        axes.axvline(self.bound, color=ORANGE, linestyle="--", linewidth=1, label=self.label)
        axes.set_xlabel(self.xlabel)
        axes.set_ylabel(self.ylabel)
        axes.grid(axis="x", visible=False)
        axes.legend(loc="best")


@dataclass(frozen=True)
class Curve:
    """Values over virtual time. NaN marks unknown values."""

    values: Array  # [N]
    label: str = ""
    colour: str = BLUE
    dots: bool = False
    width: float = 1.4


@dataclass(frozen=True)
class OverTime:
    """Curves over virtual time."""

    title: str
    ylabel: str
    seconds: Array  # [N] ends of the intervals of all curves
    curves: Sequence[Curve]
    top: float | None = None  # the axis runs from 0 to this
    logarithmic: bool = False  # whether the axis is, if a value is positive
    percent: bool = False  # whether the axis has percent signs
    bound: float = np.inf  # drawn as a line, if finite
    crashes: Sequence[tuple[float, str]] = ()  # (virtual second, host)
    warm_up: float = 0.0  # virtual seconds, shaded
    beside: Beside | None = None

    def draw(self, axes: Axes) -> None:
        axes.set_title(self.title)
        axes.set_ylabel(self.ylabel, color=self.curves[0].colour if self.beside else "black")
        for curve in self.curves:
            look: dict[str, Any] = {"marker": ".", "markersize": 4} if curve.dots else {}
            look |= {"color": curve.colour, "linewidth": curve.width, "label": curve.label or None}
            axes.plot(self.seconds, curve.values, **look)
        self._scale(axes)
        if np.isfinite(self.bound):
            axes.axhline(self.bound, color=ORANGE, linestyle="--", linewidth=1, label="bound")
        if any(curve.label for curve in self.curves):
            axes.legend(loc="best")
        self._events(axes)
        if self.beside:
            self.beside.draw(axes.twinx())

    def _scale(self, axes: Axes) -> None:
        if self.top is not None:
            axes.set_ylim(0, self.top)
        if self.logarithmic:
            if max(np.nan_to_num(curve.values).max() for curve in self.curves) <= 0:
                return
            axes.set_yscale("log", nonpositive="mask")
        if self.percent:
            axes.yaxis.set_major_formatter("{x:g}%")

    def _events(self, axes: Axes) -> None:
        """The warm-up and crashes, and what the label says of them."""
        crashes = self.crashes if len(self.crashes) <= CRASHES else ()
        notes = [note for note, here in (("dotted: crashes", crashes), ("shaded: warm-up", self.warm_up)) if here]
        axes.set_xlabel("virtual time, s" + (f" ({', '.join(notes)})" if notes else ""))
        axes.set_xlim(0, self.seconds[-1])
        for when, _ in crashes:
            axes.axvline(when, color=ORANGE, linestyle=":", linewidth=0.8)
        if self.warm_up:
            axes.axvspan(0, self.warm_up, color=GREY, alpha=0.15, linewidth=0)


@dataclass(frozen=True)
class Beside:
    """Points with an axis of their own, on the right."""

    ylabel: str
    points: Sequence[tuple[float, float]] = ()  # (virtual second, value)

    def draw(self, axes: Axes) -> None:
        seconds, values = (np.array(each, float) for each in zip(*self.points, strict=True))
        axes.plot(seconds, values, ".", color=ORANGE, markersize=3)
        axes.set_ylim(0, max(1.0, values.max() * 1.1))
        axes.set_ylabel(self.ylabel, color=ORANGE)
        axes.grid(visible=False)
