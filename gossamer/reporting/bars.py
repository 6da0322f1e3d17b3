"""Figures with a line for each method: scores, aggregates, probability of improvement, thresholds and speed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from gossamer.reporting.captions import Drawn, in_training, intervals, over_environments, over_pairs, seeds, value
from gossamer.reporting.comparison import Comparison
from gossamer.reporting.measures import Scores
from gossamer.reporting.style import AREAS, GREY, REST, Palette, count, figure, text_width, value_ticks

LINE = 0.24  # inches of height for each line of labels
WIDE = 1.8  # inches: panels with longer labels stand below each other
AGGREGATES = {"median": "median", "iqm": "IQM", "mean": "mean", "optimality_gap": "optimality gap"}


def scores(comparison: Comparison, measured: Scores, summary: Mapping[str, Any], palette: Palette) -> Drawn:
    """A panel for each environment: seeds, interquartile mean and interval."""
    labels = [method.label for method in comparison.methods]
    made, panels = _panels(len(comparison.envs), len(labels), labels)
    for axes, env in zip(panels, comparison.envs, strict=True):
        entries = [each for each in summary["scores"] if each["env"] == env]
        _rows(axes, [each["method"] for each in entries], palette)
        for row, (entry, (_, runs)) in enumerate(zip(entries, comparison.groups(env), strict=True)):
            colour = palette.colour(entry["method"])
            axes.plot(measured.of(runs), [row] * len(runs), "o", color=colour, alpha=0.4, markersize=4, mew=0)
            _interval(axes, row, entry, "iqm", colour)
        axes.set_xlabel(f"{env}: score")
        value_ticks(axes.xaxis)
    ends = [f"{comparison.end(env):,}" + f" ({env})" * (len(comparison.envs) > 1) for env in comparison.envs]
    at = f" at {', '.join(ends)} steps" if measured.of_training else ""
    caption = (
        f"Scores: {summary['score']}{at}. Bars: interquartile mean; dots: seeds. "
        f"{intervals(summary, 'Lines')}. {seeds(summary)}."
    )
    return Drawn("scores", "Scores", caption, made)


def aggregates(summary: Mapping[str, Any], palette: Palette) -> Iterator[Drawn]:
    """Median, interquartile mean, mean and optimality gap over environments; none with fewer than two."""
    if not summary["aggregates"]:
        return
    labels = _methods(summary["aggregates"])
    made, panels = _panels(len(AGGREGATES), len(labels), labels, width=2.1, each=False)
    for axes, (name, title) in zip(panels, AGGREGATES.items(), strict=True):
        _rows(axes, labels if axes is panels[0] else [], palette)
        for row, entry in enumerate(summary["aggregates"]):
            _interval(axes, row, entry, name, palette.colour(entry["method"]))
        axes.set_title(title)
        axes.set_ylim(len(summary["aggregates"]) - 0.5, -0.5)
    made.supxlabel("human-normalised score", fontsize=8.5)
    envs, used = summary["aggregated_over"], over_environments(summary)
    caption = (
        f"Human-normalised scores over {len(envs)} environments ({', '.join(envs)}); of the optimality gap less is "
        f"better. {summary['human_source']}. {intervals(used, 'Lines')}. {seeds(used)}."
    )
    yield Drawn("aggregates", "Aggregate scores", caption, made)


def improvement(summary: Mapping[str, Any], palette: Palette) -> Iterator[Drawn]:
    """How probably a run of one method scores higher than one of another; none with a single method."""
    pairs = summary["improvement"]
    if not pairs:
        return
    labels = [f"{entry['first']}\n> {entry['second']}" for entry in pairs]
    made, (axes,) = _panels(1, 2 * len(pairs), "\n".join(labels).splitlines(), width=3.9)
    for row, entry in enumerate(pairs):
        _interval(axes, row, entry, "probability", palette.colour(entry["first"]), low="low", high="high")
    axes.set_yticks(range(len(pairs)), labels)
    axes.set_ylim(len(pairs) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.axvline(0.5, color=GREY, linestyle=":", linewidth=0.9)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("probability that a run of X scores higher than one of Y (X > Y)")
    used = over_pairs(summary)
    caption = (
        f"Probability of improvement (ties count half), averaged over the environments that both have. Score: "
        f"{summary['score']}. {intervals(used, 'Lines')}. {seeds(used)}."
    )
    yield Drawn("improvement", "Probability of improvement", caption, made)


def thresholds(summary: Mapping[str, Any], palette: Palette) -> Iterator[Drawn]:
    """Steps and seconds to the threshold of each environment; none where no run reached one."""
    envs = dict.fromkeys(each["env"] for each in summary["thresholds"] if each["reached"])
    if not envs:
        return
    most = max(sum(each["env"] == env for each in summary["thresholds"]) for env in envs)
    labels = [_with_reached(entry) for entry in summary["thresholds"]]
    made, panels = _panels(2 * len(envs), most, labels)
    for axes, (env, what) in zip(panels, ((env, what) for env in envs for what in ("steps", "seconds")), strict=True):
        entries = [each for each in summary["thresholds"] if each["env"] == env]
        _rows(axes, list(map(_with_reached, entries)), palette, _methods(entries))
        for row, entry in enumerate(entries):
            _reached(axes, row, entry, what, palette.colour(entry["method"]))
        axes.set_xlabel(f"{env}: {what} to a {value(summary)} of {entries[0]['threshold']:g}")
        axes.set_xlim(left=0)
        count(axes.xaxis, "{x:,g}" if what == "seconds" else None)
    caption = (
        f"Steps and seconds until the {in_training(summary)} first reached the threshold. Bars: median "
        "over seeds, drawn where more than half of them reached it; dots: seeds that reached it, of all (n/m). "
        f"{intervals(summary, 'Lines')}; no line where its upper end is never. {seeds(summary)}."
    )
    yield Drawn("thresholds", "Steps and seconds to a threshold", caption, made)


def speed(comparison: Comparison, summary: Mapping[str, Any], palette: Palette) -> Drawn:
    """Steps per second, and what the members' time went into."""
    names = [_with_env(entry, comparison) for entry in summary["speed"]]
    made, (rates, times) = _panels(2, len(names), names, width=3.4, each=False)
    _rows(rates, names, palette, _methods(summary["speed"]))
    _rows(times, [], palette)
    parts = sorted({part for entry in summary["speed"] for part in entry["shares"]} - {"other"})
    shades = {part: AREAS[number % len(AREAS)] for number, part in enumerate(parts)} | {"other": REST}
    for row, entry in enumerate(summary["speed"]):
        values = entry["steps_per_second_of_runs"]
        colour = palette.colour(entry["method"])
        rates.plot(values, [row] * len(values), "o", color=colour, alpha=0.4, markersize=4, mew=0)
        rates.plot([entry["steps_per_second"]], [row], "|", color=colour, markersize=13, markeredgewidth=2.4)
        _stack(times, row, entry["shares"], shades)
    rates.set_xlim(left=0)
    rates.set_xlabel("environment steps per second")
    count(rates.xaxis)
    times.set(xlim=(0, 1), ylim=rates.get_ylim(), xlabel="share of the members' time")
    times.xaxis.set_major_formatter(PercentFormatter(1))
    made.legend(
        [_patch(colour) for colour in shades.values()],
        [part.replace("_", " ") for part in shades],
        loc="outside lower center",
        ncols=min(6, len(shades)),
    )
    caption = (
        "Left: steps per second of whole trainings; bars: median over seeds, dots: seeds (no intervals). Right: what "
        f"the members' time went into, the mean over seeds. {seeds(summary)}. "
        f"Machines: {'; '.join(summary['machines'])}."
    )
    return Drawn("speed", "Throughput and time", caption, made)


def _panels(
    number: int, lines: int, labels: Sequence[str], *, width: float = 3.1, each: bool = True
) -> tuple[Any, Sequence[Axes]]:
    """A figure with panels of this width, high enough for so many lines of labels; two in a row if there are many.
    `each`: labels stand left of each panel, and not of the first one only."""
    room = text_width(labels)
    columns = min(number, (1 if room > WIDE else 2) if each else number)
    rows = math.ceil(number / columns)
    made = figure(width * columns + room * (columns if each else 1) + 0.5, (LINE * lines + 0.75) * rows)
    panels = list(made.subplots(rows, columns, squeeze=False).flat)
    for axes in panels:
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    for axes in panels[number:]:
        axes.set_axis_off()
    return made, panels[:number]


def _with_reached(entry: Mapping[str, Any]) -> str:
    return f"{entry['method']} ({entry['reached']}/{entry['runs']})"


def _methods(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    return [entry["method"] for entry in entries]


def _rows(axes: Axes, names: Sequence[str], palette: Palette, methods: Sequence[str] | None = None) -> None:
    """A line for each name, from top to bottom, in its method's colour."""
    axes.set_yticks(range(len(names)), names)
    if names:
        axes.set_ylim(len(names) - 0.5, -0.5)
    for text, method in zip(axes.get_yticklabels(), methods or names, strict=True):
        text.set_color(palette.colour(method))
    axes.tick_params(axis="y", length=0)


def _interval(
    axes: Axes, row: int, entry: Mapping[str, Any], name: str, colour: str, low: str = "", high: str = ""
) -> None:
    """A bar at the estimate and a line over its interval, where there is one."""
    ends = [entry[low or f"{name}_low"], entry[high or f"{name}_high"]]
    if None not in ends:
        axes.plot(ends, [row, row], color=colour, linewidth=5, alpha=0.3, solid_capstyle="butt")
    axes.plot([entry[name]], [row], "|", color=colour, markersize=13, markeredgewidth=2.4)


def _reached(axes: Axes, row: int, entry: Mapping[str, Any], what: str, colour: str) -> None:
    known = [value for value in entry[f"{what}_of_runs"] if value is not None]
    axes.plot(known, [row] * len(known), "o", color=colour, alpha=0.4, markersize=4, mew=0)
    if entry[what] is not None:
        _interval(axes, row, entry, what, colour)


def _with_env(entry: Mapping[str, Any], comparison: Comparison) -> str:
    return str(entry["method"]) if len(comparison.envs) == 1 else f"{entry['method']}, {entry['env']}"


def _stack(axes: Axes, row: int, shares: Mapping[str, float], shades: Mapping[str, str]) -> None:
    left = 0.0
    for part in (part for part in shades if part in shares):
        axes.barh(row, shares[part], left=left, color=shades[part], height=0.6)
        left += shares[part]


def _patch(colour: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=colour)
