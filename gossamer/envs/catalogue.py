"""Environments by name, as on a command line."""

from __future__ import annotations

import importlib.util
import re

from gossamer.envs.atari import GYMNASIUM, PRESETS, Atari, AtariPreset, list_games
from gossamer.envs.base import EnvFactory, missing_extra, near_names, unknown_env
from gossamer.envs.gym import Custom, Gym, find_spec, list_ids
from gossamer.envs.support import check_installed, trainable
from gossamer.envs.toy import Catch, Counter, Identity

ALE = "ALE/"  # ids of Atari games that Gymnasium has begin so
TOYS: tuple[EnvFactory, ...] = (Catch(), Catch(pixels=True), Identity(), Counter())


def resolve(name: str, *, preset: str | AtariPreset = "paac") -> EnvFactory:
    """What `name` means: a toy (`catch`), a factory (`module:factory`), a Gymnasium id (`CartPole-v1`,
    `module:Id-v0`) or an Atari game: `pong`, which is played by `preset`, or `ALE/Pong-v5`, which is what it is in
    Gymnasium.

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
        check_installed(name, find_spec(name))
        return Gym(name)
    known = names()
    if name in known["atari"]:
        return Atari(name, PRESETS[preset] if isinstance(preset, str) else preset)
    if name.startswith(ALE):
        return _ale(name, known["atari"])
    if not known["atari"] and re.fullmatch(r"[a-z][a-z0-9_]*", name) and not near_names(name, known["toy"]):
        raise missing_extra(f"{name!r} can only be an Atari game; the extra for these", "atari")
    raise unknown_env(name, [each for group in known.values() for each in group])


def _ale(name: str, games: tuple[str, ...]) -> Atari:
    """`ALE/SpaceInvaders-v5` is space_invaders as Gymnasium has it; other versions are not known."""
    if not games:
        raise missing_extra(f"{name!r} is an Atari game; the extra for these", "atari")
    by_id = {f"{ALE}{game.title().replace('_', '')}-v5": game for game in games}  # as ale-py makes its ids
    if name not in by_id:
        raise unknown_env(name, by_id)
    return Atari(by_id[name], GYMNASIUM)


def names() -> dict[str, tuple[str, ...]]:
    """What `resolve` knows, by kind: `toy`, `atari` (empty where ale-py is not installed), `gymnasium`."""
    return {
        "toy": tuple(toy.name for toy in TOYS),
        "atari": list_games() if _has_atari() else (),
        "gymnasium": list_ids(),
    }


def learnable() -> dict[str, tuple[str, ...]]:
    """Gymnasium's ids that can be trained, by the command that installs what they need; `""`: it is there."""
    return trainable(list_ids())


def _has_atari() -> bool:
    return importlib.util.find_spec("ale_py") is not None
