"""Environments by name, as on a command line."""

from __future__ import annotations

import importlib.util
import re

from gossamer.envs.atari import PRESETS, Atari, AtariPreset, list_games
from gossamer.envs.base import EnvFactory, missing_extra, near_names, unknown_env
from gossamer.envs.gym import Custom, Gym, find_spec, list_ids
from gossamer.envs.toy import Catch, Counter, Identity

TOYS: tuple[EnvFactory, ...] = (Catch(), Catch(pixels=True), Identity(), Counter())


def resolve(name: str, *, preset: str | AtariPreset = "paac") -> EnvFactory:
    """What `name` means: a toy (`catch`), a factory (`module:factory`), a Gymnasium id (`CartPole-v1`,
    `module:Id-v0`) or an Atari game (`pong`), which is played by `preset`.

    Raises `UnknownEnv` with near names, `MissingExtra` for what could be an Atari game where ale-py is not installed,
    `ValueError` for an unknown preset.
    """
    if isinstance(preset, str) and preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; there are {', '.join(PRESETS)}")
    for toy in TOYS:
        if name == toy.name:
            return toy
    module, _, member = name.partition(":")
    if module and member.isidentifier():
        custom = Custom(name)
        custom.load()
        return custom
    if member or name in list_ids():
        find_spec(name)
        return Gym(name)
    known = names()
    if name in known["atari"]:
        return Atari(name, PRESETS[preset] if isinstance(preset, str) else preset)
    if not known["atari"] and re.fullmatch(r"[a-z][a-z0-9_]*", name) and not near_names(name, known["toy"]):
        raise missing_extra(f"{name!r} can only be an Atari game; the extra for these", "atari")
    raise unknown_env(name, [each for group in known.values() for each in group])


def names() -> dict[str, tuple[str, ...]]:
    """What `resolve` knows, by kind: `toy`, `atari` (empty where ale-py is not installed), `gymnasium`."""
    return {
        "toy": tuple(toy.name for toy in TOYS),
        "atari": list_games() if _has_atari() else (),
        "gymnasium": list_ids(),
    }


def _has_atari() -> bool:
    return importlib.util.find_spec("ale_py") is not None
