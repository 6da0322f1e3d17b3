"""`config.json`: a configuration as nested JSON with a format number. Files without a number have format 1.

    {"format": 2, "gossamer": "0.2.0", "preset": "tuned", "run": {"steps": 10000000, ..}, "env": {"name": "pong", ..},
     "architecture": {"name": "gala", ..}, "algorithm": {"name": "ppo", ..}, "network": {..}, "optimizer": {"name": ..},
     "optimization": {..}}

A missing field takes the value that matches the behaviour before the field existed: `before`, else its default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from gossamer.config.config import Config
from gossamer.config.names import NAMED, load, name_of
from gossamer.config.resolve import COMMON, PLACES, architecture_kind, build
from gossamer.envs.options import stored_kind
from gossamer.system.errors import UserError
from gossamer.system.options import declared, values
from gossamer.system.version import __version__

T = TypeVar("T")
FORMAT = 2

# Format 1 was flat and had other names for some options: old name -> new name
RENAMED = {
    "discount": "gamma",
    "trace": "gae_lambda",
    "value_cost": "value_coef",
    "entropy_cost": "entropy_coef",
    "clip": "clip_range",
    "passes": "epochs",
    "minibatches": "num_minibatches",
    "normalise_advantages": "normalize_advantage",
    "clip_norm": "max_grad_norm",
    "rollout": "rollout_length",
    "envs": "num_envs",
    "workers": "env_workers",
    "atari": "preprocessing",
    "size": "screen_size",
    "initialisation": "initialization",
    "message": "message_format",
}


def to_dict(config: Config) -> dict[str, Any]:
    """The content of `config.json`."""
    found: dict[str, Any] = {"format": FORMAT, "gossamer": __version__, "preset": config.preset}
    for place in PLACES:
        part = getattr(config, place)
        own = {each.name: getattr(part, each.name) for each in declared(type(part)).values()}
        found[place] = {**_name(place, part), **own}
    return found


def flat(config: Config) -> dict[str, Any]:
    """Every choice and option with its value, by its name on the command line."""
    chosen = {place: names["name"] for place in PLACES if (names := _name(place, getattr(config, place)))}
    options = {name: value for part in config.parts for name, value in values(part).items()}
    return {**chosen, "preset": config.preset, **options}


def _name(place: str, part: Any) -> dict[str, str]:
    if place in NAMED:
        return {"name": name_of(type(part), NAMED[place])}
    return {"name": part.name} if place == "env" else {}


def from_dict(content: Mapping[str, Any]) -> tuple[Config, list[str]]:
    """The configuration, and notes on missing fields. Raises `UserError` for a file of a later version or with invalid
    values; KeyError, TypeError or ValueError if the content is not a configuration. The environment is not imported."""
    form = content.get("format", 1)
    if form == 1:
        content = migrated(content)
    check_format(content)
    kinds = _kinds(content)
    found, notes = dict[str, Any](), list[str]()
    for place, kind in kinds.items():
        found |= _values(place, kind, content[place], notes)
    made = build(kinds, found, env=content["env"]["name"], preset=content["preset"])
    return made, [] if form == 1 else notes


def check_format(content: Mapping[str, Any]) -> None:
    """Raise `UserError` for content of a later version."""
    if (form := content["format"]) != FORMAT:
        raise UserError(f"format {form}: written by a later version of Gossamer; this one reads formats 1 and {FORMAT}")


def part(place: str, kind: type[T], content: Mapping[str, Any]) -> T:
    """One part of a configuration of the current format, built without the others. Raises as `from_dict`."""
    values = _values(place, kind, content[place], [])
    return kind(**{each.name: values[name] for name, each in declared(kind).items()})


def _values(place: str, kind: type, content: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The options of a part by name. Adds a note for each missing field."""
    found, left = dict[str, Any](), dict(content)
    left.pop("name", None)
    for name, each in declared(kind).items():
        if each.name not in left:
            left[each.name] = each.metadata.get("before", each.default)
            notes.append(f"{place}.{each.name} is missing: {left[each.name]}, as before this option existed")
        found[name] = left.pop(each.name)
    if left:
        raise UserError(f"{place} has unknown fields {', '.join(left)}: written by a later version of Gossamer")
    return found


def _kinds(content: Mapping[str, Any]) -> dict[str, type]:
    """The dataclasses of the chosen parts."""
    return {
        **COMMON,
        "env": stored_kind(content["env"]["name"], content["env"]),
        "architecture": architecture_kind(content["architecture"]["name"]),
        "algorithm": load("--algorithm", content["algorithm"]["name"], NAMED["algorithm"]),
        "optimizer": load("--optimizer", content["optimizer"]["name"], NAMED["optimizer"]),
    }


def migrated(content: Mapping[str, Any]) -> dict[str, Any]:
    """Convert content of format 1 to format 2: each part takes its own options from the flat settings."""
    old = {RENAMED.get(name, name): value for name, value in content.items()}
    chosen = {place: {"name": old[place]} for place in ("env", "architecture", "algorithm", "optimizer")}
    found: dict[str, Any] = {"format": FORMAT, "preset": old["preset"], **{p: {} for p in PLACES}, **chosen}
    for place, kind in _kinds(found).items():
        own = {each.name: old[name] for name, each in declared(kind).items() if name in old}
        found[place] = {**found[place], **own}
    return found
