"""Figures of a simulation: unit, and printed form as an aligned table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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


def table(figures: Sequence[Figure], found: Mapping[str, Any]) -> list[str]:
    """One aligned line for each figure that has a label, with its unit."""
    rows = [_row(figure, found[figure.key]) for figure in figures if figure.label]
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    return [f"{label:<{first}}  {value:>{second}} {text}" for label, value, text in rows]


def _row(figure: Figure, value: float | None) -> tuple[str, str, str]:
    if value is None:
        return figure.label, "–", f"{figure.text} (nothing to measure)"
    return figure.label, f"{value * SCALES.get(figure.unit, 1):,.{figure.digits}f}", figure.text
