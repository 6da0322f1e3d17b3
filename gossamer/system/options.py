"""Options as fields of a dataclass, with help text, unit, range and default. Records which ones the caller gave.

@options
class PPO:
    epochs: int = option("Passes over each rollout.", 3, least=1)

given(PPO(epochs=3))  # {"epochs": 3}: a value that is written out counts as given, even if it equals the default
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache, wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from gossamer.system.errors import UserError

T = TypeVar("T")
Sizes: TypeAlias = tuple[int, ...]  # of an option; as text 256,256
LIMITS = ("least", "most", "above", "below", "infinite")
_GIVEN = "_given"


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
    """A field with a help text and a range of values. `infinite`: whether infinity is allowed.

    `more` may have `measure`, the unit ("steps"); `name`, the option's name if it differs from the field's name;
    `unset`, the meaning of None; and `before`, the value of this option in files written before it existed."""
    limits = {"least": least, "most": most, "above": above, "below": below, "infinite": infinite}
    return field(default=default, metadata={"help": text, **limits, **more})


@dataclass_transform(frozen_default=True)
def options(cls: type[T]) -> type[T]:
    """Make a frozen dataclass of options, which checks its values and remembers which of them were given."""
    made = dataclass(frozen=True)(cls)
    names, init = [each.name for each in fields(made) if each.init], made.__init__  # type: ignore[arg-type]

    @wraps(init)
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        object.__setattr__(self, _GIVEN, frozenset({*names[: len(args)], *kwargs}))
        for each in declared(made).values():
            object.__setattr__(self, each.name, as_plain(getattr(self, each.name), types(made)[each.name]))
        check(self)

    setattr(made, "__init__", remember)  # noqa: B010  mypy does not let a method be assigned
    return made


def given(part: Any) -> dict[str, Any]:
    """The options that the caller wrote out, by name; all options if the dataclass does not remember."""
    written = vars(part).get(_GIVEN)
    return {
        name: getattr(part, each.name)
        for name, each in declared(type(part)).items()
        if written is None or each.name in written
    }


def declared(kind: type) -> dict[str, Field[Any]]:
    """The fields of a dataclass that are options, by name. The field `name` identifies the part; it is no option."""
    return {each.metadata.get("name", each.name): each for each in fields(kind) if each.init and each.name != "name"}


def values(part: Any) -> dict[str, Any]:
    """The options of a part, with their values."""
    return {name: getattr(part, each.name) for name, each in declared(type(part)).items()}


def defaults(kind: type) -> dict[str, Any]:
    """The defaults of a dataclass's options. Raises `UserError` for an option without a default."""
    for name, each in declared(kind).items():
        if each.default is MISSING:
            raise UserError(f"{kind.__name__}: option {name} needs a default")
    return {name: each.default for name, each in declared(kind).items()}


def flag(name: str) -> str:
    """An option as typed on the command line."""
    return "--" + name.replace("_", "-")


def word(kind: type) -> str:
    """A part's class as typed on the command line: `NStepQ` is nstep-q."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def types(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    return _hints(kind)


def choices(kind: Any) -> tuple[Any, ...]:
    """The values of a `Literal`; empty for other types."""
    return get_args(plain(kind)) if get_origin(plain(kind)) is Literal else ()


def optional(kind: Any) -> bool:
    """Whether the type includes None."""
    return get_origin(kind) in (Union, UnionType) and NoneType in get_args(kind)


def plain(kind: Any) -> Any:
    """The type without None."""
    if not optional(kind):
        return kind
    (rest,) = [each for each in get_args(kind) if each is not NoneType]
    return rest


def as_number(value: Any, kind: Any) -> Any:
    """The value as a plain int or float where the type asks for one: NumPy's numbers, and 1e6 for an int. All other
    values are returned as they are."""
    number = isinstance(value, Real) and not isinstance(value, int)
    if number and plain(kind) is int and (isinstance(value, Integral) or float(value).is_integer()):
        return int(value)
    return float(value) if number and plain(kind) is float else value


def as_plain(value: Any, kind: Any) -> Any:
    """`as_number`; for `Sizes` several whole numbers as a tuple: of a list, of text with commas between them, or of one
    number."""
    if plain(kind) != Sizes or value is None:
        return as_number(value, kind)
    several = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    try:
        return tuple(int(each) if isinstance(each, str) else as_number(each, int) for each in several)
    except ValueError:
        return value


def shown(value: Any) -> str:
    """A value as typed on the command line."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def in_words(name: str, value: Any) -> list[str]:
    """An option and its value as words of a command line."""
    if isinstance(value, bool):
        return [flag(name if value else f"no_{name}")]
    return [flag(name), json.dumps(value) if isinstance(value, Mapping) else shown(value)]


def check(part: Any) -> None:
    """Raise `UserError` for the first option whose value has a wrong type or is out of range."""
    for name, each in declared(type(part)).items():
        check_value(flag(name), getattr(part, each.name), types(type(part))[each.name], each.metadata)


def check_ranges(part: Any) -> None:
    """Check only the ranges."""
    for name, each in declared(type(part)).items():
        _check_range(flag(name), getattr(part, each.name), each.metadata)


def check_value(name: str, value: Any, kind: Any, limits: Mapping[str, Any]) -> None:
    """Raise `UserError` unless the value has this type and is within these limits."""
    if value is None and optional(kind):
        return
    kind, allowed = plain(kind), choices(kind)
    if kind == Sizes:
        if not isinstance(value, tuple) or not value or any(type(each) is not int for each in value):
            raise UserError(f"{name} {shown(value)}: must be whole numbers with commas between them, as 256,256")
        for each in value:
            _check_range(name, each, limits)
        return
    if allowed and value not in allowed:
        raise UserError(f"{name} {value}: must be one of {', '.join(map(str, allowed))}")
    if not allowed and kind in (int, float, str, bool):
        if type(value) is not kind and not (kind is float and type(value) is int):  # a bool is not accepted as a number
            raise UserError(f"{name} {value!r}: must be of type {kind.__name__}")
    _check_range(name, value, limits)


def _check_range(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or "least" not in limits:
        return
    if wrong := _wrong(value, **{each: limits[each] for each in LIMITS}):
        raise UserError(f"{name} {value}: must be {wrong}")


def _wrong(value: float, least: float, most: float, above: float, below: float, infinite: bool) -> str:
    """The violated condition, empty if there is none."""
    if math.isnan(value):
        return "a number"
    if value < least:
        return f"at least {least:,g}" if least < 1e6 else f"at least {least:,.0f}"
    if value <= above and above > -math.inf:
        return f"above {above:g}"
    if value >= below and below < math.inf:
        return f"below {below:g}"
    if value > most:
        return f"at most {most:,.10g}"
    return "finite" if math.isinf(value) and not infinite else ""


def described(each: Field[Any]) -> str:
    """Help text with unit and range: `Height and width. [pixels, 16 to 210]`."""
    limits = {"least": -math.inf, "most": math.inf, "above": -math.inf, "below": math.inf, **each.metadata}
    low = f"at least {limits['least']:,.10g}" if limits["least"] > -math.inf else ""
    low = f"above {limits['above']:g}" if limits["above"] > -math.inf else low
    high = f"at most {limits['most']:,.10g}" if limits["most"] < math.inf else ""
    high = f"below {limits['below']:g}" if limits["below"] < math.inf else high
    both = f"{low.removeprefix('at least ')} to {high.removeprefix('at most ')}"
    span = both if low.startswith("at least") and high.startswith("at most") else ", ".join(filter(None, (low, high)))
    extra = ", ".join(filter(None, (each.metadata.get("measure", ""), span)))
    return f"{each.metadata.get('help', '')}{f' [{extra}]' if extra else ''}".strip()


def is_part(kind: object) -> bool:
    """Whether this is a dataclass: only the fields of a dataclass can be options."""
    return isinstance(kind, type) and is_dataclass(kind)
