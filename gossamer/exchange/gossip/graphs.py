"""Who sends to whom. A graph knows nothing of weights (`mixing`) or of how messages travel (`mailboxes`, `proxy`).

Members are ranks; `members` is the sorted tuple of those that take part now, so a graph closes the gap that one leaves.
Some graphs change from exchange to exchange, 1, 2, ...; `cycle` is after how many they have shown every edge.
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
        """Whom `rank` sends to."""

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        """Whose messages `rank` gets."""

    def cycle(self, members: int) -> int:
        """After how many exchanges every edge has been used."""


@dataclass(frozen=True)
class Ring:
    """Directed: each sends to the next (GALA's published graph; PALA's too)."""

    def out(self, rank: int, members: Members, exchange: int) -> Members:
        return _hops(rank, members, [1])

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        return _hops(rank, members, [-1])

    def cycle(self, members: int) -> int:
        return 1


@dataclass(frozen=True)
class Exponential:
    """To those 1, 2, 4, 8, ... places on, all at once (Ying et al. 2021): log2 n messages, spectral gap O(1/log n)."""

    def out(self, rank: int, members: Members, exchange: int) -> Members:
        return _hops(rank, members, _powers(len(members)))

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        return _hops(rank, members, [-hop for hop in _powers(len(members))])

    def cycle(self, members: int) -> int:
        return 1


@dataclass(frozen=True)
class OnePeer:
    """To one of those 1, 2, 4, 8, ... places on, in turn (Assran et al. 2019, SGP): one message, and in lock-step an
    exact average after log2 n exchanges where n is a power of two."""

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
    """Each to all others."""

    def out(self, rank: int, members: Members, exchange: int) -> Members:
        return tuple(member for member in members if member != rank)

    def into(self, rank: int, members: Members, exchange: int) -> Members:
        return self.out(rank, members, exchange)

    def cycle(self, members: int) -> int:
        return 1


@dataclass(frozen=True)
class RandomPairs:
    """A new random matching at each exchange, the same for everybody (Boyd et al. 2006); with an odd number of members
    one stays alone."""

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
        return 16 * members  # every pair has met by then, but for a chance of about 1 in 10^6


@dataclass(frozen=True)
class Hierarchical:
    """Dense where messages cost nothing, sparse where they do: in turn complete within each host of `group` members,
    and a ring of hosts, each spoken for by one of its members, another one every time. So one message leaves a host for
    every two of its members' averages, however many they are, and in lock-step every matrix is doubly stochastic."""

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
        speakers = [here[turn % len(here)] for here in hosts.values()]
        place = names.index(home)
        return (speakers[(place + hop) % len(names)],) if speakers[place] == rank else ()


@lru_cache(maxsize=64)
def _by_host(members: Members, group: int) -> dict[int, Members]:
    """Host -> its members, hosts in order."""
    return {host: tuple(ranks) for host, ranks in groupby(members, lambda rank: rank // group)}


@dataclass(frozen=True)
class Edges:
    """Directed edges as given. A member that is missing is bridged: who sent to it sends on to where it sent."""

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
    """Whether news of each member reaches all others, over one cycle of the graph."""
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
    """1, 2, 4, ... below the number of members."""
    return [1 << i for i in range(max(0, members - 1).bit_length())]


def _hops(rank: int, members: Members, hops: Sequence[int]) -> Members:
    """Those so many places on, itself left out."""
    place = members.index(rank)
    return tuple(sorted({members[(place + hop) % len(members)] for hop in hops} - {rank}))
