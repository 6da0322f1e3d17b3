"""The tables of a report as text, for Markdown and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.reporting.bars import AGGREGATES
from gossamer.reporting.captions import in_training, intervals, over_environments
from gossamer.reporting.statistics import FEWEST
from gossamer.reporting.summary import Entry

UNKNOWN = "–"
USAGE = {  # of the machine; columns that no method has are left out
    "frames_per_second": "frames per second",
    "cores_busy": "busy cores",
    "gpu_utilization": "GPU utilisation",
    "frames_per_joule": "frames per joule of the GPU",
}


@dataclass(frozen=True)
class Table:
    """Texts in rows, under a title and a caption."""

    title: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 2  # columns of text; those after them are numbers, aligned to the right


def tables(summary: Mapping[str, Any]) -> list[Table]:
    """Every table that has rows. `summary`: the result of `reporting.summary`."""
    kinds = (_scores, _published, _aggregates, _thresholds, _improvement, _speed, _settings, _runs, _left_out)
    return [table for table in (make(summary) for make in kinds) if table.rows]


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, and all of those before the point: `1,234,567`, `0.0123`."""
    if value is None:
        return UNKNOWN
    if value == 0 or isinstance(value, int) or abs(value) >= 10**digits - 0.5:
        return f"{value:,.0f}"
    return f"{value:#,.{digits}g}".removesuffix(".")


def ranged(entry: Entry, name: str, low: str = "", high: str = "") -> str:
    """An estimate with its interval, where there is one."""
    ends = [entry[low or f"{name}_low"], entry[high or f"{name}_high"]]
    inside = f" [{number(ends[0])}, {number(ends[1])}]" if ends != [None, None] else ""
    return number(entry[name]) + inside


def _scores(summary: Mapping[str, Any]) -> Table:
    human = any("human_iqm" in entry for entry in summary["scores"])
    rows = [
        [entry["env"], entry["method"], str(entry["runs"]), ranged(entry, "iqm"), number(entry["mean"]),
         number(entry["min"]), number(entry["max"])]
        + ([ranged(entry, "human_iqm") if "human_iqm" in entry else UNKNOWN] if human else [])
        for entry in summary["scores"]
    ]  # fmt: skip
    header = ["environment", "method", "seeds", "IQM", "mean", "lowest", "highest"] + ["human-normalised IQM"] * human
    source = f" Human-normalised: 0 is random play, 1 a human ({summary['human_source']})." if human else ""
    return Table("Scores", f"Score: {summary['score']}. {intervals(summary, 'In brackets')}.{source}", header, rows)


def _published(summary: Mapping[str, Any]) -> Table:
    found = summary["published"] or {"rows": [], "env": "", "note": "", "scores": []}
    rows = [
        [row["agent"], row["protocol"], number(row["score"]), number(row["human_normalised"])] for row in found["rows"]
    ]
    sources = dict.fromkeys(f"{each['agent']}, {each['starts']}: {each['source']}" for each in found["scores"])
    caption = (
        f"Scores of papers on {found['env']} beside the IQM of each method here. {found['note']} Human-normalised: 0 "
        f"is random play, 1 a human, with the same starts. Sources: {'; '.join(sources)}."
    )
    return Table("Published scores", caption, ["agent", "protocol", "score", "human-normalised"], rows)


def _aggregates(summary: Mapping[str, Any]) -> Table:
    rows = [
        [entry["method"], str(entry["runs"]), *(ranged(entry, name) for name in AGGREGATES)]
        for entry in summary["aggregates"]
    ]
    envs = summary["aggregated_over"]
    caption = (
        f"Human-normalised scores over {len(envs)} environments ({', '.join(envs)}). "
        f"{intervals(over_environments(summary), 'In brackets')}."
    )
    return Table("Aggregate scores", caption, ["method", "seeds", *AGGREGATES.values()], rows, words=1)


def _thresholds(summary: Mapping[str, Any]) -> Table:
    rows = [
        [entry["env"], entry["method"], f"{entry['threshold']:g}", f"{entry['reached']} of {entry['runs']}",
         _to_threshold(entry, "steps"), _to_threshold(entry, "seconds")]
        for entry in summary["thresholds"]
    ]  # fmt: skip
    caption = (
        f"Median over seeds of the steps and seconds until the {in_training(summary)} first reached the "
        f"threshold; never counts as later than any number. {intervals(summary, 'In brackets')}."
    )
    header = ["environment", "method", "threshold", "seeds that reached it", "steps", "seconds"]
    return Table("Steps and seconds to a threshold", caption, header, rows)


def _to_threshold(entry: Entry, what: str) -> str:
    """A missing number stands for never."""
    if not entry["reached"]:
        return "not reached"
    ends = f" [{_or_never(entry[f'{what}_low'])}, {_or_never(entry[f'{what}_high'])}]"
    return _or_never(entry[what]) + (ends if entry["runs"] >= FEWEST else "")


def _or_never(value: float | None) -> str:
    return "never" if value is None else number(value)


def _improvement(summary: Mapping[str, Any]) -> Table:
    rows = [
        [entry["first"], entry["second"], f"{entry['first_runs']} / {entry['second_runs']}", str(entry["envs"]),
         ranged(entry, "probability", "low", "high")]
        for entry in summary["improvement"]
    ]  # fmt: skip
    caption = (
        "Probability that a run of the first method scores higher than one of the second; ties count half. "
        f"{intervals(summary, 'In brackets')}."
    )
    return Table(
        "Probability of improvement", caption, ["first", "second", "seeds", "environments", "P(first > second)"], rows
    )


def _speed(summary: Mapping[str, Any]) -> Table:
    usage = {name: title for name, title in USAGE.items() if any(entry[name] is not None for entry in summary["speed"])}
    rows = [
        [entry["env"], entry["method"], str(entry["runs"]), number(entry["steps_per_second"]),
         *(number(entry[name]) for name in usage),
         _lag(entry, "policy_lag"), _lag(entry, "gossip_staleness"), _waited(entry["shares"])]
        for entry in summary["speed"]
    ]  # fmt: skip
    caption = (
        "Steps and frames per second: median over seeds, of whole trainings. Busy cores, the GPU's utilisation and "
        "frames per joule of its energy: medians of the last session of each run. Policy lag: optimiser steps "
        "between acting and learning, mean (maximum). Gossip staleness: iterations between sender and receiver of a "
        "message, mean (maximum). Waited: share of the members' time, the mean over seeds."
    )
    used = [*usage.values(), "policy lag", "gossip staleness", "waited"]
    header = ["environment", "method", "seeds", "steps per second", *used]
    return Table("Throughput and staleness", caption, header, rows)


def _lag(entry: Entry, name: str) -> str:
    mean, most = entry[f"{name}_mean"], entry[f"{name}_max"]
    return UNKNOWN if mean is None else f"{number(mean)} ({number(most)})"


def _waited(shares: Mapping[str, float]) -> str:
    waits = {part: share for part, share in shares.items() if "wait" in part}
    return ", ".join(f"{part.replace('_', ' ')} {share:.0%}" for part, share in waits.items()) or UNKNOWN


def _settings(summary: Mapping[str, Any]) -> Table:
    methods = list(summary["methods"])
    rows = [
        [name.replace("_", "-"), *(values[method] or UNKNOWN for method in methods)]
        for name, values in summary["settings"].items()
    ]
    header = ["option", *methods]
    caption = "Options that are not the same for all methods on an environment; – where a method has no such option."
    return Table("Settings that differ", caption, header, rows, words=len(header))


def _runs(summary: Mapping[str, Any]) -> Table:
    rows = [
        [run["directory"], run["method"], run["env"], str(run["seed"]), number(run["steps"]), number(run["seconds"]),
         number(run["score"]), run["ended"]]
        for run in summary["runs"]
    ]  # fmt: skip
    header = ["run", "method", "environment", "seed", "steps", "seconds", "score", "how it ended"]
    origin = f"Machines: {'; '.join(summary['machines'])}. Gossamer {', '.join(summary['versions'])}."
    return Table("Runs", f"Score: {summary['score']}. {origin}", header, rows, words=len(header))


def _left_out(summary: Mapping[str, Any]) -> Table:
    rows = [[each["directory"], each["reason"]] for each in summary["left_out"]]
    return Table("Runs that were left out", "They are part of no number.", ["run", "reason"], rows)
