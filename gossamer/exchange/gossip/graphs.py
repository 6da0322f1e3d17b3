"""Communication graphs: the senders and receivers of messages. Weights are in `mixing`, transport in `mailboxes` and
`proxy`.

Members are ranks; `members` is the sorted tuple of the active ones. If a member leaves, its neighbours become adjacent.
Some graphs vary over time: `exchange` counts exchanges from 1, and the graph repeats its edges after `cycle` exchanges.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Protocol, TypeAlias

Members: TypeAlias = tuple[int, ...]


class Graph(Protocol):
    """Edges between members at an exchange."""

    def out(self, rank: int, members: Members, exchange: int) -> Members:
        """Out-neighbours: the members that `rank` sends to."""

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        """In-neighbours: the members that `rank` receives from."""

    def cycle(self, members: int) -> int:
        """Number of exchanges after which every edge has been used."""


@dataclass(frozen=True)
class Ring:
    """Directed ring: each member sends to the next one (GALA's published graph; PALA's too)."""

    def out(self, rank: int, members: Members, exchange: int) -> Members:
        return _hops(rank, members, [1])

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        return _hops(rank, members, [-1])

    def cycle(self, members: int) -> int:
        return 1


@dataclass(frozen=True)
class Exponential:
    """Each member sends to those 1, 2, 4, 8, ... places ahead: log2 n messages, spectral gap O(1/log n) (static
    exponential graph, Ying et al. 2021)."""

    def out(self, rank: int, members: Members, exchange: int) -> Members:
        return _hops(rank, members, _powers(len(members)))

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        return _hops(rank, members, [-hop for hop in _powers(len(members))])

    def cycle(self, members: int) -> int:
        return 1


@dataclass(frozen=True)
class OnePeer:
    """Each member sends to one of those 1, 2, 4, 8, ... places ahead, in turn (SGP, Assran et al. 2019). In lock-step,
    the average is exact after log2 n exchanges if n is a power of two."""

    def out(self, rank: int, members: Members, exchange: int) -> Members:
        return _hops(rank, members, self._hop(members, exchange))

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        return _hops(rank, members, [-hop for hop in self._hop(members, exchange)])

    def cycle(self, members: int) -> int:
        return max(1, len(_powers(members)))

    def _hop(self, members: Members, exchange: int) -> list[int]:
        powers = _powers(len(members))
        return powers[(exchange - 1) % len(powers) :][:1] if powers else []


@dataclass(frozen=True)
class Complete:
    """Each member sends to all others."""

    def out(self, rank: int, members: Members, exchange: int) -> Members:
        return tuple(member for member in members if member != rank)

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        return self.out(rank, members, exchange)

    def cycle(self, members: int) -> int:
        return 1


@dataclass(frozen=True)
class RandomPairs:
    """A new random matching at each exchange, computed identically by all members (Boyd et al. 2006). With an odd
    number of members, one has no partner."""

    seed: int = 0

    def out(self, rank: int, members: Members, exchange: int) -> Members:
        order = list(members)
        random.Random(f"{self.seed} {exchange}").shuffle(order)
        place = order.index(rank)
        partner = place ^ 1
        return (order[partner],) if partner < len(order) else ()

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        return self.out(rank, members, exchange)

    def cycle(self, members: int) -> int:
        return 16 * members  # every pair has been matched by then, except with probability of about 1e-6


@dataclass(frozen=True)
class Hierarchical:
    """Alternates between a complete graph within each host of `group` members and a ring of hosts. In the ring, one
    member represents each host, a different one each time. Each host thus sends one message every two exchanges,
    regardless of its number of members. In lock-step every mixing matrix is doubly stochastic."""

    group: int

    def out(self, rank: int, members: Members, exchange: int) -> Members:
        return self._peers(rank, members, exchange, 1)

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        return self._peers(rank, members, exchange, -1)

    def cycle(self, members: int) -> int:
        return 2 * self.group

    def _peers(self, rank: int, members: Members, exchange: int, hop: int) -> Members:
        hosts, home = _by_host(members, self.group), rank // self.group
        if (exchange % 2 and self.group > 1) or len(hosts) == 1:
            return tuple(member for member in hosts[home] if member != rank)
        turn, names = exchange // 2, list(hosts)
        chosen = [here[turn % len(here)] for here in hosts.values()]  # the member that represents each host
        place = names.index(home)
        return (chosen[(place + hop) % len(names)],) if chosen[place] == rank else ()


@lru_cache(maxsize=64)
def _by_host(members: Members, group: int) -> dict[int, Members]:
    """Members by host, in order of hosts."""
    return {host: tuple(ranks) for host, ranks in groupby(members, lambda rank: rank // group)}


@dataclass(frozen=True)
class Edges:
    """Explicit directed edges. An inactive member is bridged: its in-neighbours send to its out-neighbours."""

    edges: tuple[tuple[int, int], ...]

    def out(self, rank: int, members: Members, exchange: int) -> Members:
        return self._reach(rank, members, {a: [d for s, d in self.edges if s == a] for a, _ in self.edges})

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        return self._reach(rank, members, {b: [s for s, d in self.edges if d == b] for _, b in self.edges})

    def cycle(self, members: int) -> int:
        return 1

    def _reach(self, rank: int, members: Members, next_to: dict[int, list[int]]) -> Members:
        found, seen, ahead = set[int](), {rank}, list(next_to.get(rank, []))
        while ahead:
            member = ahead.pop()
            if member in members:
                found.add(member)
            elif member not in seen:
                ahead += next_to.get(member, [])
            seen.add(member)
        return tuple(sorted(found - {rank}))


RING = Ring()


def strongly_connected(graph: Graph, members: Members) -> bool:
    """Whether the union of the edges over one cycle is strongly connected."""
    forward: dict[int, set[int]] = {m: set() for m in members}
    backward: dict[int, set[int]] = {m: set() for m in members}
    for exchange in range(1, graph.cycle(len(members)) + 1):
        for member in members:
            for other in graph.out(member, members, exchange):
                forward[member].add(other)
                backward[other].add(member)
    return all(len(_reached(edges, members[0])) == len(members) for edges in (forward, backward))


def _reached(edges: dict[int, set[int]], start: int) -> set[int]:
    found, ahead = {start}, [start]
    while ahead:
        new = edges[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def _powers(members: int) -> list[int]:
    """Powers of two below the number of members."""
    return [1 << i for i in range(max(0, members - 1).bit_length())]


def _hops(rank: int, members: Members, hops: Sequence[int]) -> Members:
    """The members that many places ahead of `rank`, without `rank` itself."""
    place = members.index(rank)
    return tuple(sorted({members[(place + hop) % len(members)] for hop in hops} - {rank}))
