"""Dataclasses of options with units: text such as `40ms`, or numbers in SI units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, TypeVar

from gossamer.errors import UserError, near
from gossamer.options import flag, option
from gossamer.tools.quantity import KINDS, Kind

T = TypeVar("T")


def measured(text: str, default: str, kind: Kind, *, floor: float = 0, infinite: bool = False) -> Any:
    """An option with a unit. Text, on the command line or in Python, needs the unit; numbers are in SI units.

    `floor`: the minimum. The option's `least` is not used, because its error messages have no unit."""
    return option(text, kind.parse("", default), infinite=infinite, unit=kind.unit, typed=default, floor=floor)


def check_floors(part: Any) -> None:
    """Raise `UserError`, with units, if a quantity is too small."""
    for each in fields(part):
        kind, value = _kind(each), getattr(part, each.name)
        if kind is not None and value < (floor := each.metadata["floor"]):
            raise UserError(f"{flag(each.name)} {kind.text(value)}: must be at least {kind.text(floor)}")


def in_units(part: Any) -> dict[str, Any]:
    """The options, for JSON: quantities as text with their units."""
    return {each.name: _text(each, getattr(part, each.name)) for each in fields(part)}


def from_text(kind: type[T], given: Mapping[str, Any]) -> T:
    """A dataclass of options from SI numbers, or from text with units. None means the default."""
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    for name in given:
        if name not in known:
            raise UserError(f"unknown option {flag(name)}{near(name, known)}")
    return kind(**{name: _number(known[name], value) for name, value in given.items() if value is not None})


def _kind(each: Field[Any]) -> Kind | None:
    """The kind of quantity of an option; None for a plain number."""
    return KINDS.get(each.metadata.get("unit", ""))


def _text(each: Field[Any], value: Any) -> Any:
    if (kind := _kind(each)) is not None:
        return kind.text(value)
    return "inf" if value == math.inf else value


def _number(each: Field[Any], value: Any) -> Any:
    kind = _kind(each)
    return kind.parse(flag(each.name), value) if kind is not None and isinstance(value, str) else value
