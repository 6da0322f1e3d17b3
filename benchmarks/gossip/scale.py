"""Efficiency and staleness from 4 to 1,024 members of PALA, in virtual time."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from benchmarks.provenance import Results
from gossamer.tools.simulate import simulate

GRAPHS = ("ring", "exponential", "hierarchical")
BOUNDS = {"none": inf, "16": 16.0}  # name -> bound on staleness, iterations
LEARNERS = 8  # on each host
NETWORK = {"network": "1 Gb/s, 40 ms one way", "step_time": "30 ms", "message": "6.8 MB"}  # the defaults of `simulate`


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--most", type=int, default=1024, help="members of the largest simulation (default: 1024)")
    parser.add_argument("--iterations", type=int, default=60, help="of each member (default: 60)")


def measure(given: argparse.Namespace, results: Results) -> None:
    """`gossamer simulate pala` with its default network. Writes the figures after each simulation, then the plot."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for graph, bound, members in _cases(given.most):
        learners = min(LEARNERS, members // 2)
        shape = {"members": members, "learners": learners, "iterations": given.iterations}
        found = simulate(**shape, graph=graph, staleness=BOUNDS[bound])
        rows.append({"bound": bound, "graph": graph, **{name: found[name] for name in found["units"]}})
        print(rows[-1], flush=True)
        results.write({**NETWORK, "rows": rows})
    plot(rows, results.path.with_suffix(".png"))


def _cases(most: int) -> Iterator[tuple[str, str, int]]:
    """(graph, bound, members); the number of members increases by a factor of four."""
    for graph in GRAPHS:
        for bound in BOUNDS:
            members = 4
            while members <= most:
                yield graph, bound, members
                members *= 4


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Efficiency and staleness against the number of members, for each graph and bound."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    efficiency, staleness = figure.subplots(1, 2)
    for number, graph in enumerate(GRAPHS):
        for bound, style in zip(BOUNDS, ("-", "--"), strict=True):
            chosen = [row for row in rows if (row["graph"], row["bound"]) == (graph, bound)]
            label = f"{graph}, " + ("never waits" if bound == "none" else f"bound {bound}")
            look: dict[str, Any] = {"color": f"C{number}", "linestyle": style, "marker": "o", "label": label}
            members = [row["members"] for row in chosen]
            efficiency.plot(members, [row["efficiency"] for row in chosen], **look)
            staleness.plot(members, [row["staleness_max"] for row in chosen], **look)
    efficiency.set_ylim(0, 1.05)
    efficiency.set_ylabel("steps/s relative to members without exchange")
    staleness.set_ylabel("oldest averaged message (iterations)")
    efficiency.legend()
    for axes in (efficiency, staleness):
        axes.set_xscale("log", base=2)
        axes.set_xlabel(f"members, {LEARNERS} on each host")
        axes.grid(alpha=0.25)
    figure.savefig(path, dpi=140)
