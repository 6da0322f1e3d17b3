"""The training curve of a run as a picture."""

from __future__ import annotations

from io import BytesIO

from gossamer.storage.runs import RunRecord

BLUE = "#1f77b4"


def curve(run: RunRecord) -> bytes | None:
    """A PNG of the mean return of the last 100 training episodes, against environment steps; None where no episode has
    ended."""
    known = [(row["steps"], row["mean_return"]) for row in run.rows if row.get("mean_return") is not None]
    if not known:
        return None
    from matplotlib.figure import Figure  # takes a second
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(7, 3.6), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(*zip(*known, strict=True), color=BLUE, linewidth=1.5, marker="." if len(known) <= 60 else "")
    axes.set(xlabel="environment steps", ylabel="return, last 100 episodes", title="Training")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
