"""The look of all figures: colours that colour-blind readers tell apart, direct labels, units on every axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Literal, TypeAlias

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import EngFormatter, MaxNLocator, ScalarFormatter

# Okabe and Ito 2008, "Color Universal Design"; without its yellow, which is too light for lines
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
Dashes: TypeAlias = Literal["-", "--", ":", "-."]
DASHES: tuple[Dashes, ...] = ("-", "--", ":", "-.")  # after each round of the colours
GREY = "#777777"
STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "font.size": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "svg.hashsalt": "gossamer",
    "pdf.fonttype": 42,  # text stays text
    "text.parse_math": False,  # a label with two $ is no formula
}
DPI = 200
LABEL_POINTS = 10.0  # between the baselines of two labels
SAMPLE_POINTS = 18.0  # length of a piece of a line beside its label


# Tol 2021, "light": for areas, so that no part of a whole has the colour of a method
AREAS = ("#77aadd", "#ee8866", "#eedd88", "#44bb99", "#ffaabb", "#99ddff", "#bbcc33", "#aaaa00")
REST = "#dddddd"


class Palette:
    """Colour and dashes of each method, the same in all figures."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.numbers = {label: number for number, label in enumerate(labels)}

    def colour(self, label: str) -> str:
        """The colour of a method."""
        return COLOURS[self.numbers[label] % len(COLOURS)]

    def dashes(self, label: str) -> Dashes:
        """The dashes of its lines."""
        return DASHES[self.numbers[label] // len(COLOURS) % len(DASHES)]

    @property
    def dashed(self) -> bool:
        """Whether colours alone do not tell the methods apart."""
        return len(self.numbers) > len(COLOURS)

    def legend(self, axes: Axes) -> None:
        """Name the lines right of the axes."""
        handles = [Line2D([], [], color=self.colour(label), linestyle=self.dashes(label)) for label in self.numbers]
        axes.legend(handles, list(self.numbers), loc="center left", bbox_to_anchor=(1.0, 0.5))


def text_width(texts: Iterable[str]) -> float:
    """Width of the longest of these labels, in inches."""
    font = FontProperties(size=STYLE["font.size"])
    return max((TextPath((0, 0), text, prop=font).get_extents().width / 72 for text in texts if text), default=0.0)


def figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def count(axis: Axis, form: str | None = None) -> None:
    """Ticks of a horizontal scale in round numbers; without `form` as 150k and 2M."""
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(form or EngFormatter(sep=""))


def value_ticks(axis: Axis) -> None:
    """Ticks of a scale of returns or scores as 17,500 and -0.50."""
    formatter = _Values(useOffset=False)
    formatter.set_scientific(False)
    axis.set_major_formatter(formatter)


class _Values(ScalarFormatter):
    """As many decimals as the ticks need, and commas between thousands."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        decimals = len(super().__call__(x, pos).partition(".")[2])
        return self.fix_minus(f"{x:,.{decimals}f}")


def label_lines(axes: Axes, ends: Mapping[str, float], palette: Palette) -> None:
    """Write each label right of the axes at the height at which its line ends, moved apart where they would overlap.
    A piece of the line stands before it where lines are dashed."""
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]  # fixes the scale
    low, high = (float(axes.transData.transform((0, end))[1]) for end in axes.get_ylim())
    gap = LABEL_POINTS * axes.figure.dpi / 72 / (high - low)
    heights = spread([float(axes.transData.transform((0, end))[1] - low) / (high - low) for end in ends.values()], gap)
    beside: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
    for label, height in zip(ends, heights, strict=True):
        colour, left = palette.colour(label), 5.0
        if palette.dashed:
            sample = {"arrowstyle": "-", "color": colour, "linestyle": palette.dashes(label), "linewidth": 1.4}
            sample |= {"shrinkA": 0, "shrinkB": left}
            axes.annotate("", (1.0, height), xytext=(left + SAMPLE_POINTS, 0), arrowprops=sample, **beside)
            left += SAMPLE_POINTS + 4
        axes.annotate(label, (1.0, height), xytext=(left, 0), color=colour, va="center", **beside)


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights in the same order that are at least `gap` apart, around the same mean, with as little change as that
    takes: groups that overlap are centred on their mean."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    groups: list[list[int]] = []
    for i in order:
        groups.append([i])
        while len(groups) > 1 and _bottom(groups[-1], heights, gap) < _top(groups[-2], heights, gap) + gap:
            groups[-2:] = [groups[-2] + groups[-1]]
    placed = dict[int, float]()
    for group in groups:
        bottom = _bottom(group, heights, gap)
        placed |= {i: bottom + gap * place for place, i in enumerate(group)}
    return [placed[i] for i in range(len(heights))]


def _bottom(group: Sequence[int], heights: Sequence[float], gap: float) -> float:
    return sum(heights[i] for i in group) / len(group) - gap * (len(group) - 1) / 2


def _top(group: Sequence[int], heights: Sequence[float], gap: float) -> float:
    return _bottom(group, heights, gap) + gap * (len(group) - 1)


def save(made: Figure, path: Path) -> None:
    """Write a figure to a .png or .pdf file."""
    undated = {"CreationDate": None} if path.suffix == ".pdf" else {}  # the same figure is the same file
    with mpl.rc_context(STYLE):
        made.savefig(path, dpi=DPI, metadata=undated)


def svg(made: Figure) -> str:
    """A figure as SVG, for a page."""
    file = StringIO()
    with mpl.rc_context(STYLE):
        made.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
