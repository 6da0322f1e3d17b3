"""A figure with its caption, which names the statistic, the interval and the number of seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gossamer.reporting import statistics
from gossamer.reporting.curves import RETURN

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawn:
    """A figure with its name (that of its files), title and caption."""

    name: str
    title: str
    caption: str
    figure: Figure


def value(summary: Mapping[str, Any]) -> str:
    """What curves show, for an axis: `mean return`, or the name of another metric."""
    return "mean return" if summary["metric"] == RETURN else str(summary["metric"])


def in_training(summary: Mapping[str, Any]) -> str:
    """The same for a caption."""
    return "mean return of 100 training episodes" if summary["metric"] == RETURN else str(summary["metric"])


def over_environments(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The same summary with the seeds that aggregates over environments use: of each method as many as it
    has of every environment. Unchanged where there are no aggregates."""
    if not summary["aggregates"]:
        return dict(summary)
    return {**summary, "methods": {each["method"]: {"": each["runs"]} for each in summary["aggregates"]}}


def over_pairs(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The same summary with the seeds that comparisons of two methods use: of each method the fewest that
    it has in any of them."""
    numbers = [(pair[each], pair[f"{each}_runs"]) for pair in summary["improvement"] for each in ("first", "second")]
    fewest = {label: min(number for name, number in numbers if name == label) for label, _ in numbers}
    return {**summary, "methods": {label: {"": number} for label, number in fewest.items()}}


def seeds(summary: Mapping[str, Any]) -> str:
    """`5 seeds each`, or the number of each method. `summary`: the result of `reporting.summary`."""
    methods: dict[str, dict[str, int]] = summary["methods"]
    if len(numbers := set(_numbers(summary))) == 1:
        (number,) = numbers
        return f"{number} seed{'s' * (number > 1)}" + " each" * (len(methods) > 1)
    return "Seeds: " + "; ".join(f"{label}: {_by_env(by_env)}" for label, by_env in methods.items())


def intervals(summary: Mapping[str, Any], what: str) -> str:
    """The intervals of a figure in words, or why there are none. `what`: how they are drawn."""
    known = [number for number in _numbers(summary) if number]
    least, most = min(known), max(known)
    if most < statistics.FEWEST:
        return f"No intervals: fewer than {statistics.FEWEST} seeds"
    some = f"; none where there are fewer than {statistics.FEWEST} seeds" if least < statistics.FEWEST else ""
    return f"{what}: {summary['interval']}{some}"


def _numbers(summary: Mapping[str, Any]) -> list[int]:
    return [number for by_env in summary["methods"].values() for number in by_env.values()]


def _by_env(numbers: Mapping[str, int]) -> str:
    if len(set(numbers.values())) == 1:
        return str(next(iter(numbers.values())))
    return ", ".join(f"{number or 'none'} on {env}" for env, number in numbers.items())
