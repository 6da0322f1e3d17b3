"""Learner utilisation, steps/s and policy lag of IMPALA from 1 to 1,000 actors, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.provenance import Results
from gossamer.tools.simulate import simulate

ACTORS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
BANDWIDTHS = ("1Gb/s", "10Gb/s")
REUSES, LEARNERS = (1, 2), (1, 2)
CURVES = {  # figure -> (label of the axis, its scale)
    "utilisation": ("learners update, fraction of their time", "linear"),
    "learned": ("steps/s learned, each step counted once", "log"),
    "lag_mean": ("policy lag, mean (optimizer steps)", "linear"),
}


def measure(results: Results, most: int, batches: int) -> None:
    """`gossamer simulate impala` with its default options otherwise. Writes the figures after each simulation, and the
    plot at the end. `most`: actors of the largest simulation; `batches`: of each learner."""
    rows: list[dict[str, Any]] = []
    for varied in cases(most):
        found = simulate("impala", batches=batches, **varied)
        rows.append({**varied, **{key: found[key] for key in (*found["units"], "bound_by")}})
        print(rows[-1], flush=True)
        results.write({"scenario": found["scenario"], "units": found["units"], "rows": rows})
    plot(rows, results.path.with_suffix(".png"))


def cases(most: int) -> Iterator[dict[str, Any]]:
    """The options that vary, from few actors to many. A learner needs an actor."""
    for actors in ACTORS:
        for learners in LEARNERS:
            for reuse in REUSES:
                for bandwidth in BANDWIDTHS:
                    if learners <= actors <= most:
                        yield {"actors": actors, "learners": learners, "reuse": reuse, "bandwidth": bandwidth}


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Each figure against the number of actors: a column for each figure, a row for each number of learners."""
    figure = Figure(figsize=(12, 6.8), layout="constrained")
    grid = figure.subplots(len(LEARNERS), len(CURVES), sharex=True, sharey="col")
    for across, learners in zip(grid, LEARNERS, strict=True):
        for axes, (key, (label, scale)) in zip(across, CURVES.items(), strict=True):
            _curves(axes, [row for row in rows if row["learners"] == learners], key)
            axes.set(xscale="log", yscale=scale, xlabel="actors, 8 on each host", ylabel=label)
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.set_title(f"{learners} learner{'s' * (learners > 1)}", loc="left", fontsize=10)
            axes.grid(alpha=0.25)
        across[0].set_ylim(0, 1.05)
        across[1].yaxis.set_major_formatter("{x:,.0f}")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=9)
    figure.savefig(path, dpi=120)


def _curves(axes: Axes, rows: Sequence[dict[str, Any]], key: str) -> None:
    for number, bandwidth in enumerate(BANDWIDTHS):
        for reuse, style in zip(REUSES, ("-", "--"), strict=True):
            chosen = [row for row in rows if (row["bandwidth"], row["reuse"]) == (bandwidth, reuse)]
            look: dict[str, Any] = {"color": f"C{number}", "linestyle": style, "marker": ".", "markersize": 5}
            label = f"{bandwidth}, {'one pass' if reuse == 1 else f'{reuse} passes'} over each batch"
            axes.plot([row["actors"] for row in chosen], [row[key] for row in chosen], label=label, **look)
