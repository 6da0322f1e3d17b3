"""Scenarios: dataclasses of options with units, given as text such as `40ms` or as numbers in SI units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, TypeVar

from gossamer.system.errors import UserError, near
from gossamer.system.options import check_ranges, flag, option
from gossamer.tools.simulate.quantity import BYTES_PER_SECOND, PER_SECOND, QUANTITIES, SECONDS, Quantity

T = TypeVar("T")


def measured(text: str, default: str, quantity: Quantity, *, floor: float = 0, infinite: bool = False) -> Any:
    """An option with a unit. Text, on the command line or in Python, needs the unit; numbers are in SI units.

    `floor`: the minimum. The option's `least` is not used, because its error messages have no unit."""
    number = quantity.parse("", default)
    return option(text, number, infinite=infinite, unit=quantity.unit, typed=default, floor=floor)


def bandwidth() -> Any:
    """The option `bandwidth` of a scenario."""
    text = "Bandwidth of each host in each direction: bits (1Gb/s) or bytes (125MB/s) per second, or inf."
    return measured(text, "1Gb/s", BYTES_PER_SECOND, floor=1, infinite=True)


def latency(default: str) -> Any:
    """The option `latency` of a scenario."""
    return measured("Latency between hosts, one way.", default, SECONDS)


def crash_rate(which: str = "host") -> Any:
    """The option `crash_rate` of a scenario. `which`: the hosts that crash."""
    return measured(f"Crashes of each {which}, for example 2/h or 1/min.", "0/h", PER_SECOND)


def down() -> Any:
    """The option `down` of a scenario."""
    return measured("Time until a crashed host restarts; inf: never.", "10s", SECONDS, infinite=True)


def seed() -> Any:
    """The option `seed` of a scenario."""
    return option("Seed of all random streams.", 0, least=0)


def check_scenario(scenario: Any) -> None:
    """Raise `UserError` if an option is out of its range; a quantity is shown with its unit."""
    for each in fields(scenario):
        quantity, value = _quantity(each), getattr(scenario, each.name)
        if quantity is not None and value < (floor := each.metadata["floor"]):
            raise UserError(f"{flag(each.name)} {quantity.text(value)}: must be at least {quantity.text(floor)}")
    check_ranges(scenario)


def in_units(scenario: Any) -> dict[str, Any]:
    """The options, for JSON: quantities as text with their units."""
    return {each.name: _text(each, getattr(scenario, each.name)) for each in fields(scenario)}


def from_text(kind: type[T], given: Mapping[str, Any]) -> T:
    """A scenario from SI numbers, or from text with units. None means the default."""
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    for name in given:
        if name not in known:
            raise UserError(f"unknown option {flag(name)}{near(name, known)}")
    return kind(**{name: _number(known[name], value) for name, value in given.items() if value is not None})


def _quantity(each: Field[Any]) -> Quantity | None:
    """The quantity that an option measures; None for a plain number."""
    return QUANTITIES.get(each.metadata.get("unit", ""))


def _text(each: Field[Any], value: Any) -> Any:
    if (quantity := _quantity(each)) is not None:
        return quantity.text(value)
    return "inf" if value == math.inf else value


def _number(each: Field[Any], value: Any) -> Any:
    quantity = _quantity(each)
    return quantity.parse(flag(each.name), value) if quantity is not None and isinstance(value, str) else value
