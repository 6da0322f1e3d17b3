"""Environments by name, as given on the command line."""

from __future__ import annotations

import importlib.util
import re

from gossamer.envs.atari import GYMNASIUM, PRESETS, Atari, AtariPreset, list_games
from gossamer.envs.base import EnvFactory, UnknownEnv, missing_extra, near_names, unknown_env
from gossamer.envs.games import Games, Share
from gossamer.envs.gym import Custom, Gym, find_spec, list_ids
from gossamer.envs.own import in_file
from gossamer.envs.packages import advice
from gossamer.envs.pool import MODULE, EnvPool
from gossamer.envs.support import check_installed, trainable
from gossamer.envs.toy import Catch, Counter, Identity, Recall
from gossamer.system.errors import UserError

ALE = "ALE/"  # prefix of the Gymnasium ids of Atari games
_FIVE = "battle_zone,double_dunk,name_this_game,phoenix,qbert"
SETS = {  # Aitchison et al. 2023, "Atari-5: Distilling the Arcade Learning Environment down to Five Games", table 4
    "atari-3": "battle_zone,name_this_game,phoenix",
    "atari-5": _FIVE,
    "atari-10": f"amidar,bowling,frostbite,kung_fu_master,riverraid,{_FIVE}",
}
MOST = 1000  # of a game's share
NUMBER = re.compile(r"[-+]?[0-9.]+")  # a share, perhaps a wrong one
TOYS: tuple[EnvFactory, ...] = (Catch(), Catch(pixels=True), Identity(), Counter(), Recall())


def resolve(name: str, *, preset: str | AtariPreset = "paac") -> EnvFactory:
    """Return the factory for a toy (`catch`), a user's factory (`module:factory`), a Gymnasium id (`CartPole-v1`,
    `module:Id-v0`) or an Atari game. `pong` is preprocessed by `preset`, `ALE/Pong-v5` as in Gymnasium.
    Several names with commas between them, each with a share after a colon or without (`pong:2,breakout`), and the name
    of a set (`atari-5`) return `Games`. The share of a set is that of each of its games.

    Raises `UnknownEnv` with similar names, `MissingExtra` for a possible Atari game if ale-py is not installed, and
    `ValueError` for an unknown preset.
    """
    if isinstance(preset, str) and preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; there are {', '.join(PRESETS)}")
    if "," in name or name.partition(":")[0] in SETS:
        return _games(name, preset)
    for toy in TOYS:
        if name == toy.name:
            return toy
    module, _, share = name.rpartition(":")
    if module and NUMBER.fullmatch(share):
        raise UserError(f"--env {name}: one game has no share; leave :{share} out, or add games after a comma")
    module, _, member = name.partition(":")
    if module and member.isidentifier():
        custom = Custom(name)
        custom.load()
        return custom
    if module == MODULE:
        env = EnvPool(member)
        env.check()
        return env
    if member or name in list_ids():
        check_installed(name, find_spec(name))
        return Gym(name)
    known = names()
    if name in known["atari"]:
        return Atari(name, PRESETS[preset] if isinstance(preset, str) else preset)
    if name.startswith(ALE):
        return _ale(name, known["atari"])
    if instead := advice(name):
        raise UnknownEnv(f"unknown environment {name!r}; {instead}")
    if own := in_file(name):
        raise UnknownEnv(f"unknown environment {name!r}; near: {', '.join(own)} (in {name.removesuffix('.py')}.py)")
    if not known["atari"] and re.fullmatch(r"[a-z][a-z0-9_]*", name) and not near_names(name, known["toy"]):
        raise missing_extra(f"{name!r} can only be an Atari game; the extra for these", "atari")
    raise unknown_env(name, [each for group in known.values() for each in group])


def _games(name: str, preset: str | AtariPreset) -> EnvFactory:
    """Several games. Raises `UserError` for a share that is no number from 1 to `MOST`, and for a game that is there
    twice."""
    shares = list[Share]()
    for each in name.split(","):
        game, _, count = each.strip().rpartition(":")
        part, share = (game, count) if game and NUMBER.fullmatch(count) else (each.strip(), "1")
        if not part:
            raise UserError(f"--env {name}: a name is missing beside a comma")
        if not (share.isdecimal() and 1 <= int(share) <= MOST):
            raise UserError(f"--env {name}: the share of {part} must be an integer from 1 to {MOST}")
        for env in SETS.get(part, part).split(","):
            shares.append(Share(resolve(env, preset=preset), int(share)))
            if [other.env.name for other in shares].count(shares[-1].env.name) > 1:
                raise UserError(f"--env {name}: {env} is there twice; give it a larger share, as {env}:2")
    return Games(tuple(shares))


def _ale(name: str, games: tuple[str, ...]) -> Atari:
    """Return the game for an id such as `ALE/SpaceInvaders-v5`; only v5 is supported."""
    if not games:
        raise missing_extra(f"{name!r} is an Atari game; the extra for these", "atari")
    by_id = {f"{ALE}{game.title().replace('_', '')}-v5": game for game in games}  # ale-py's naming scheme
    if name not in by_id:
        raise unknown_env(name, by_id)
    return Atari(by_id[name], GYMNASIUM)


def names() -> dict[str, tuple[str, ...]]:
    """Return the names for `resolve` by kind: `toy`, `atari` (empty without ale-py), `gymnasium`."""
    return {
        "toy": tuple(toy.name for toy in TOYS),
        "atari": list_games() if _has_atari() else (),
        "gymnasium": list_ids(),
    }


def learnable() -> dict[str, tuple[str, ...]]:
    """Return the supported Gymnasium ids by the command that installs their missing packages (`""`: none missing)."""
    return trainable(list_ids())


def _has_atari() -> bool:
    return importlib.util.find_spec("ale_py") is not None
