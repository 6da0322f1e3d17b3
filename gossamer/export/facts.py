"""What a model card says about a policy: its scores, and the licence of its environment."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium

from gossamer.config.names import ARCHITECTURES, load
from gossamer.envs.catalogue import TOYS
from gossamer.envs.interface import Interface
from gossamer.evaluation.acting import actions
from gossamer.evaluation.members import AVERAGE
from gossamer.export.snapshot import Snapshot
from gossamer.presets.layers import algorithms_of
from gossamer.storage.contents import EVALUATIONS
from gossamer.system.kwargs import titled

PROTOCOLS = {
    "noop": "whole games, up to 30 no-ops at the start",
    "sticky": "whole games, actions repeat with probability 0.25",
    "plain": "whole games",
}
TRAINING = "training return: mean of the last 100 training episodes{whose}, exploring actions"
MUJOCO = "gymnasium.envs.mujoco."


@dataclass(frozen=True)
class Score:
    """A result of the policy."""

    mean: float
    deviation: float | None  # of the games; None where it is not known
    protocol: str

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.deviation is None else f"{self.mean:.2f} +/- {self.deviation:.2f}"


@dataclass(frozen=True)
class Facts:
    """The content of a model card."""

    snapshot: Snapshot
    scores: tuple[Score, ...]
    licence: str  # of the environment

    @property
    def interface(self) -> Interface:
        return self.snapshot.description.interface

    def choice(self, place: str) -> str:
        """The name of a part of the run, as in `gossamer list`."""
        return str(self.snapshot.description.config[place]["name"])

    @property
    def title(self) -> str:
        """Architecture, algorithm where it is not the architecture's own, and environment."""
        architecture, algorithm = self.choice("architecture"), self.choice("algorithm")
        known = architecture in ARCHITECTURES  # a user's may be elsewhere
        own = algorithms_of(load("architecture", architecture, ARCHITECTURES))[:1] if known else ()
        env = titled(self.interface.name, self.snapshot.description.config["env"].get("env_kwargs"))
        return " ".join([architecture, *([] if algorithm in own else [algorithm]), "on", env])


def facts(directory: Path, snapshot: Snapshot) -> Facts:
    """The facts of a policy of a run directory. Scores are those of `gossamer evaluate` or `--eval-every` for this
    checkpoint and member; without one, the return while training."""
    scores = tuple(_evaluations(directory, snapshot))
    if not scores and snapshot.training_return is not None:
        whose = " of all members" if snapshot.member == AVERAGE else ""
        scores = (Score(snapshot.training_return, None, TRAINING.format(whose=whose)),)
    return Facts(snapshot, scores, licence(snapshot.description.interface))


def _evaluations(directory: Path, snapshot: Snapshot) -> Iterator[Score]:
    """Of `gossamer evaluate`, else of `--eval-every`."""
    files = [file.read_text(errors="replace") for file in sorted(directory.glob("evaluation-*.json"))]
    yield from _scores(files, snapshot) or _scores(_lines(directory / EVALUATIONS), snapshot)


def _lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines() if file.exists() else []


def _scores(texts: Sequence[str], snapshot: Snapshot) -> list[Score]:
    """The evaluations of this checkpoint and member."""
    scores = list[Score]()
    for text in texts:
        try:
            found: dict[str, Any] = json.loads(text)
            if (found["checkpoint"], found.get("member")) == (snapshot.checkpoint, snapshot.member):
                scores += _each_score(found)
        except (ValueError, KeyError, TypeError):  # a card can do without an evaluation that is damaged
            continue
    return scores


def _each_score(found: dict[str, Any]) -> Iterator[Score]:
    """The score of an evaluation; of several games their mean, and then that of each."""
    games = found.get("games") or {}
    yield Score(float(found["mean_return"]), float(found["std_return"]), _protocol(found, games))
    for game, own in games.items() if len(games) > 1 else ():
        one = {**found, **own, "episodes": len(own["returns"])}
        yield Score(float(own["mean_return"]), float(own["std_return"]), _protocol(one, [game]))


def _protocol(found: dict[str, Any], games: Collection[str]) -> str:
    """The protocol of an evaluation, for people. `games`: that were played, of a policy for several."""
    drawn = actions(bool(found.get("greedy")), found.get("epsilon"))
    cut = f", {found['cut_off']} cut off after {found['max_steps']:,} steps" if found.get("cut_off") else ""
    name = found["protocol"]
    of = f", {' and '.join(games)}" if games else ""
    return f"{name}: {found['episodes']} {PROTOCOLS.get(name, 'games')}{of}, {drawn}{cut}"


def licence(interface: Interface) -> str:
    """The licence of an environment, for people."""
    if interface.preset is not None:
        return "GPL-2.0 (the Arcade Learning Environment; the games' ROMs have owners of their own)"
    if any(interface.name == toy.name for toy in TOYS):
        return "Apache-2.0 (part of Gossamer)"
    spec = gymnasium.registry.get(interface.name)
    entry = "" if spec is None else str(spec.entry_point)
    if entry.startswith(MUJOCO):
        return "MIT (Gymnasium) and Apache-2.0 (MuJoCo)"
    return "MIT (Gymnasium)" if entry.startswith("gymnasium.") else "unknown: yours"
