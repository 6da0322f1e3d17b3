"""`train --config`: a run once more, with the options of its `config.json`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gossamer.config.checks import effective
from gossamer.config.config import Config
from gossamer.config.file import flat, from_dict
from gossamer.config.resolve import Choices, Composition
from gossamer.system.errors import UserError
from gossamer.system.options import flag

FILE = "config.json"  # of a run directory


def configured(path: Path) -> Config:
    """The configuration in this file, or in that of this run directory. Raises `UserError` if there is none."""
    file = path / FILE if path.is_dir() else path
    try:
        return from_dict(json.loads(file.read_text()))[0]
    except OSError as error:
        raise UserError(f"--config {path}: cannot be read ({error.strerror}); give a run or its {FILE}") from error
    except UserError as error:
        raise UserError(f"--config {path}: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"--config {path}: not the {FILE} of a run ({error})") from error


def parts(config: Config, names: Collection[str]) -> list[str]:
    """The words that choose the parts of a run, of these names: `--env pong --algorithm ppo`. Keyword arguments belong
    to their environment."""
    options = flat(config)
    kwargs = options.get("env_kwargs") if {"env", "env_kwargs"} <= set(names) else None
    words = [word for name in names if name != "env_kwargs" for word in (flag(name), str(options[name]))]
    return [*words, "--env-kwargs", json.dumps(kwargs)] if kwargs else words


def check_preset(config: Config, preset: str, architecture: str, algorithm: str | None) -> None:
    """Raise `UserError` for a preset that is typed beside `--config`: all options have the values of the run. Another
    architecture or algorithm than the run's can have options that a preset sets."""
    of_run = flat(config)
    if (architecture, algorithm or of_run["algorithm"]) == (of_run["architecture"], of_run["algorithm"]):
        raise UserError(f"--preset {preset}: has no effect with --config, which repeats a run's options; leave it out")


def options(config: Config, choices: Choices, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run that a composition with these choices needs beside those that are `given`, to have the
    values of the run; without those that have no effect in it. A learning rate that fell until the end of the run falls
    until the end of the new one, too."""
    of_run = flat(config)
    of_run.pop("env_kwargs", None)
    if of_run["anneal_steps"] == of_run["steps"]:
        of_run["anneal_steps"] = given.get("steps", of_run["steps"])
    found = dict[str, Any]()
    while True:  # an option may change others by a rule, which then differ, too
        values = Composition(replace(choices, given={**found, **given})).values()
        more = {name: value for name, value in of_run.items() if name in values and value != values[name]}
        more = {name: value for name, value in more.items() if name not in (*found, *given)}
        if not more:
            return effective(found, values)
        found |= more
