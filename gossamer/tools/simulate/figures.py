"""Figures of a simulation: unit, printed form as an aligned table, and those that several architectures have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.launch.simulation import Simulation
from gossamer.tools.simulate.ledger import Totals

SCALES = {"fraction": 100.0, "bytes per second": 1e-6}  # unit -> factor from JSON to the printed table


@dataclass(frozen=True)
class Figure:
    """One number. A fraction is printed as a percentage, bytes as MB."""

    key: str  # in JSON
    unit: str  # in JSON
    label: str = ""  # in the printed table; empty for figures that are printed above the table
    text: str = ""  # printed after the number; begins with the unit
    digits: int = 0


def units(figures: Sequence[Figure]) -> dict[str, str]:
    """Key -> unit, for JSON."""
    return {figure.key: figure.unit for figure in figures}


def table(figures: Sequence[Figure], numbers: Mapping[str, Any]) -> list[str]:
    """One aligned line for each figure that has a label, with its unit."""
    rows = [_row(figure, numbers[figure.key]) for figure in figures if figure.label]
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    return [f"{label:<{first}}  {value:>{second}} {text}" for label, value, text in rows]


def _row(figure: Figure, value: float | None) -> tuple[str, str, str]:
    if value is None:
        return figure.label, "–", f"{figure.text} (nothing to measure)"
    return figure.label, f"{value * SCALES.get(figure.unit, 1):,.{figure.digits}f}", figure.text


def faults_line(begin: str, scenario: Mapping[str, Any]) -> list[str]:
    """The printed line of a scenario's crashes; none if there are none."""
    return [f"{begin}, {scenario['down']} down"] if scenario["crash_rate"] != "0/h" else []


def shares(totals: Totals, spans: Mapping[str, str]) -> dict[str, float]:
    """Shares of the time of one sort of workers. `spans`: figure -> span."""
    whole = sum(totals.seconds[what] for what in spans.values())
    return {key: round(totals.seconds[what] / whole if whole else 0.0, 4) for key, what in spans.items()}


def lag(counts: Counter[int]) -> dict[str, Any]:
    """Mean, maximum, and the histogram of policy lag or of the staleness of gradients."""
    mean = sum(behind * count for behind, count in counts.items()) / counts.total()
    return {
        "lag_mean": round(mean, 3),
        "lag_max": max(counts),
        "lag": {str(behind): counts[behind] for behind in sorted(counts)},
    }


def rate(simulation: Simulation, totals: Totals, call: str, size: float) -> float:
    """Bytes per second of transfers of `size` bytes each, which end with `call`, the name of a service's method."""
    calls = simulation.trace[totals.first_call : totals.end_call]
    return sum(name.endswith(f".{call}") for _, name in calls) * size / (totals.end - totals.start)
