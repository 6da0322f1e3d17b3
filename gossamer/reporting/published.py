"""Published scores of Atari games, each with the protocol under which it was measured.

`published.csv` has a row for each game and a column for each of `MEASURED`. An empty cell is a game that the paper does
not have. Random and human scores from no-op starts are those of `human`.

The numbers are those of seungjaeryanlee/rldb, of AI-metrics/AI-metrics (`random_hs`, `human_hs`) and of the paper
(`r2d2`). A second copy of the table agrees with all of them, except that there was none of `gorila`, `a3c`, `r2d2` and
`apex_hs`. Three games of `apex` on which the copies disagree are left out: Double Dunk, Venture and Video Pinball.
PAAC's scores are not here because no copy of its table was found to check them.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from gossamer.reporting import human

NOOP, HUMAN, STICKY = "no-op starts", "human starts", "sticky actions"
HALF_AN_HOUR, FIVE_MINUTES = 108_000, 18_000  # frames
A_MINUTE = 3_600  # frames


@dataclass(frozen=True)
class Protocol:
    """How a score was measured."""

    starts: str  # NOOP, HUMAN, or what makes games differ otherwise
    frame_cap: int | None = None  # emulator frames of a game; None: see `unknown`
    epsilon: float | None = None  # probability of a random action; None: not by epsilon, or see `unknown`
    averaged: str = ""  # what the score is the mean of
    best: bool = False  # the best score in training, not that of the last parameters
    unknown: tuple[str, ...] = ()  # what the sources at hand do not say

    def __str__(self) -> str:
        cap = f"{minutes(self.frame_cap)} min" if self.frame_cap else ""
        epsilon = "" if self.epsilon is None else f"epsilon {self.epsilon:g}"
        best = "best score in training" if self.best else ""
        return ", ".join(filter(None, (self.starts, cap, epsilon, self.averaged, best)))

    def differences(self, other: Protocol) -> list[str]:
        """What is not as in `other`, in words."""
        found = [] if self.starts == other.starts else [self.starts]
        if self.frame_cap and self.frame_cap != other.frame_cap:
            found.append(f"{minutes(self.frame_cap)}-minute cap")
        if self.epsilon is not None and self.epsilon != other.epsilon:
            found.append(f"epsilon {self.epsilon:g}")
        return found + ["best score in training"] * self.best


@dataclass(frozen=True)
class Score:
    """A score of an agent in one game."""

    agent: str
    score: float  # mean, undiscounted and unclipped
    protocol: Protocol
    source: str = ""


@dataclass(frozen=True)
class Measured:
    """A column of `published.csv`."""

    agent: str
    source: str
    protocol: Protocol


NULL_OPS = Protocol(NOOP, FIVE_MINUTES, averaged="30 games", unknown=("epsilon",))
WANG = "Wang et al. 2016, arXiv 1511.06581, Table 3"
NAIR = "Nair et al. 2015, arXiv 1507.04296"
HORGAN = "Horgan et al. 2018, arXiv 1803.00933"
MEASURED: Mapping[str, Measured] = {
    "dqn": Measured(
        "DQN",
        "Mnih et al. 2015, Nature 518, Extended Data Table 2",
        Protocol(NOOP, FIVE_MINUTES, 0.05, "30 games"),
    ),
    "gorila": Measured("Gorila", NAIR, NULL_OPS),
    "a3c": Measured(
        "A3C rerun",
        "Fortunato et al. 2018, arXiv 1706.10295 (A3C run again)",
        Protocol(NOOP, HALF_AN_HOUR, averaged="3 seeds"),
    ),
    "impala": Measured(
        "IMPALA deep",
        "Espeholt et al. 2018, arXiv 1802.01561, Table C.1",
        Protocol(NOOP, averaged="200 games", unknown=("frame cap",)),
    ),
    "apex": Measured("Ape-X", HORGAN, Protocol(NOOP, best=True, unknown=("frame cap", "epsilon"))),
    "r2d2": Measured(
        "R2D2",
        "Kapturowski et al. 2019, ICLR, Table 4",
        Protocol(NOOP, HALF_AN_HOUR, averaged="3 seeds", unknown=("epsilon",)),
    ),
    "random_hs": Measured("random", WANG, Protocol(HUMAN, HALF_AN_HOUR)),
    "human_hs": Measured("human", WANG, Protocol(HUMAN, HALF_AN_HOUR)),
    "dqn_hs": Measured("DQN", NAIR, Protocol(HUMAN, HALF_AN_HOUR, 0.05, "100 games")),
    "gorila_hs": Measured("Gorila", NAIR, Protocol(HUMAN, HALF_AN_HOUR, averaged="100 games", unknown=("epsilon",))),
    "a3c_hs": Measured(
        "A3C", "Mnih et al. 2016, arXiv 1602.01783, Table S3, feed-forward, 4 days", Protocol(HUMAN, HALF_AN_HOUR)
    ),
    "apex_hs": Measured("Ape-X", HORGAN, Protocol(HUMAN, best=True, unknown=("frame cap", "epsilon"))),
}


def published(env: str) -> list[Score]:
    """All published scores of a game, as named in `--env`: random, human, then agents; from no-op starts, then from
    human starts. Empty for another environment."""
    game = human.game(env)
    if game is None:
        return []
    low, high = human.RANDOM_AND_HUMAN[game]
    usual = Protocol(NOOP, HALF_AN_HOUR)
    found = [Score("random", low, usual, human.SOURCE), Score("human", high, usual, human.SOURCE)]
    cells = table()[game]
    return found + [
        Score(column.agent, float(cells[name]), column.protocol, column.source)
        for name, column in MEASURED.items()
        if cells[name]
    ]


def normalised(each: Score, scores: Sequence[Score]) -> float | None:
    """A score in units where random play is 0 and a human 1, from the same starts; None where those are not among
    `scores`, or where random play is the better one (Video Pinball from human starts)."""
    ends = {one.agent: one.score for one in scores if one.protocol.starts == each.protocol.starts}
    low, high = ends.get("random"), ends.get("human")
    if low is None or high is None or high <= low:
        return None
    return (each.score - low) / (high - low)


@cache
def table() -> dict[str, dict[str, str]]:
    """The cells of `published.csv`, by game and column."""
    with (files("gossamer.reporting") / "published.csv").open() as file:
        return {row["game"]: row for row in csv.DictReader(file)}


def minutes(frames: int) -> str:
    """Frames as minutes of play, at 60 frames per second."""
    return f"{frames / A_MINUTE:.3g}"
