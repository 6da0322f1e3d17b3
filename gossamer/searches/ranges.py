"""What a search varies: an option with a range of numbers, or with a list of values.

learning-rate=1e-4..1e-2:log     between both, uniform in the logarithm
num-envs=8..64:8                 8, 16, .., 64
gae-lambda=0.9..1                between both
algorithm=a2c,ppo                one of these
hidden-sizes=64,64|256,256       one of these, which have commas themselves
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gossamer.config.command_line import to_int
from gossamer.config.composing import CHOICES
from gossamer.system.errors import UserError
from gossamer.system.options import flag

FORMS = "NAME=LOW..HIGH, NAME=LOW..HIGH:log, NAME=LOW..HIGH:STEP or NAME=A,B"
LOG = "log"
FIXED = ("env", "seed", "steps", "run_dir", "overwrite", "cluster")  # the same in all trials, or chosen for each run
TRUTH = {"true": True, "false": False}

Value: TypeAlias = int | float | str | bool


@dataclass(frozen=True)
class Range:
    """Numbers between `low` and `high`, both included; integers if both bounds are."""

    option: str
    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None  # None: all numbers between

    @property
    def whole(self) -> bool:
        """Whether the values are integers."""
        return isinstance(self.low, int)

    @property
    def extremes(self) -> tuple[Value, ...]:
        """The values that are tried before a search begins."""
        return self.low, self.high


@dataclass(frozen=True)
class Values:
    """One of several values."""

    option: str
    values: tuple[Value, ...]

    @property
    def extremes(self) -> tuple[Value, ...]:
        """All of them."""
        return self.values


Varied: TypeAlias = Range | Values


def option_of(text: str) -> str:
    """The name of the option in `learning-rate=1e-4..1e-2`. Raises `UserError` where no name or no value is given."""
    name, equals, value = text.partition("=")
    option = name.strip().removeprefix("--").replace("-", "_")
    if not equals or not option or not value.strip():
        raise UserError(f"--vary {text}: give {FORMS}")
    if option in FIXED:
        raise UserError(f"--vary {text}: {flag(option)} cannot vary: give it to the search")
    return option


def first_value(text: str) -> str:
    """The first or lowest value in the text, as it was typed."""
    return _split(text.partition("=")[2])[0].split("..")[0].strip()


def _split(values: str) -> list[str]:
    return [word.strip() for word in values.split("|" if "|" in values else ",")]


def parsed(text: str, kind: Any) -> Varied:
    """The range or the values in the text, for an option of this type. Raises `UserError` where they do not fit."""
    option, value = option_of(text), text.partition("=")[2]
    if ".." in value:
        return _range(text, option, value, kind)
    return Values(option, _values(text, _split(value), kind))


def _range(text: str, option: str, value: str, kind: Any) -> Range:
    if kind not in (int, float) or option in CHOICES:
        raise UserError(f"--vary {text}: {flag(option)} is no number; give its values with commas")
    bounds, colon, how = value.partition(":")
    low, high = (_number(text, word, kind) for word in bounds.split("..", 1))
    if not low < high:
        raise UserError(f"--vary {text}: the first bound must be below the second")
    if how == LOG:
        if low <= 0:
            raise UserError(f"--vary {text}: a logarithmic range must begin above 0")
        return Range(option, low, high, log=True)
    step = _number(text, how, kind) if colon else None
    if step is not None and not 0 < step <= high - low:
        raise UserError(f"--vary {text}: the step must be above 0, and at most {high - low:g}")
    return Range(option, low, high, step=step)


def _values(text: str, given: Sequence[str], kind: Any) -> tuple[Value, ...]:
    values = tuple(_value(text, word, kind) for word in given)
    if len(set(values)) < len(values):
        raise UserError(f"--vary {text}: a value is given twice")
    if len(values) == 1:
        raise UserError(f"--vary {text}: only one value; give two or more, or put the option into the composition")
    return values


def _value(text: str, word: str, kind: Any) -> Value:
    if kind is bool:
        if word not in TRUTH:
            raise UserError(f"--vary {text}: {word or 'an empty value'} is neither true nor false")
        return TRUTH[word]
    if kind in (int, float):
        return _number(text, word, kind)
    if not word:
        raise UserError(f"--vary {text}: a value is empty")
    return word


def _number(text: str, word: str, kind: Any) -> int | float:
    try:
        number: int | float = to_int(word) if kind is int else float(word)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise UserError(f"--vary {text}: {word.strip() or 'an empty value'} is not {wanted}") from None
    if not abs(number) < float("inf"):
        raise UserError(f"--vary {text}: {word} is not finite")
    return number
