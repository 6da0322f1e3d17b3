"""Options of gossip by their names on the command line, what follows from them, and the parts that they mean."""

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

GRAPH = f"Which member sends to which: {', '.join(GRAPHS)}, or edges (0>1,1>2,2>0)."
MIXING = "How messages are weighted."
SYNC = "When a learner waits for its neighbours: never, beyond --staleness, or at each exchange."
STALENESS = "With --sync bounded: how far behind the newest message of a neighbour may be."
INTERVAL = "From one average with the neighbours to the next."
DIAGNOSTICS = (
    "Measure how far members are apart and the bound of it, every 500 optimizer steps (below 0.5 % of the time)."
)


class Gossiping(Protocol):
    """The options that architectures with gossip have in common."""

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
    """What the options mean, as `gala` and `pala` take it."""

    graph: graphs.Graph
    mixing: mixing.Mixing
    staleness: float
    lock_step: bool
    interval: int
    period: int  # iterations from one observation window to the next; 0: none


def parts(options: Gossiping, *, hosts: int, learners: int, seed: int) -> Parts:
    """The parts that these options mean, with `learners` on each host. `UserError` where they cannot be."""
    members = hosts * learners
    if members < 2:
        raise UserError(f"--learners {learners}: gossip needs at least two members; {members} would be alone")
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
    """A graph by its name, or by its edges."""
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
            f"--graph {name}: no such graph{near(name, GRAPHS)}; there is {known}, or edges as 0>1,1>2,2>0"
        ) from error


def _connected(name: str, graph: graphs.Graph, members: int) -> graphs.Graph:
    if isinstance(graph, graphs.Edges) and (odd := {m for e in graph.edges for m in e} - set(range(members))):
        raise UserError(f"--graph {name}: no member {min(odd)}; they are 0 to {members - 1}")
    if not graphs.strongly_connected(graph, tuple(range(members))):
        raise UserError(
            f"--graph {name}: not strongly connected, so members would never agree; "
            "there must be a way along edges from each member to every other"
        )
    return graph


def follow(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """What the options given imply for the others: a staleness asks for --sync bounded, a bound limits the interval."""
    sync, staleness, interval = values["sync"], values["staleness"], values["interval"]
    if "staleness" in given and "sync" not in given:
        sync = "bounded"
    if "staleness" in given and sync != "bounded":
        raise UserError(f"--staleness {staleness}: has no meaning with --sync {sync}; give --sync bounded")
    if "interval" not in given and sync != "never":
        interval = 1 if sync == "lock-step" else int(min(interval, room(staleness)))
    return {"sync": sync, "interval": interval}
