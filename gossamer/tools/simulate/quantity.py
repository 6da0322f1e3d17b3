"""Converts quantities such as `1Gb/s`, `6.8MB`, `40ms` and `2/h` to SI numbers and back. Text needs a unit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.system.errors import UserError


@dataclass(frozen=True)
class Quantity:
    """A physical quantity, such as time. Numbers are in its SI unit."""

    unit: str  # SI unit of numbers, for example `seconds`
    units: Mapping[str, float]  # unit in text -> its value in SI units
    shown: tuple[str, ...]  # units for output, from large to small
    suggested: tuple[str, ...]  # units that an error message suggests if the unit is missing

    def parse(self, option: str, text: str) -> float:
        """The number in SI units. Raises `UserError`, which names the option, if the text is invalid."""
        if text.strip() == "inf":
            return math.inf
        parts = re.fullmatch(r"([0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?)\s*(\S*)", text.strip())
        if not parts:
            raise UserError(f"{option} {text}: not a quantity; write it as {self.example('10')}")
        number, unit = parts.groups()
        if not unit:
            raise UserError(f"{option} {text}: the unit is missing; write {self.example(number)}")
        if unit not in self.units:
            raise UserError(f"{option} {text}: {unit} is not a unit of {self.unit}; write {self.example(number)}")
        return float(number) * self.units[unit]

    def example(self, number: str) -> str:
        """This number with each of the suggested units."""
        return " or ".join(f"{number}{unit}" for unit in self.suggested)

    def text(self, value: float) -> str:
        """Text for output: four digits, in the largest unit in which the value is at least one."""
        if not value or math.isinf(value):
            return "inf" if value else f"0{self._after(self.shown[-1])}"
        fitting = (unit for unit in self.shown if value >= self.units[unit] * 0.9999)
        unit = next(fitting, self.shown[-1])
        return f"{value / self.units[unit]:.4g}{self._after(unit)}"

    def _after(self, unit: str) -> str:
        """The unit as it is appended to a number: `2/h`, `40 ms`."""
        return unit if unit.startswith("/") else f" {unit}"


PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
SIZES = {
    f"{prefix}{name}": factor * bytes_
    for prefix, factor in PREFIXES.items()
    for name, bytes_ in {"b": 1 / 8, "bit": 1 / 8, "B": 1.0}.items()
}
RATES = {f"{size}{per}": bytes_ for size, bytes_ in SIZES.items() for per in ("", "/s", "ps")}
TIMES = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
FREQUENCIES = {f"/{unit}": 1 / seconds for unit, seconds in TIMES.items() if seconds >= 1}

SECONDS = Quantity("seconds", TIMES, ("h", "min", "s", "ms", "us"), ("ms", "s"))
BYTES = Quantity("bytes", SIZES, ("GB", "MB", "kB", "B"), ("kB", "MB"))
BYTES_PER_SECOND = Quantity("bytes per second", RATES, ("Gb/s", "Mb/s", "kb/s", "b/s"), ("Mb/s (bits)", "MB/s (bytes)"))
PER_SECOND = Quantity("events per second", FREQUENCIES, ("/h",), ("/h", "/min"))
QUANTITIES = {quantity.unit: quantity for quantity in (SECONDS, BYTES, BYTES_PER_SECOND, PER_SECOND)}
