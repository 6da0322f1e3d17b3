"""The data of a report as rows for CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

from gossamer.reporting.measures import MeanCurve
from gossamer.reporting.profiles import Profile
from gossamer.reporting.statistics import Array
from gossamer.reporting.summary import Entry

OVER_ENVS = "(human-normalised, all)"  # in the place of an environment
DIRECT = ("scores", "aggregates", "improvement", "thresholds", "runs")  # lists of the summary that are tables already


def data(summary: Mapping[str, Any], means: Iterable[MeanCurve], profiles: Iterable[Profile]) -> dict[str, list[Entry]]:
    """Name of a table -> its rows; none without any. `summary`: the result of `reporting.summary`."""
    made = {name: list(summary[name]) for name in DIRECT}
    made |= {"speed": list(_speed(summary)), "settings": list(_settings(summary))}
    made |= {"curves": list(_curves(means)), "profiles": list(_profiles(profiles))}
    return {name: rows for name, rows in made.items() if rows}


def to_csv(entries: Sequence[Entry]) -> str:
    """Entries as CSV, without those of their fields that are lists or objects. An unknown number is an empty cell."""
    kept = [{name: v for name, v in entry.items() if not isinstance(v, list | dict)} for entry in entries]
    columns = dict.fromkeys(name for entry in kept for name in entry)
    text = StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(kept)
    return text.getvalue()


def _speed(summary: Mapping[str, Any]) -> Iterator[Entry]:
    """Throughput, staleness and a column for each part of the members' time."""
    for entry in summary["speed"]:
        yield entry | {f"share_{part}": share for part, share in entry["shares"].items()}


def _settings(summary: Mapping[str, Any]) -> Iterator[Entry]:
    """A row for each option that differs and each method that has it."""
    for option, values in summary["settings"].items():
        for method, value in values.items():
            if value:
                yield {"option": option, "method": method, "value": value}


def _curves(means: Iterable[MeanCurve]) -> Iterator[Entry]:
    """A row for each point of each mean curve."""
    for mean in means:
        what: Entry = {"env": mean.env or OVER_ENVS, "method": mean.label, "runs": mean.runs, "along": mean.along}
        yield from (what | row for row in _points("at", mean.points, "iqm", mean.iqm, mean.band))


def _profiles(profiles: Iterable[Profile]) -> Iterator[Entry]:
    """A row for each point of each performance profile."""
    for each in profiles:
        env = each.envs[0] if len(each.envs) == 1 else OVER_ENVS
        what: Entry = {"env": env, "method": each.label, "runs": each.runs}
        yield from (what | row for row in _points("score_above", each.points, "fraction", each.fractions, each.band))


def _points(at: str, points: Array, name: str, values: Array, band: Array | None) -> Iterator[Entry]:
    """Points with their values and, where there are any, intervals. [K], [K], [2, K]"""
    for place, (point, value) in enumerate(zip(points.tolist(), values.tolist(), strict=True)):
        low, high = (None, None) if band is None else band[:, place].tolist()
        yield {at: point, name: value, f"{name}_low": low, f"{name}_high": high}
