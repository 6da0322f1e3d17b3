"""Parses the command line of a composition in two passes: first the parts, then the options of these parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from gossamer.config import repeating
from gossamer.config.command_line import (
    arguments,
    asks_for_help,
    group,
    help_text,
    parse,
    settled,
    to_dict,
    to_int,
    typed,
)
from gossamer.config.config import Config
from gossamer.config.file import flat
from gossamer.config.names import ALGORITHMS, ARCHITECTURES, OPTIMIZERS, PRESETS, name_of
from gossamer.config.resolve import Choices, Composition, refused
from gossamer.system.errors import UserError
from gossamer.system.options import Sizes, as_plain, check_value, choices, declared, flag, plain, types

CHOICES = ("env", "algorithm", "optimizer", "preset")


@dataclass(frozen=True)
class Composed:
    """The parsed command line: the parts with their options, and the options of the command itself."""

    choices: Choices
    command: dict[str, Any]


def compose(words: Sequence[str], *, prog: str, description: str, command: Sequence[type]) -> Composed:
    """Parse the words of a command that takes a composition. `command`: dataclasses of the command's own options."""
    words = settled(words)
    own = {name for kind in command for name in declared(kind)}
    before = _repeated(words) if "config" in own else None
    if before is not None:
        alone, words = typed(words), _with_parts(words, before)
        if preset := alone.get("preset"):
            repeating.check_preset(before, preset, _architecture(words, prog), alone.get("algorithm"))
    found, plain_words = typed(words), [word for word in words if word not in ("-h", "--help")]
    if not found.get("env"):
        missing = "needs a value" if "env" in found else "required"
        raise UserError(f"--env: {missing}; gossamer list shows the available environments")
    chosen = {name: found[name] for name in CHOICES if found.get(name) is not None}
    env_kwargs = {"env_kwargs": to_dict(word)} if (word := found.get("env_kwargs")) else {}
    parts = {**chosen, "env": chosen.get("env", "")}
    first = Choices(_architecture(words, prog), **parts, given=env_kwargs)  # type: ignore[arg-type]
    composition = Composition(first)
    _check(found, composition, command)
    made = _parse(plain_words, composition, command, prog, description)
    given = {name: value for name, value in made.items() if name in found or f"no_{name}" in found}
    options = {name: value for name, value in given.items() if name not in (*own, *CHOICES)} | env_kwargs
    choices = replace(first, given=options, probed=composition.probed)
    if before is not None:
        choices = replace(choices, given={**repeating.options(before, choices, options), **options})
    if asks_for_help(words):
        _parse(["--help"], Composition(choices), command, prog, description)
    return Composed(choices, {name: value for name, value in made.items() if name in own})


def _repeated(words: Sequence[str]) -> Config | None:
    """The configuration that `--config` names; None without it."""
    name = typed(words).get("config")
    return repeating.configured(Path(name)) if name else None


def _with_parts(words: Sequence[str], before: Config) -> list[str]:
    """The words with those parts of a run that they leave open."""
    names = [name for name in (*CHOICES, "env_kwargs") if name not in typed(words)]
    architecture = [] if _loose(words) else [str(flat(before)["architecture"])]
    return [*architecture, *words, *repeating.parts(before, names)]


def _loose(words: Sequence[str]) -> list[str]:
    """The words that are neither options nor values of options."""
    return [word for place, word in enumerate(words) if not word.startswith("-") and not _wants_value(words[:place])]


def _architecture(words: Sequence[str], prog: str) -> str:
    """The first word that is neither an option nor an option's value; else the first that names an architecture, as in
    `--overwrite paac`, unless it is the value of a choice, as in `--algorithm a2c`."""
    chosen = {place + 1 for place, word in enumerate(words) if word in map(flag, CHOICES)}
    named = [word for place, word in enumerate(words) if word in ARCHITECTURES and place not in chosen]
    for word in [*_loose(words), *named]:
        return word
    known = ", ".join(ARCHITECTURES)
    raise UserError(f"{prog}: no architecture; use {known} or your own module:Name, as in {prog} paac --env pong")


def _wants_value(before: Sequence[str]) -> bool:
    """Whether the word after these may be an option's value."""
    return bool(before) and before[-1].startswith("--") and "=" not in before[-1]


def _check(found: Mapping[str, str | None], composition: Composition, command: Sequence[type]) -> None:
    """Raise `UserError` for an option that the composition does not have, and for a value of a wrong type."""
    kinds = {
        name: (each, types(kind)[each.name])
        for kind in (*composition.kinds.values(), *command)
        for name, each in declared(kind).items()
    }
    for name, value in found.items():
        bare = name.removeprefix("no_")
        if name in (*CHOICES, "help") or (bare in kinds and kinds[bare][1] is bool):
            continue
        if name not in kinds:
            titles = (composition.choices.architecture, _algorithm(composition))
            raise refused(name, value or "", kinds, [str(each) for each in (*titles, composition.choices.env)])
        if value is None:
            raise UserError(f"{flag(name)}: needs a value")
        each, kind = kinds[name]
        _check_word(name, value, plain(kind), each.metadata)


def _check_word(name: str, word: str, kind: Any, limits: Mapping[str, Any]) -> None:
    if choices(kind) or kind not in (int, float):
        value: Any = as_plain(word, kind)
    else:
        try:
            value = to_int(word) if kind is int else kind(word)
        except ValueError:
            raise UserError(f"{flag(name)} {word}: must be of type {kind.__name__}") from None
    if choices(kind) or kind in (int, float, str, Sizes):
        check_value(flag(name), value, kind, limits)


def _parse(
    words: Sequence[str], composition: Composition, command: Sequence[type], prog: str, description: str
) -> dict[str, Any]:
    """Every option with its value."""
    kinds, values = composition.kinds, composition.values()
    groups = {
        "run": [
            _choice(
                "preset",
                "Source of the defaults: our tuning, the architecture's paper, or Stooke and Abbeel (2018).",
                "tuned",
                PRESETS,
            ),
            *arguments(kinds["run"], values),
            *(each for kind in command for each in arguments(kind)),
        ],
        "environment": [
            _choice("env", "An Atari game (pong), a Gymnasium id (CartPole-v1), module:factory or a toy.", MISSING, ()),
            *arguments(kinds["env"], values),
        ],
        "architecture": list(arguments(kinds["architecture"], values)),
        "algorithm": [
            _choice("algorithm", _named("Learning algorithm", ALGORITHMS), _algorithm(composition), ()),
            *arguments(kinds["algorithm"], values),
        ],
        "network": list(arguments(kinds["network"], values)),
        "optimizer": [
            _choice("optimizer", _named("Step rule", OPTIMIZERS), _optimizer(composition), ()),
            *arguments(kinds["optimizer"], values),
            *arguments(kinds["optimization"], values),
        ],
    }
    text = help_text(_named("Parallel architecture", ARCHITECTURES), metavar="ARCHITECTURE")
    parts: list[Any] = [("which", Annotated[str, tyro.conf.Positional, text])]
    parts += [(title, group(title, members)) for title, members in groups.items()]
    kind: type = make_dataclass(prog.title().replace(" ", ""), parts)
    made: Any = parse(kind, words, prog=prog, description=description)
    if made.which != (supposed := composition.choices.architecture):
        raise UserError(f"{prog}: {made.which} or {supposed}? Give the architecture first: {prog} {made.which} ...")
    inner = [vars(made)[title] for title in groups]
    return {each.name: getattr(part, each.name) for part in inner for each in fields(part)}


def _named(what: str, known: Mapping[str, str]) -> str:
    return f"{what}: {', '.join(known)}, or your own module:Name."


def _algorithm(composition: Composition) -> str:
    return name_of(composition.kinds["algorithm"], ALGORITHMS)


def _optimizer(composition: Composition) -> str:
    return name_of(composition.kinds["optimizer"], OPTIMIZERS)


def _choice(name: str, text: str, default: Any, allowed: Sequence[str]) -> tuple[str, Any, Any]:
    """The option that selects a part."""
    metavar = "{" + ",".join(allowed) + "}" if allowed else "NAME"
    if default is MISSING:
        return name, Annotated[str, help_text(text, metavar=metavar)], field()
    return name, Annotated[str, help_text(text, metavar=metavar)], field(default=default)
