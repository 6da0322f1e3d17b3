"""Updates/s, staleness and dropped gradients of Gorila from 1 to 256 bundles, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.provenance import Results
from gossamer.tools.simulate import simulate

BUNDLES = (1, 2, 5, 10, 20, 50, 100, 256)
BANDWIDTHS = ("1Gb/s", "10Gb/s")
SHARDS = (1, 10)
LIMITS = (0, 2, 5, 10, 20, 50, 100)  # --max-delay
LIMITED = (5, 20, 50)  # bundles that limits are simulated with, with most shards
NO_LIMIT = 10**9


def measure(folder: Path, most: int, iterations: int) -> None:
    """`gossamer simulate gorila` with its default options otherwise. Writes the figures after each simulation, and the
    plot at the end. `most`: bundles of the largest simulation; `iterations`: gradients of each bundle."""
    results, rows = Results("gorila-simulated", folder), list[dict[str, Any]]()
    for varied in cases(most):
        found = simulate("gorila", iterations=iterations, **varied)
        rows.append({**varied, **{key: found[key] for key in (*found["units"], "bound_by")}})
        print(rows[-1], flush=True)
        results.write({"scenario": found["scenario"], "units": found["units"], "rows": rows})
    plot(rows, results.path.with_suffix(".png"))


def cases(most: int) -> Iterator[dict[str, Any]]:
    """The options that vary, from few bundles to many: without a limit on staleness, then with limits."""
    there = [bundles for bundles in BUNDLES if bundles <= most]
    for bundles in there:
        for shards in SHARDS:
            for bandwidth in BANDWIDTHS:
                yield {"bundles": bundles, "shards": shards, "bandwidth": bandwidth, "max_delay": NO_LIMIT}
    for bundles in LIMITED:
        for bandwidth in BANDWIDTHS if bundles in there else ():
            for limit in LIMITS:
                yield {"bundles": bundles, "shards": SHARDS[-1], "bandwidth": bandwidth, "max_delay": limit}


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Updates and staleness against the number of bundles, and dropped gradients against the limit."""
    figure = Figure(figsize=(12, 4), layout="constrained")
    rates, ages, drops = figure.subplots(1, 3)
    free = [row for row in rows if row["max_delay"] == NO_LIMIT]
    _curves(rates, free, "updates")
    _curves(ages, free, "lag_mean")
    _limits(drops, [row for row in rows if row["max_delay"] != NO_LIMIT])
    rates.set(ylabel="updates/s of the parameters", yscale="log", ylim=(1, None))
    rates.yaxis.set_major_formatter("{x:,.0f}")
    ages.set(ylabel="staleness, mean (updates)")
    for axes in (rates, ages):
        axes.set(xscale="log", xlabel="bundles")
        axes.xaxis.set_major_formatter("{x:,.0f}")
    for axes in (rates, ages, drops):
        axes.grid(alpha=0.25)
    figure.legend(*rates.get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=9)
    figure.savefig(path, dpi=120)


def _curves(axes: Axes, rows: Sequence[dict[str, Any]], key: str) -> None:
    for number, bandwidth in enumerate(BANDWIDTHS):
        for shards, style in zip(SHARDS, ("--", "-"), strict=True):
            chosen = [row for row in rows if (row["bandwidth"], row["shards"]) == (bandwidth, shards)]
            look: dict[str, Any] = {"color": f"C{number}", "linestyle": style, "marker": ".", "markersize": 5}
            label = f"{bandwidth}, {shards} shard{'s' * (shards > 1)}"
            axes.plot([row["bundles"] for row in chosen], [row[key] for row in chosen], label=label, **look)


def _limits(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    for number, bundles in enumerate(LIMITED, 2):
        for bandwidth, style in zip(BANDWIDTHS, (".--", ".-"), strict=True):
            chosen = [row for row in rows if (row["bundles"], row["bandwidth"]) == (bundles, bandwidth)]
            dropped = [100 * row["dropped"] for row in chosen]
            label = f"{bundles} bundles, {bandwidth}"
            axes.plot([row["max_delay"] for row in chosen], dropped, style, color=f"C{number}", label=label)
    axes.set(xlabel="--max-delay (updates)", ylabel="dropped gradients, %", ylim=(-2, 102))
    axes.set_title(f"{SHARDS[-1]} shards", loc="left", fontsize=10)
    axes.legend(fontsize=9)
