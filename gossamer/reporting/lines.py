"""Figures with curves: returns against steps, frames and seconds, and performance profiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from gossamer.reporting.captions import Drawn, intervals, over_environments, seeds, value
from gossamer.reporting.comparison import Comparison
from gossamer.reporting.curves import Along
from gossamer.reporting.measures import MeanCurve
from gossamer.reporting.profiles import Profile
from gossamer.reporting.style import GREY, Palette, count, figure, label_lines, text_width, value_ticks

THIN_POINTS = 500  # of the line of one run
NEAR = 0.5  # of the range of the curves: a threshold that is further away is not drawn
PROFILE_COLUMNS = 3
AXIS = {"steps": "environment steps", "frames": "emulator frames", "seconds": "training time, seconds"}


def alongs(comparison: Comparison, env: str) -> list[Along]:
    """Against what the curves of an environment are drawn. Frames have axes of their own where runs differ in the
    frames of a step, else a second scale above."""
    return ["steps", "frames", "seconds"] if len(_factors(comparison, env)) > 1 else ["steps", "seconds"]


def _factors(comparison: Comparison, env: str) -> set[int]:
    return {run.frames_per_step for run in comparison.runs if run.env == env}


def curves(
    comparison: Comparison,
    summary: Mapping[str, Any],
    means: Sequence[MeanCurve],
    palette: Palette,
    *,
    chosen: Sequence[Along] = (),
) -> Drawn:
    """A row of panels for each environment. `chosen`: what to draw against, if not against all of `alongs`."""
    scales = {env: chosen or alongs(comparison, env) for env in comparison.envs}
    columns = max(map(len, scales.values()))
    made = figure(3.7 * columns + text_width(palette.numbers) + 0.2, 2.6 * len(comparison.envs) + 0.4)
    grid = made.subplots(len(comparison.envs), columns, squeeze=False)
    goals = {each["env"]: each["threshold"] for each in summary["thresholds"]}
    for env, row in zip(comparison.envs, grid, strict=True):
        here = [mean for mean in means if mean.env == env]
        for axes, along in zip(row, scales[env], strict=False):
            _runs(axes, comparison, env, along, palette)
            _means(axes, [mean for mean in here if mean.along == along], palette)
            _along(axes, along, _factors(comparison, env))
            value_ticks(axes.yaxis)
            if env in goals and _is_near(axes, goals[env]):
                axes.axhline(goals[env], color=GREY, linestyle=":", linewidth=0.9)
        for axes in row[len(scales[env]) :]:
            axes.set_axis_off()
        row[0].set_ylabel(f"{env}: {value(summary)}")
    for env, row in zip(comparison.envs, grid, strict=True):  # when all axes have their places
        ends = {method.label: float(np.mean([run.curve.returns[-1] for run in runs]))
                for method, runs in comparison.groups(env)}  # fmt: skip
        label_lines(row[len(scales[env]) - 1], ends, palette)
    goal = " Dotted: the threshold, where curves come near it." if goals else ""
    what = "Mean return of the last 100 training episodes"
    if not comparison.of_returns:
        what = f"{value(summary)}, as it stands in rows of metrics"
    caption = (
        f"{what}. Thick lines: interquartile mean over seeds, until the first of them ends; thin lines: single seeds. "
        f"{intervals(summary, 'Bands')}. {seeds(summary)}.{goal}"
    )
    return Drawn("curves", "Learning curves", caption, made)


def _is_near(axes: Axes, goal: float) -> bool:
    """Whether a line at the goal leaves the curves that have been drawn most of the axes."""
    low, high = axes.dataLim.intervaly
    return bool(low - NEAR * (high - low) <= goal <= high + NEAR * (high - low))


def _runs(axes: Axes, comparison: Comparison, env: str, along: Along, palette: Palette) -> None:
    for method, runs in comparison.groups(env):
        for run in runs if len(runs) > 1 else ():  # a single one is the mean
            thin = run.curve.thinned(THIN_POINTS)
            factor = run.frames_per_step if along == "frames" else 1
            points = thin.seconds if along == "seconds" else thin.steps * factor
            colour = palette.colour(method.label)
            axes.plot(points, thin.returns, color=colour, linewidth=0.6, alpha=0.45, drawstyle="steps-post")


def _means(axes: Axes, means: Iterable[MeanCurve], palette: Palette) -> None:
    for mean in means:
        colour = palette.colour(mean.label)
        axes.plot(
            mean.points, mean.iqm, palette.dashes(mean.label), color=colour, linewidth=1.8, drawstyle="steps-post"
        )
        if mean.band is not None:
            axes.fill_between(
                mean.points, mean.band[0], mean.band[1], color=colour, alpha=0.18, linewidth=0, step="post"
            )


def _along(axes: Axes, along: Along, factors: set[int]) -> None:
    """The scale of steps, frames or seconds; above steps a second one in frames."""
    axes.set_xlabel(AXIS[along])
    axes.set_xlim(left=0)
    count(axes.xaxis, "{x:,g}" if along == "seconds" else None)
    if along == "steps" and len(factors) == 1 and factors != {1}:
        (factor,) = factors
        above = axes.secondary_xaxis("top", functions=(partial(np.multiply, factor), partial(np.multiply, 1 / factor)))
        count(above.xaxis)
        above.set_xlabel(AXIS["frames"])


def aggregated(summary: Mapping[str, Any], means: Sequence[MeanCurve], palette: Palette) -> Iterator[Drawn]:
    """One panel over several environments, human-normalised; none where there are no such means."""
    if not means:
        return
    made = figure(4.6 + text_width(palette.numbers), 3.2)
    axes = made.subplots()
    _means(axes, means, palette)
    _along(axes, "steps", {1})
    axes.axhline(1, color=GREY, linestyle=":", linewidth=0.9)
    axes.set_ylabel("human-normalised return, IQM")
    label_lines(axes, {mean.label: float(mean.iqm[-1]) for mean in means if len(mean.iqm)}, palette)
    envs, used = summary["aggregated_over"], over_environments(summary)
    caption = (
        f"Interquartile mean over the seeds of {len(envs)} environments ({', '.join(envs)}) of human-normalised "
        f"training returns: 0 is random play, 1 (dotted) a human ({summary['human_source']}). "
        f"{intervals(used, 'Bands')}. {seeds(used)}."
    )
    yield Drawn("aggregated-curves", "Learning curves over environments", caption, made)


def profiles(made: Sequence[Profile], summary: Mapping[str, Any], palette: Palette) -> Drawn:
    """Performance profiles: over environments where scores can be normalised, else one panel for each environment."""
    over: list[str] = summary["aggregated_over"]
    tasks = list(dict.fromkeys(profile.envs for profile in made))
    columns = min(PROFILE_COLUMNS, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    drawing = figure(3.9 * columns + text_width(palette.numbers) + 0.5, 2.6 * rows + 0.3)
    panels = drawing.subplots(rows, columns, squeeze=False, sharey=True)
    for axes, envs in zip(panels.flat, tasks, strict=False):
        _profiles(axes, [profile for profile in made if profile.envs == envs], palette)
        axes.set_xlabel("human-normalised score τ" if over else f"{envs[0]}: score τ")
        value_ticks(axes.xaxis)
    for axes in panels.flat[len(tasks) :]:
        axes.set_axis_off()
    panels[0, 0].set_ylabel("fraction of runs with score > τ")
    palette.legend(panels.flat[len(tasks) - 1])
    what = f"over {len(over)} environments" if over else "of each environment"
    used = over_environments(summary) if over else summary
    caption = (
        f"Performance profiles {what}: the fraction of runs whose score is above τ; higher is better. Score: "
        f"{summary['score']}. {intervals(used, 'Bands')}. {seeds(used)}."
    )
    return Drawn("profiles", "Performance profiles", caption, drawing)


def _profiles(axes: Axes, made: Sequence[Profile], palette: Palette) -> None:
    for each in made:
        colour, dashes = palette.colour(each.label), palette.dashes(each.label)
        axes.plot(each.points, each.fractions, dashes, color=colour, linewidth=1.6, drawstyle="steps-mid")
        if each.band is not None:
            low, high = each.band
            axes.fill_between(each.points, low, high, color=colour, alpha=0.15, linewidth=0, step="mid")
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlim(made[0].points[0], made[0].points[-1])
