"""Scores of runs beside published ones: as lines, as rows of a table, and as data."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gossamer.evaluation.acting import actions
from gossamer.reporting.published import HALF_AN_HOUR, NOOP, STICKY, Protocol, Score, normalised, published

REFERENCES = ("random", "human")
STARTS = {"noop": NOOP, "sticky": STICKY}  # by the name of an evaluation's protocol
TRAINING = Protocol("training episodes", averaged="last 100 episodes")


class Played(typing.Protocol):
    """Games of an evaluation: `Evaluation`, or `Games` of a report."""

    @property
    def protocol(self) -> str: ...
    @property
    def episodes(self) -> int: ...
    @property
    def greedy(self) -> bool: ...
    @property
    def epsilon(self) -> float | None: ...
    @property
    def max_steps(self) -> int | None: ...


def protocol(games: Played, frames_per_step: int) -> Protocol:
    """The protocol of an evaluation."""
    cap = HALF_AN_HOUR if games.max_steps is None else min(HALF_AN_HOUR, games.max_steps * frames_per_step)
    chosen = [] if games.epsilon is not None else [actions(games.greedy, None)]
    number = f"{games.episodes} game{'s' * (games.episodes > 1)}"
    return Protocol(STARTS.get(games.protocol, "starts of training"), cap, games.epsilon, ", ".join([*chosen, number]))


def rows(env: str, own: Sequence[Score]) -> list[tuple[str, str, float, float | None]]:
    """Agent, protocol, score and human-normalised score: `own` scores after the published ones from no-op starts, and
    after those the agents that have scores from human starts only. Empty for an environment without published ones."""
    known = published(env)
    chosen = _chosen(known, own) if known else []
    return [(each.agent, str(each.protocol), each.score, normalised(each, known)) for each in chosen]


def note(env: str, own: Protocol) -> str:
    """How the protocols of the published scores in `rows` differ from `own`, and what is not known of them."""
    agents = [each for each in _chosen(published(env)) if each.agent not in REFERENCES]
    differing = _by_agents((what, each.agent) for each in agents for what in each.protocol.differences(own))
    unknown = _by_agents((what, each.agent) for each in agents for what in each.protocol.unknown)
    told = {"Here": str(own), "Different": differing, "Not known": unknown}
    return " ".join(f"{what}: {words}." for what, words in told.items() if words)


def lines(env: str, own: Score) -> Iterator[str]:
    """A table of at most 12 lines with the published scores of a game, one of our own, and `note`."""
    found = rows(env, [own])
    if not found:
        return
    cells = [("", "score", "human = 1", "protocol")]
    cells += [(agent, f"{score:,.1f}", _ratio(share), how) for agent, how, score, share in found]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    for agent, score, share, how in cells:
        yield f"{agent:<{widths[0]}}  {score:>{widths[1]}}  {share:>{widths[2]}}  {how}"
    yield note(env, own.protocol)


def entries(env: str, own: Protocol) -> list[dict[str, Any]]:
    """All published scores of a game as data, with what differs from the protocol `own`."""
    known = published(env)
    return [
        {
            "agent": each.agent,
            "score": each.score,
            "human_normalised": normalised(each, known),
            "starts": each.protocol.starts,
            "frame_cap": each.protocol.frame_cap,
            "epsilon": each.protocol.epsilon,
            "averaged": each.protocol.averaged or None,
            "best_in_training": each.protocol.best,
            "differs": each.protocol.differences(own),
            "not_known": list(each.protocol.unknown),
            "source": each.source,
        }
        for each in known
    ]


def _chosen(scores: Sequence[Score], own: Sequence[Score] = ()) -> list[Score]:
    usual = [each for each in scores if each.protocol.starts == NOOP]
    agents = {each.agent for each in usual}
    return [*usual, *own, *(each for each in scores if each.agent not in agents)]


def _by_agents(pairs: Iterable[tuple[str, str]]) -> str:
    """`5-minute cap (DQN, Gorila), epsilon 0.05 (DQN)`."""
    agents = dict[str, list[str]]()
    for what, agent in pairs:
        agents.setdefault(what, []).append(agent)
    return ", ".join(f"{what} ({', '.join(each)})" for what, each in agents.items())


def _ratio(share: float | None) -> str:
    return "-" if share is None else f"{round(share, 2) + 0.0:.2f}"  # no minus before 0.00
