"""Command-line options of gossip, their implied values, and their translation to `Gossip` arguments."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

from gossamer.errors import UserError, near
from gossamer.exchange.gossip import graphs, mixing
from gossamer.exchange.gossip.gossip import PERIOD, room

Mix: TypeAlias = Literal["uniform", "push-sum"]
Sync: TypeAlias = Literal["never", "bounded", "lock-step"]

GRAPHS: dict[str, graphs.Graph] = {
    "ring": graphs.Ring(),
    "exponential": graphs.Exponential(),
    "one-peer": graphs.OnePeer(),
    "complete": graphs.Complete(),
    "random-pairs": graphs.RandomPairs(),
    "hierarchical": graphs.Hierarchical(1),
}
MIXINGS: dict[Mix, mixing.Mixing] = {"uniform": mixing.Uniform(), "push-sum": mixing.PushSum()}

GRAPH = f"Communication graph: {', '.join(GRAPHS)}, or edges (0>1,1>2,2>0)."
MIXING = "Weights of received messages."
SYNC = "When a learner waits for its neighbours: never, beyond --staleness, or at each exchange."
STALENESS = "With --sync bounded: largest staleness of a neighbour's newest message."
INTERVAL = "From one average with the neighbours to the next."
DIAGNOSTICS = "Measure the consensus distance and its bound every 500 optimizer steps (below 0.5 % of the time)."


class Gossiping(Protocol):
    """Options shared by all gossip architectures."""

    @property
    def graph(self) -> str: ...
    @property
    def mixing(self) -> Mix: ...
    @property
    def sync(self) -> Sync: ...
    @property
    def staleness(self) -> int: ...
    @property
    def interval(self) -> int: ...
    @property
    def diagnostics(self) -> bool: ...


class Parts(TypedDict):
    """Keyword arguments of `gala` and `pala`."""

    graph: graphs.Graph
    mixing: mixing.Mixing
    staleness: float
    lock_step: bool
    interval: int
    period: int  # iterations between the starts of two observation windows; 0 disables them


def parts(options: Gossiping, *, hosts: int, learners: int, seed: int) -> Parts:
    """Translate the options for `learners` members on each host. Raises `UserError` if they are invalid."""
    members = hosts * learners
    if members < 2:
        raise UserError(f"--learners {learners}: gossip needs at least two members, not {members}")
    longest = int(room(options.staleness))
    if options.sync == "bounded" and options.interval > longest:
        what = f"--interval {options.interval}"
        raise UserError(f"{what}: must be at most {longest}, a quarter of --staleness {options.staleness}")
    return Parts(
        graph=_connected(options.graph, named_graph(options.graph, learners, seed), members),
        mixing=MIXINGS[options.mixing],
        staleness=math.inf if options.sync == "never" else options.staleness,
        lock_step=options.sync == "lock-step",
        interval=options.interval,
        period=PERIOD if options.diagnostics else 0,
    )


def named_graph(name: str, learners: int, seed: int) -> graphs.Graph:
    """Return the graph with this name, or with the edges in `name`."""
    if name == "hierarchical":
        return graphs.Hierarchical(learners)
    if name == "random-pairs":
        return graphs.RandomPairs(seed)
    if name in GRAPHS:
        return GRAPHS[name]
    try:
        edges = [tuple(int(end) for end in edge.split(">")) for edge in name.split(",")]
        return graphs.Edges(tuple((source, target) for source, target in edges))
    except ValueError as error:
        known = ", ".join(GRAPHS)
        raise UserError(
            f"--graph {name}: unknown graph{near(name, GRAPHS)}; use {known}, or edges as in 0>1,1>2,2>0"
        ) from error


def _connected(name: str, graph: graphs.Graph, members: int) -> graphs.Graph:
    if isinstance(graph, graphs.Edges) and (odd := {m for e in graph.edges for m in e} - set(range(members))):
        raise UserError(f"--graph {name}: no member {min(odd)}; members are 0 to {members - 1}")
    if not graphs.strongly_connected(graph, tuple(range(members))):
        raise UserError(
            f"--graph {name}: not strongly connected, so members would not reach consensus; "
            "every member must be reachable from every other"
        )
    return graph


def follow(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Return implied values: --staleness implies --sync bounded, and a staleness bound limits the interval."""
    sync, staleness, interval = values["sync"], values["staleness"], values["interval"]
    if "staleness" in given and "sync" not in given:
        sync = "bounded"
    if "staleness" in given and sync != "bounded":
        raise UserError(f"--staleness {staleness}: not used with --sync {sync}; give --sync bounded")
    if "interval" not in given and sync != "never":
        interval = 1 if sync == "lock-step" else int(min(interval, room(staleness)))
    return {"sync": sync, "interval": interval}
