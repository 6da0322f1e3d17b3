"""Time and bytes until members that begin apart are near each other, for each way of exchanging, in virtual time."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.provenance import Results
from gossamer.tools.simulate import simulate

DISTANCE = 0.1  # of the farthest member, relative to the norm of the mean; members begin about as far as its norm
LEARNERS = 8  # on each host
LONGER = 5  # times as many iterations where hosts die
MIDDLE: Mapping[str, Any] = {"members": 64, "bandwidth": "1Gb/s", "latency": "10ms", "crash_rate": "0/h"}
VARIED: Mapping[str, Sequence[Any]] = {  # each while the others stay in the middle
    "members": (4, 16, 64, 256, 1024),
    "bandwidth": ("10Mb/s", "100Mb/s", "1Gb/s", "10Gb/s"),
    "latency": ("1ms", "10ms", "100ms"),
    "crash_rate": ("0/h", "60/h", "240/h"),
}
MOST_COMPLETE = 64  # members that send to all others: the messages of more take too long to simulate
ROTATION = {"select": "rotation", "share": 1 / 16, "interval": 1}
WAYS: Mapping[str, Mapping[str, Any]] = {  # after every 4th step, unless they say otherwise
    "all parameters": {},
    "int8, error feedback": {"message_format": "int8", "error_feedback": True},
    "rotation, 1/16 at each step": ROTATION,
    "rotation, 1/16 at each step, int8": {**ROTATION, "message_format": "int8", "error_feedback": True},
    "largest changes, 1/16": {"select": "changed", "share": 1 / 16, "graph": "complete"},
    "every 16th step": {"interval": 16, "staleness": 64.0},
    "staleness decay 0.5": {"staleness_decay": 0.5},
    "outer momentum 0.5": {"outer_momentum": 0.5, "outer_learning_rate": 0.7},
}
FIGURES = {"seconds_to_distance": "virtual seconds", "bytes_to_distance": "bytes sent by each member"}
KEPT = ("crashes_to_distance", "crashes", "efficiency", "seconds")  # besides


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--graph", default="one-peer", help="communication graph (default: %(default)s)")
    parser.add_argument("--most", type=int, default=1024, help="members of the largest simulation (default: 1024)")
    parser.add_argument(
        "--iterations",
        type=int,
        default=400,
        help="of each member, at most (default: 400; five times as many where hosts die)",
    )


def measure(given: argparse.Namespace, results: Results) -> None:
    """Writes the figures after each simulation, and goes on with those that the file lacks; then the plot."""
    torch.set_num_threads(1)
    settings = {
        **{"graph": given.graph, "iterations": given.iterations, "distance": DISTANCE, "learners": LEARNERS},
        "times_iterations_with_crashes": LONGER,
    }
    rows = known(results.path, settings)
    done, commit = {key(row) for row in rows}, results.origin["commit"]
    for way, scenario in cases(given.most):
        row: dict[str, Any] = {"way": way, **scenario}
        if key(row) in done:
            continue
        learners = min(LEARNERS, scenario["members"] // 2)
        found = simulate(
            **{"graph": given.graph, **scenario, **WAYS[way]},
            learners=learners,
            iterations=iterations(scenario, given.iterations),
            to_distance=DISTANCE,
        )
        rows.append({**row, **{name: found[name] for name in (*FIGURES, *KEPT)}, "commit": commit})
        print(rows[-1], flush=True)
        results.write({"settings": settings, "ways": WAYS, "rows": rows})
    plot(rows, results.path.with_suffix(".png"))


def cases(most: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(way, scenario) without duplicates."""
    for name, values in VARIED.items():
        for value in values:
            scenario = {**MIDDLE, name: value}
            if scenario["members"] > most or (value == MIDDLE[name] and name != "members"):
                continue
            for way, options in WAYS.items():
                if options.get("graph") != "complete" or scenario["members"] <= MOST_COMPLETE:
                    yield way, scenario


def iterations(scenario: Mapping[str, Any], usual: int) -> int:
    """Of each member, at most: more where hosts die, so that others are still there when one comes back."""
    return usual * (LONGER if scenario["crash_rate"] != MIDDLE["crash_rate"] else 1)


def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What identifies a row."""
    return (row["way"], *(row[name] for name in MIDDLE))


def known(path: Path, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows that the file has with these settings."""
    if not path.exists():
        return []
    figures = json.loads(path.read_text())["figures"]
    return list(figures["rows"]) if figures["settings"] == settings else []


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Time above bytes, against each option that varies; no point where members did not come near enough."""
    figure = Figure(figsize=(14, 7), layout="constrained")
    grid = figure.subplots(len(FIGURES), len(VARIED), sharey="row", sharex="col")
    for across, (name, label) in zip(grid, FIGURES.items(), strict=True):
        for axes, varied in zip(across, VARIED, strict=True):
            _curves(axes, rows, varied, name)
        across[0].set_ylabel(f"{label} to {DISTANCE:.0%}")
    for axes, varied in zip(grid[-1], VARIED, strict=True):
        axes.set_xlabel({"members": "members", "crash_rate": "crashes of each host"}.get(varied, varied))
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=9)
    figure.savefig(path, dpi=120)


def _curves(axes: Axes, rows: Sequence[dict[str, Any]], varied: str, figure: str) -> None:
    fixed = {name: value for name, value in MIDDLE.items() if name != varied}
    for number, way in enumerate(WAYS):
        there = [row for row in rows if row["way"] == way and all(row[name] == value for name, value in fixed.items())]
        order = [value for value in VARIED[varied] if any(row[varied] == value for row in there)]
        found = [next(row for row in there if row[varied] == value)[figure] for value in order]
        places = [VARIED[varied].index(value) for value in order]
        values = [float("nan") if value is None else value for value in found]
        axes.plot(places, values, color=f"C{number}", marker="o", markersize=4, label=way)
    axes.set_xticks(range(len(VARIED[varied])), [str(value) for value in VARIED[varied]])
    axes.set_yscale("log")
    axes.grid(alpha=0.25)
