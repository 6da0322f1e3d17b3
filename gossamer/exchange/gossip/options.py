"""Options of gossip, their implied values, and their translation to `Gossip`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

from gossamer.exchange.gossip import graphs, mixing
from gossamer.exchange.gossip.formats import Format
from gossamer.exchange.gossip.gossip import PERIOD, WINDOW, Gossip, room
from gossamer.exchange.gossip.mailboxes import Post
from gossamer.exchange.gossip.outer import Outer
from gossamer.exchange.gossip.sparse import Select, Sparse
from gossamer.system.errors import UserError, near
from gossamer.system.options import option

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

# The options of an architecture that gossips, which gives their defaults: `graph: str = GRAPH("ring")`
GRAPH = partial(option, f"Communication graph: {', '.join(GRAPHS)}, or edges (0>1,1>2,2>0).")
MIXING = partial(option, "Weights of received messages.")
SYNC = partial(option, "When a learner waits for its neighbours: never, beyond --staleness, or at each exchange.")
STALENESS = partial(
    option,
    "With --sync bounded: largest staleness of a neighbour's newest message.",
    least=0,
    most=1_000_000,
    measure="optimizer steps",
)
INTERVAL = partial(
    option, "From one average with the neighbours to the next.", least=1, most=1_000_000, measure="optimizer steps"
)
GROUP_SIZE = partial(
    option,
    "Learners that average their gradients at each step and gossip as one member; 1: each learner is a member.",
    least=1,
    most=1024,
)
SHARE = partial(option, "Share of the parameters that each message has; 1: all.", above=0, most=1)
SELECT = partial(
    option,
    "With --share below 1: drawn by a common seed, each part in turn, or those that have changed most since they were "
    "exchanged.",
)
OUTER_MOMENTUM = partial(
    option, "Nesterov momentum of the local steps between two averages (Outer-PPO, DiLoCo).", least=0, below=1
)
OUTER_LEARNING_RATE = partial(
    option, "Factor of the local steps between two averages, and of their momentum.", above=0, most=10
)
STALENESS_DECAY = partial(
    option,
    "Divide the weight of a message by 1 + its age, in exchanges, to this power (FedAsync); 0: no.",
    least=0,
    most=10,
)
DIAGNOSTICS = partial(
    option, "Measure the consensus distance and its bound every 500 optimizer steps (below 0.5 % of the time)."
)


@dataclass(frozen=True)
class Gossiping:
    """How members gossip, whatever carries their messages; see `Gossip`."""

    graph: graphs.Graph = graphs.RING
    mixing: mixing.Mixing = mixing.UNIFORM
    staleness: float = math.inf
    lock_step: bool = False
    interval: int = 1
    period: int = PERIOD  # iterations between the starts of two observation windows; 0 disables them
    window: int = WINDOW
    sparse: Sparse | None = None  # which parameters are exchanged; None: all
    outer: Outer | None = None
    decay: float = 0.0  # exponent; 0: shares do not depend on age
    rounding: Format | None = None  # see `Gossip`
    form: Format = "fp32"  # to which couriers round

    @property
    def adds(self) -> bool:
        """Whether unread messages of a sender are added up."""
        return self.mixing.adds and not self.lock_step

    @property
    def newest(self) -> bool:
        """Whether only a sender's newest unread message is kept."""
        return not self.mixing.adds and not self.lock_step

    def through(self, post: Post, member: int | None = None) -> Gossip:
        """The exchange whose messages `post` carries. `member`: see `Gossip`."""
        return Gossip(
            post,
            self.graph,
            self.mixing,
            self.staleness,
            self.lock_step,
            self.interval,
            period=self.period,
            window=self.window,
            sparse=self.sparse,
            outer=self.outer,
            decay=self.decay,
            rounding=self.rounding,
            form=self.form,
            member=member,
        )


def connected_graph(name: str, *, hosts: int, members: int, seed: int) -> graphs.Graph:
    """The graph of so many members on each host. Raises `UserError` if it is unknown, or if it has no path from every
    member to every other."""
    return _connected(name, named_graph(name, members, seed), hosts * members)


def groups(hosts: int, learners: int, size: int) -> int:
    """Groups of so many learners on each host. Raises `UserError` unless they are equally large, and if all are single
    and have no neighbour."""
    if learners % size:
        fit = ", ".join(str(each) for each in range(1, learners + 1) if learners % each == 0)
        within = " of each host, because a group is within a host: groups of different hosts gossip" * (hosts > 1)
        raise UserError(f"--group-size {size}: must divide --learners {learners}{within}; these do: {fit}")
    if hosts * learners < 2:
        raise UserError(f"--learners {learners}: gossip needs at least two members, not {hosts * learners}")
    return learners // size


def bound(sync: Sync, staleness: int, interval: int) -> float:
    """The bound on staleness; infinite if learners never wait. Raises `UserError` if it is too small for `interval`."""
    longest = int(room(staleness))
    if sync == "bounded" and interval > longest:
        raise UserError(
            f"--interval {interval}: must be at most {longest}, a quarter of --staleness {staleness}; or give "
            f"--staleness {4 * interval}"
        )
    return math.inf if sync == "never" else staleness


class Options(Protocol):
    """The options of an architecture that gossips."""

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
    def group_size(self) -> int: ...
    @property
    def share(self) -> float: ...
    @property
    def select(self) -> Select: ...
    @property
    def outer_momentum(self) -> float: ...
    @property
    def outer_learning_rate(self) -> float: ...
    @property
    def staleness_decay(self) -> float: ...
    @property
    def diagnostics(self) -> bool: ...


def gossiping(
    chosen: Options, seed: int, *, hosts: int, learners: int, rounding: Format | None = None, form: Format = "fp32"
) -> Gossiping:
    """How members gossip by these options, with so many learners on each host. `rounding`, `form`: see `Gossip`.
    Raises `UserError` for what does not work together."""
    members = groups(hosts, learners, chosen.group_size)
    return Gossiping(
        graph=connected_graph(chosen.graph, hosts=hosts, members=members, seed=seed),
        mixing=MIXINGS[chosen.mixing],
        staleness=bound(chosen.sync, chosen.staleness, chosen.interval),
        lock_step=chosen.sync == "lock-step",
        interval=chosen.interval,
        period=PERIOD if chosen.diagnostics else 0,
        sparse=sparse(chosen, seed),
        outer=outer(chosen.outer_momentum, chosen.outer_learning_rate),
        decay=decay(chosen),
        rounding=rounding,
        form=form,
    )


def outer(momentum: float, learning_rate: float) -> Outer | None:
    """The outer optimizer; None where it would leave the parameters as they are."""
    return Outer(momentum, learning_rate) if (momentum, learning_rate) != (0, 1) else None


def decay(chosen: Options) -> float:
    """The exponent by which weights fall with age. Raises `UserError` for what this does not work with."""
    option_ = f"--staleness-decay {chosen.staleness_decay:g}"
    if chosen.staleness_decay and chosen.mixing != "uniform":
        raise UserError(
            f"{option_}: --mixing {chosen.mixing} would lose what it takes from a weight; use --mixing uniform"
        )
    if chosen.staleness_decay and chosen.sync == "lock-step":
        raise UserError(f"{option_}: has no effect with --sync lock-step, where no message is old")
    return chosen.staleness_decay


def sparse(chosen: Options, seed: int) -> Sparse | None:
    """Which parameters are exchanged; None: all. Raises `UserError` for what this does not work with."""
    if chosen.share == 1:
        return None
    share = f"--share {chosen.share:g}"
    if chosen.mixing != "uniform":
        raise UserError(f"{share}: --mixing {chosen.mixing} has weights of whole vectors; use --mixing uniform")
    if chosen.select == "changed" and (chosen.graph != "complete" or chosen.sync != "lock-step"):
        raise UserError(
            "--select changed: each learner must hear of all that others send; use --graph complete --sync lock-step, "
            "or --select rotation"
        )
    return Sparse(chosen.share, chosen.select, seed)


def named_graph(name: str, members: int, seed: int) -> graphs.Graph:
    """Return the graph with this name, or with the edges in `name`. `members`: of each host."""
    if name == "hierarchical":
        return graphs.Hierarchical(members)
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
