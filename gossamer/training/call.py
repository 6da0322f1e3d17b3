"""A call of `train` or `resume` as text, for the log of the run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from types import FunctionType
from typing import Any

from gossamer.system.options import given, is_part


def call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """`gossamer.train('paac', env='pong', algorithm=PPO(epochs=3))`. `arguments`: by name, those that were left out
    with their defaults; these are left out here, too."""
    words = list[str]()
    for name, each in inspect.signature(function).parameters.items():
        value = arguments[name]
        if each.kind is each.VAR_KEYWORD:
            words += [f"{option}={_shown(setting)}" for option, setting in value.items()]
        elif each.default is each.empty:
            words.append(_shown(value) if each.kind is each.POSITIONAL_OR_KEYWORD else f"{name}={_shown(value)}")
        elif value is not each.default:
            words.append(f"{name}={_shown(value)}")
    return " ".join(f"gossamer.{function.__name__}({', '.join(words)})".split())


def _shown(value: Any) -> str:
    if isinstance(value, type | FunctionType):
        return value.__qualname__
    if isinstance(value, PathLike):
        return repr(fspath(value))
    if not is_part(type(value)):
        return repr(value)
    options = ", ".join(f"{name}={_shown(setting)}" for name, setting in given(value).items())
    return f"{type(value).__name__}({options})"
