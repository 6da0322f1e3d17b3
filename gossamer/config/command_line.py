"""Knobs (`run.knobs`), which are fields of a dataclass with their texts, as options of the command line."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import MISSING, field, fields, make_dataclass
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

import tyro


def help_text(text: str, **more: Any) -> Any:
    """What tyro shows of an option."""
    return tyro.conf.arg(help=text, **more)


def left_open(text: str, kind: Any, hint: str) -> Any:
    """The same for one that may be left out: `hint` in place of `(default: None)`."""
    choices = get_args(kind)
    metavar = "{" + ",".join(choices) + "}" if choices else kind.__name__.upper()
    return help_text(text, metavar=metavar, help_behavior_hint=hint)


def options(
    name: str, source: Any, *, required: Collection[str] = (), skip: Collection[str] = (), hint: str = ""
) -> type:
    """A dataclass with the knobs of `source` but for `skip`. What is neither `required` nor has a default may be left
    out, as `hint` or the knob's own one says; quantities are text."""
    types = get_type_hints(source)
    first, rest = list[Any](), list[Any]()
    for knob in fields(source):
        text, more, kind = knob.metadata["help"], knob.metadata, types[knob.name]
        if NoneType in get_args(kind):
            (kind,) = set(get_args(kind)) - {NoneType}
        if knob.name in skip:
            continue
        if knob.name in required:
            first.append((knob.name, Annotated[kind, help_text(text)]))
        elif "unit" in more:
            rest.append((knob.name, Annotated[str, help_text(text)], field(default=more["typed"])))
        elif knob.default in (MISSING, None):
            told = left_open(text, kind, more.get("hint", hint))
            rest.append((knob.name, Annotated[kind | None, told], field(default=None)))
        else:
            rest.append((knob.name, Annotated[kind, help_text(text)], field(default=knob.default)))
    made: type = make_dataclass(name, [*first, *rest])
    return made
