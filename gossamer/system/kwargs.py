"""Keyword arguments of the user's environments: `--env-kwargs name=value ...`, or `env_kwargs={...}`.

They are values that JSON has, since a run keeps them in `config.json`."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Never

from gossamer.system.errors import UserError, near

FLAG = "--env-kwargs"
WORDS = {"True": True, "False": False, "None": None}  # as Python writes them; JSON's are true, false and null


def joined(words: Sequence[str]) -> list[str]:
    """The words of a command, with all `name=value` after `--env-kwargs`, which may be there several times, as one word
    of JSON. Raises `UserError` if there are none, or if a name is given twice."""
    found, rest, pairs, place = list[str](), list(words), list[str](), 0
    while rest:
        word = rest.pop(0)
        name, equals, first = word.partition("=")
        if name != FLAG:
            found.append(word)
            continue
        given = [first] if equals else list(takewhile(_is_value, rest))
        del rest[: 0 if equals else len(given)]
        if not given:
            _read(given)
        place = place if pairs else len(found)
        pairs += given
    if not pairs:
        return found
    is_json = len(pairs) == 1 and pairs[0].startswith("{")  # joined already
    return [*found[:place], FLAG, pairs[0] if is_json else json.dumps(_read(pairs)), *found[place:]]


def _is_value(word: str) -> bool:
    return word.startswith("{") or ("=" in word and not word.startswith("-"))


def _read(pairs: Iterable[str]) -> dict[str, Any]:
    """The values of words `name=value`."""
    found = dict[str, Any]()
    for pair in pairs:
        name, _, text = pair.partition("=")
        if not name.isidentifier():
            raise UserError(f"{FLAG} {pair}: must be name=value")
        if name in found:
            raise UserError(f"{FLAG} {pair}: {name} is given twice")
        found[name] = _value(text)
    if not found:
        raise UserError(f"{FLAG}: needs name=value, as in {FLAG} map_name=8x8 is_slippery=false")
    return found


def _value(text: str) -> Any:
    """A value as typed: JSON (`8`, `0.5`, `true`, `[1, 2]`), True, False or None; anything else is text."""
    if text in WORDS:
        return WORDS[text]
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is no JSON")


def checked(given: Any) -> dict[str, Any] | None:
    """The arguments as they are after they have been in a file: tuples are lists. None if there are none. Raises
    `UserError` for a name or a value that JSON does not have."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise UserError(f"{FLAG} {given!r}: must be names with values, as in env_kwargs={{'map_name': '8x8'}}")
    for name in given:
        if not isinstance(name, str) or not name.isidentifier():
            raise UserError(f"{FLAG} {name!r}: must be the name of an argument")
    return {name: _plain(name, value) for name, value in given.items()} or None


def _plain(name: str, value: Any) -> Any:
    """A value as JSON gives it back."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_plain(name, each) for each in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {key: _plain(name, each) for key, each in value.items()}
    shown = " ".join(repr(value).split())
    raise UserError(
        f"{FLAG} {name}={shown}: a run keeps numbers, text, true, false, null, and lists and dicts of these; "
        "for other values write a function that makes the environment (--env module:function)"
    )


def text(kwargs: Mapping[str, Any]) -> str:
    """The arguments as typed: `map_name=8x8 is_slippery=false`."""
    return " ".join(f"{name}={_shown(value)}" for name, value in kwargs.items())


def titled(env: str, kwargs: Mapping[str, Any] | None) -> str:
    """The environment and its arguments, to tell those apart that differ in arguments only."""
    return f"{env} {text(kwargs)}" if kwargs else env


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and _value(value) == value else json.dumps(value, separators=(",", ":"))


def check_names(env: str, factory: Callable[..., Any], kwargs: Mapping[str, Any], more: Collection[str] = ()) -> None:
    """Raise `UserError` for an argument that the factory of the environment does not take. `more`: names that are taken
    besides."""
    parameters = inspect.signature(factory).parameters.values()
    if not any(each.kind is each.VAR_KEYWORD for each in parameters):
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        check_among(env, [each.name for each in parameters if each.kind in named], kwargs, more)


def check_among(env: str, takes: Sequence[str], kwargs: Mapping[str, Any], more: Collection[str] = ()) -> None:
    """Raise `UserError` for an argument that is not among those that the environment takes, or `more`."""
    for name, value in kwargs.items():
        if name not in (*takes, *more):
            known = f"it takes {', '.join(takes)}" if takes else "it takes none"
            raise UserError(f"{FLAG} {text({name: value})}: not an argument of {env}; {known}{near(name, takes)}")
