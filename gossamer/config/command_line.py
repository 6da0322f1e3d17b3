"""Options as arguments of a command, parsed by tyro. Parse errors become one line."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import MISSING, Field, field, make_dataclass
from itertools import pairwise
from typing import Annotated, Any, TypeVar

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from gossamer.config.other_libraries import explained
from gossamer.system import kwargs
from gossamer.system.errors import UserError
from gossamer.system.options import (
    Sizes,
    as_number,
    as_plain,
    choices,
    declared,
    described,
    optional,
    plain,
    shown,
    types,
)

T = TypeVar("T")
PORT = "6006"  # of the live page
METAVARS: dict[Any, str] = {int: "INT", float: "FLOAT", str: "STR", dict[str, Any]: "NAME=VALUE ...", Sizes: "INT,.."}
REGISTRY = ConstructorRegistry()  # how tyro makes values from words, where it differs from tyro's own way


def help_text(text: str, **more: Any) -> Any:
    """A help text for an argument of tyro."""
    return tyro.conf.arg(help=text, **more)


@REGISTRY.primitive_rule
def whole_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    """Have tyro parse ints with `to_int`."""
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=METAVARS[int],
        instance_from_str=lambda words: to_int(words[0]),
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


def to_dict(word: str) -> dict[str, Any]:
    """Keyword arguments, from the one word that `settled` makes of them. Raises `UserError` if it is no JSON."""
    try:
        found: dict[str, Any] = json.loads(word)
    except ValueError as error:
        raise UserError(f"{kwargs.FLAG} {word}: neither name=value nor JSON ({error})") from error
    return found


@REGISTRY.primitive_rule
def sizes(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Sizes] | None:
    """Have tyro parse `Sizes` as one word."""
    if info.type != Sizes:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=METAVARS[Sizes],
        instance_from_str=lambda words: as_plain(words[0], Sizes),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [shown(value)],
    )


def to_int(word: str) -> int:
    """An int as typed: `1000000`, `1_000_000`, `1e6`, `2.5e5`. Raises `ValueError` for anything else."""
    try:
        return int(word)
    except ValueError:
        with suppress(ValueError):
            number = as_number(float(word), int)
            if isinstance(number, int):
                return number
        raise


def left_open(text: str, kind: Any, hint: str) -> Any:
    """The same for an optional argument, with `hint` in place of `(default: None)`."""
    allowed = choices(kind)
    metavar = "{" + ",".join(map(str, allowed)) + "}" if allowed else METAVARS.get(kind, kind.__name__.upper())
    return help_text(text, metavar=metavar, help_behavior_hint=hint)


def arguments(kind: type, values: Mapping[str, Any] | None = None) -> Iterable[tuple[str, Any, Any]]:
    """The options of a dataclass as fields (name, type, default). `values` replace the defaults."""
    for name, each in declared(kind).items():
        default = each.default if values is None else values[name]
        yield argument(name, each, types(kind)[each.name], default)


def argument(name: str, each: Field[Any], kind: Any, default: Any) -> tuple[str, Any, Any]:
    """One option as a field of a dataclass for tyro. A quantity (with `typed` in its metadata) is parsed as text."""
    text, typed = described(each), each.metadata.get("typed")
    if typed is not None:
        return name, Annotated[str, help_text(text)], field(default=typed)
    if optional(kind):
        hint = each.metadata.get(
            "hint", f"(default: {each.metadata.get('unset', 'none') if default is None else default})"
        )
        if plain(kind) == dict[str, Any]:  # one word; see `settled`
            told = left_open(text, plain(kind), hint)
            return name, Annotated[str | None, told], field(default=default and json.dumps(default))
        return name, Annotated[kind, left_open(text, plain(kind), hint)], field(default=default)
    missing = default is MISSING
    return name, Annotated[kind, help_text(text)], field() if missing else field(default=default)


def group(title: str, fields: Sequence[tuple[str, Any, Any]]) -> Any:
    """A group of arguments with its own title in the help text; its fields have no prefix."""
    return tyro.conf.OmitArgPrefixes[make_dataclass(title, fields)]  # type: ignore[misc]


def dataclass_of(name: str, kind: type) -> type:
    """A dataclass for tyro that has all options of `kind`."""
    made: type = make_dataclass(name, list(arguments(kind)))
    return made


def parse(kind: type[T], words: Sequence[str], *, prog: str, description: str | None = None) -> T:
    """Parse the words into the dataclass; prints the help text if requested. Raises a one-line `UserError`."""
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            return tyro.cli(kind, args=settled(words), prog=prog, description=description, registry=REGISTRY)
    except SystemExit as end:
        if not end.code:
            raise
        told = one_line(errors.getvalue())
        name = re.match(r"unknown option (--[^\s;]+)", told)
        if name and (instead := explained(name[1])):
            told = f"{name[0]}; {instead}"
        raise UserError(f"{told}; see {prog} --help") from None


def settled(words: Sequence[str]) -> list[str]:
    """The words of a command, with the default port after a `--page` that has none, and keyword arguments as one
    word."""
    found = list[str]()
    for word, after in pairwise([*kwargs.joined(words), "--"]):
        found += [word, PORT] if word == "--page" and after.startswith("-") else [word]
    return found


PLAIN = (
    (r"Error parsing (--\S+): invalid literal for int\(\) with base 10: (\S+)", r"\1 \2: must be of type int"),
    (r"Error parsing (--\S+): could not convert string to float: (\S+)", r"\1 \2: must be of type float"),
    (r"Error parsing (--\S+): no type matching \S*\bINT\b.* from \['(.*?)'\]\. .*", r"\1 \2: must be of type int"),
    (r"Error parsing (--\S+): no type matching \S*\bFLOAT\b.* from \['(.*?)'\]\. .*", r"\1 \2: must be of type float"),
    (r"Error parsing (--\S+): ", r"\1: "),
    (r"^Unrecognized options: ([^,]+).*?(?: Perhaps you meant: (--\S+).*)?$", r"unknown option \1; near: \2"),
    (r"; near: $", ""),
)


def one_line(box: str) -> str:
    """The error message in one of tyro's boxes, without the help texts that tyro appends. Where the output is ASCII,
    the title stands on a line of its own above a rule."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│ ") for line in text.splitlines() if line.strip() and not line.startswith(("╭", "╰"))]
    if len(lines) > 1 and set(lines[1]) == {"-"}:
        del lines[0]
    body = " ".join(line for line in lines if line and not set(line) <= set("─-"))
    body = re.split(r" (?:Argument helptext:|For full helptext)", body)[0]
    for pattern, put in PLAIN:
        body = re.sub(pattern, put, body)
    return re.sub(r"^invalid choice (.*) for argument '(--\S+)'\. Expected one of \((.*)\)\.", _choices, body)


def _choices(found: re.Match[str]) -> str:
    """An invalid choice, with the valid ones: tyro has these in any order, and `None` among them."""
    value, name, listed = found.groups()
    valid = sorted(set(re.findall(r"'([^']*)'", listed)) - {"None"})
    return f"{name} {value}: must be one of {', '.join(valid)}"


def typed(words: Sequence[str]) -> dict[str, str | None]:
    """The options among the words, each with the word that follows it: `--num-envs 4` -> {"num_envs": "4"}."""
    found: dict[str, str | None] = {}
    for place, word in enumerate(words):
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            after = words[place + 1] if place + 1 < len(words) and not words[place + 1].startswith("--") else None
            found[name.replace("-", "_")] = value if equals else after
    return found


def asks_for_help(words: Collection[str]) -> bool:
    """Whether the help text is requested."""
    return not {"-h", "--help"}.isdisjoint(words)
