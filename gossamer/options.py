"""Options as fields of a dataclass: their help text, and which values will do."""

from __future__ import annotations

import math
from dataclasses import MISSING, asdict, field, fields
from typing import Any

from gossamer.errors import UserError


def option(
    text: str,
    default: Any = MISSING,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    infinite: bool = False,
    **more: Any,
) -> Any:
    """A field with its help text and the range of its values; `infinite`: whether infinity is one."""
    limits = {"least": least, "most": most, "above": above, "below": below, "infinite": infinite}
    return field(default=default, metadata={"help": text, **limits, **more})


def flag(name: str) -> str:
    """A knob as it is typed."""
    return "--" + name.replace("_", "-")


def check_ranges(knobs: Any) -> None:
    """`UserError` names the first option whose value is out of its range."""
    values = asdict(knobs)
    for knob in fields(knobs):
        value, limits = values[knob.name], knob.metadata
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if wrong := _wrong(value, **{name: limits[name] for name in ("least", "most", "above", "below", "infinite")}):
            raise UserError(f"{flag(knob.name)} {value}: must be {wrong}")


def _wrong(value: float, least: float, most: float, above: float, below: float, infinite: bool) -> str:
    """What a value should be and is not."""
    if math.isnan(value):
        return "a number"
    if value < least:
        return f"at least {least:g}"
    if value <= above and above > -math.inf:
        return f"above {above:g}"
    if value >= below and below < math.inf:
        return f"below {below:g}"
    if value > most:
        return f"at most {most:g}"
    return "finite" if math.isinf(value) and not infinite else ""
