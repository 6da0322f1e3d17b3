"""Parallel Sarsa on MountainCar-v0: episodes to a mean return of -120, and bytes sent, by the number of learners.

    .venv/bin/python -m benchmarks.sarsa   # about 20 minutes on two cores

Each run of `gossamer train sarsa --env MountainCar-v0` ends when the mean return of the last 100 episodes of all
learners reaches -120. It exchanges the 0.1 of its parameters that have changed most, or all of them (`--share 1`),
after every 16th update. One learner is `paac` with `sarsa-lambda` and one environment. Only episodes, steps and bytes
are counted, so the machine may be busy. Writes `mountain-car-sarsa.json` after each run, and a plot:

* `episodes`: of all learners together, until the end; `steps`: likewise.
* `medians`: over the seeds; of an even number the higher of the two in the middle, so of two seeds the worse one.
* `sent_bytes`: of the parameters, and of the indices with `--share 0.1`, in all messages, 4 bytes each.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gossamer
from benchmarks.provenance import Results, add_out

LEARNERS, SHARES, GOAL = (1, 2, 4, 8), (0.1, 1.0), -120.0
KEYS = ("episodes", "steps", "sent_bytes")


def measured(learners: int, share: float, seed: int, steps: int) -> dict[str, Any]:
    """One run."""
    options: dict[str, Any] = {"env": "MountainCar-v0", "seed": seed, "steps": steps, "log": "none"}
    alone: dict[str, Any] = {"architecture": "paac", "algorithm": "sarsa-lambda", "num_envs": 1}
    many: dict[str, Any] = {"architecture": "sarsa", "learners": learners, "share": share}
    with TemporaryDirectory() as folder:
        run = gossamer.train(
            **(alone if learners == 1 else many), **options, stop_at_return=GOAL, run_dir=Path(folder) / "run"
        )
        found = run.result
        traffic = {} if learners == 1 else json.loads((run.directory / "gossip.json").read_text())["traffic"]
    reached = found["mean_return"] is not None and found["mean_return"] >= GOAL
    return {
        "learners": learners,
        "share": share,
        "seed": seed,
        "reached": reached,
        "episodes": found["episodes"],
        "steps": found["steps"],
        "sent_bytes": traffic.get("sent_bytes", 0),
    }


def cases(learners: Sequence[int]) -> Iterator[tuple[int, float]]:
    """Numbers of learners and shares. A single learner sends nothing."""
    yield from ((count, share) for count in learners for share in SHARES if count > 1 or share == SHARES[0])


def medians(rows: Sequence[dict[str, Any]], learners: int, share: float, key: str) -> float | None:
    """The median over seeds, of an even number the higher one; a run that has not reached the goal counts as larger
    than all others. None: no runs, or the median did not reach it."""
    chosen = [row for row in rows if row["learners"] == learners and (row["share"] == share or learners == 1)]
    values = [row[key] if row["reached"] else float("inf") for row in chosen]
    middle = statistics.median_high(values) if values else float("inf")
    return None if middle == float("inf") else middle


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Episodes of each learner, and bytes, against the number of learners."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    episodes, sent = figure.subplots(1, 2)
    there = sorted({row["learners"] for row in rows})
    for number, share in enumerate(SHARES):
        label = "all parameters" if share == 1 else f"share {share:g}, changed most"
        _line(episodes, rows, there, share, f"C{number}", label)
        counts = [count for count in there if count > 1 and medians(rows, count, share, "sent_bytes")]
        values = [(medians(rows, count, share, "sent_bytes") or 0) / 1e6 for count in counts]
        sent.plot(counts, values, color=f"C{number}", marker="o", label=label)
    episodes.set(ylabel="episodes of each learner, to a mean of -120", ylim=(0, None))
    sent.set(ylabel="sent by all learners until then, MB", ylim=(0, None))
    for axes in (episodes, sent):
        axes.set(xlabel="learners", xscale="log")
        axes.set_xticks(there, [str(count) for count in there], minor=False)
        axes.minorticks_off()
        axes.grid(alpha=0.25)
        axes.legend()
    figure.savefig(path, dpi=120)


def _line(
    axes: Axes, rows: Sequence[dict[str, Any]], there: Sequence[int], share: float, color: str, label: str
) -> None:
    """The median, and a dot for each seed."""
    lines = [(count, each) for count in there if (each := medians(rows, count, share, "episodes")) is not None]
    axes.plot([count for count, _ in lines], [each / count for count, each in lines], color=color, label=label)
    dots = [row for row in rows if row["reached"] and (row["share"] == share or row["learners"] == 1)]
    axes.plot(
        [row["learners"] for row in dots],
        [row["episodes"] / row["learners"] for row in dots],
        color=color,
        linestyle="",
        marker=".",
    )


def main() -> None:
    """Train, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learners", type=int, nargs="+", default=list(LEARNERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=200_000, help="after which a run ends in any case")
    add_out(parser)
    given = parser.parse_args()
    results, rows = Results("mountain-car-sarsa", given.out), list[dict[str, Any]]()
    for seed in given.seeds:
        for learners, share in cases(given.learners):
            rows.append(measured(learners, share, seed, given.steps))
            print(rows[-1], flush=True)
            table = [
                {"learners": count, "share": each, **{k: medians(rows, count, each, k) for k in KEYS}}
                for count, each in cases(given.learners)
            ]
            results.write({"goal": GOAL, "medians": table, "rows": rows})
    plot(rows, results.path.with_suffix(".png"))


if __name__ == "__main__":
    main()
