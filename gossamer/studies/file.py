"""A study as a TOML file.

envs = ["pong", "breakout"]
seeds = 5                        # 1 to 5, or a list
steps = 1_000_000
directory = "studies/atari"      # relative to the file
jobs = 1
options = "--stop-at-return 18"  # for every run

[compositions]
PAAC = "paac --algorithm ppo"
GALA = "gala --algorithm ppo"
"""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

from gossamer.system.errors import UserError, near
from gossamer.system.options import as_number

KINDS: dict[str, tuple[type, ...]] = {
    "compositions": (dict, list),
    "envs": (list,),
    "seeds": (int, list),
    "steps": (int,),
    "directory": (str,),
    "jobs": (int,),
    "cluster": (str,),
    "options": (str,),
}


def load(path: Path) -> dict[str, Any]:
    """The keywords of `gossamer.study`. Raises `UserError` for a file that cannot be read, a key that is not known, or
    a value of another type."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{path}: not TOML ({error})") from error
    content = {key: _number(key, value) for key, value in content.items()}
    for key, value in content.items():
        _check(path, key, value)
    return _keywords(path, content)


def _number(key: str, value: Any) -> Any:
    """The value with 1e6 as an integer where one is wanted."""
    return as_number(value, int) if int in KINDS.get(key, ()) else value


def _check(path: Path, key: str, value: Any) -> None:
    if key not in KINDS:
        raise UserError(f"{path}: unknown key {key}{near(key, KINDS)}; known: {', '.join(KINDS)}")
    if not isinstance(value, KINDS[key]) or isinstance(value, bool):
        wanted = " or ".join(kind.__name__ for kind in KINDS[key])
        raise UserError(f"{path}: {key} must be of type {wanted}")
    items = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    item = int if key == "seeds" else str
    if any(not isinstance(each, item) or isinstance(each, bool) for each in items):
        raise UserError(f"{path}: {key} must hold values of type {item.__name__}")


def _keywords(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    keywords = dict(content)
    compositions = keywords.get("compositions")
    if isinstance(compositions, dict):
        keywords["compositions"] = [_labelled(path, label, words) for label, words in compositions.items()]
    if "directory" in keywords:
        keywords["directory"] = path.parent / keywords["directory"]
    if "options" in keywords:
        keywords["options"] = _words(path, keywords["options"])
    return keywords


def _labelled(path: Path, label: str, words: str) -> str:
    """As on the command line, where the first colon with a space after it ends the label."""
    if ": " in label:
        raise UserError(f"{path}: the label {label!r} must not hold a colon with a space after it")
    return f"{label}: {words}"


def _words(path: Path, options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError as error:
        raise UserError(f"{path}: options {options!r}: {str(error).lower()}") from error
