"""Who sends to whom: every graph reaches everybody, and in- and out-neighbours are two views of the same edges."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.exchange.gossip.graphs import (
    Complete,
    Edges,
    Exponential,
    Graph,
    Hierarchical,
    OnePeer,
    RandomPairs,
    Ring,
    strongly_connected,
)
from gossamer.exchange.gossip.mixing import Uniform

GRAPHS: list[Graph] = [Ring(), Exponential(), OnePeer(), Complete(), RandomPairs(3), Hierarchical(2), Hierarchical(3)]


def matrix(graph: Graph, members: int, iteration: int) -> torch.Tensor:
    """The mixing matrix of one synchronous iteration with uniform weights, row by row."""
    everybody, rows = tuple(range(members)), torch.zeros(members, members, dtype=torch.float64)
    for rank in everybody:
        into = graph.into(rank, everybody, iteration)
        _, shares = Uniform().incoming(1.0, len(into), [1.0] * len(into))
        rows[rank, rank] = 1 - sum(shares)
        for sender, share in zip(into, shares, strict=True):
            rows[rank, sender] = share
    return rows


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
@given(members=st.sets(st.integers(0, 40), min_size=1, max_size=17), iteration=st.integers(1, 50))
def test_in_and_out_are_the_same_edges(graph: Graph, members: set[int], iteration: int) -> None:
    ranks = tuple(sorted(members))
    out = {(a, b) for a in ranks for b in graph.out(a, ranks, iteration)}
    into = {(a, b) for b in ranks for a in graph.into(b, ranks, iteration)}
    assert out == into
    assert not [edge for edge in out if edge[0] == edge[1] or not {*edge} <= members]


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
@given(members=st.sets(st.integers(0, 40), min_size=1, max_size=17))
def test_whoever_is_left_is_still_connected(graph: Graph, members: set[int]) -> None:
    assert strongly_connected(graph, tuple(sorted(members)))


def test_a_ring_of_four() -> None:
    members = (0, 1, 2, 3)
    assert [Ring().out(rank, members, 1) for rank in members] == [(1,), (2,), (3,), (0,)]
    assert Ring().out(1, (0, 1, 3), 1) == (3,)  # 2 has left: the gap is closed


def test_exponential_graphs_reach_powers_of_two() -> None:
    members = tuple(range(10))
    assert Exponential().out(3, members, 1) == (1, 4, 5, 7)  # 3 + 1, 2, 4, 8 = 11 -> 1
    assert [OnePeer().out(3, members, k) for k in range(1, 6)] == [(4,), (5,), (7,), (1,), (4,)]


def test_hierarchical_is_dense_within_a_host_and_sparse_between() -> None:
    members = tuple(range(6))  # hosts {0, 1}, {2, 3}, {4, 5}

    def out(k: int, members: tuple[int, ...] = members) -> list[tuple[int, ...]]:
        return [Hierarchical(2).out(rank, members, k) for rank in members]

    assert out(1) == out(3) == [(1,), (0,), (3,), (2,), (5,), (4,)]
    assert out(2) == [(), (3,), (), (5,), (), (1,)]
    assert out(4) == [(2,), (), (4,), (), (0,), ()]
    assert out(2, (0, 1, 2, 4, 5)) == [(), (2,), (5,), (), (1,)]  # 3 has left: 2 always speaks for its host
    assert out(1, (0, 1, 2, 4, 5)) == [(1,), (0,), (), (5,), (4,)]
    assert out(1, (4, 5)) == out(2, (4, 5)) == [(5,), (4,)]  # one host is left: nobody to speak to
    ring = [Hierarchical(1).out(rank, (0, 1, 2), k) for k in (1, 2) for rank in range(3)]
    assert ring == [(1,), (2,), (0,)] * 2


def test_random_pairs_are_pairs_and_change() -> None:
    members, seen = tuple(range(6)), set()
    for k in range(1, 30):
        for rank in members:
            (partner,) = RandomPairs(1).out(rank, members, k)
            assert RandomPairs(1).out(partner, members, k) == (rank,)
            seen.add((rank, partner))
    assert len(seen) == 30  # all ordered pairs of six
    alone = [rank for rank in range(5) if not RandomPairs(1).out(rank, tuple(range(5)), 1)]
    assert len(alone) == 1


def test_edges_bridge_the_missing() -> None:
    graph = Edges(((0, 1), (1, 2), (2, 0)))
    assert strongly_connected(graph, (0, 1, 2))
    assert graph.out(0, (0, 2), 1) == (2,)
    assert graph.into(2, (0, 2), 1) == (0,)
    assert not strongly_connected(Edges(((0, 1), (1, 0), (1, 2))), (0, 1, 2))  # no way back from 2


@pytest.mark.parametrize("graph", [Ring(), Exponential(), Complete(), Hierarchical(4)], ids=str)
@pytest.mark.parametrize("members", [4, 8, 12])
def test_uniform_weights_are_doubly_stochastic_on_a_regular_graph(graph: Graph, members: int) -> None:
    ones = torch.ones(members, dtype=torch.float64)
    for k in (1, 2, 3, 4):
        rows = matrix(graph, members, k)
        torch.testing.assert_close(rows.sum(0), ones)
        torch.testing.assert_close(rows.sum(1), ones)


@pytest.mark.parametrize("members", [2, 3, 4, 6, 8, 16])
def test_a_ring_contracts_by_the_cosine(members: int) -> None:
    # ||D P D||_2 = cos(pi / n) for the directed ring with weights 1/2: |1 + exp(2 pi i / n)| / 2
    d = torch.eye(members, dtype=torch.float64) - 1 / members
    norm = torch.linalg.matrix_norm(d @ matrix(Ring(), members, 1) @ d, 2)
    assert norm.item() == pytest.approx(math.cos(math.pi / members), abs=1e-9)


@pytest.mark.parametrize("members", [2, 4, 8, 16])
def test_one_peer_exponential_is_an_exact_average_after_log2_n(members: int) -> None:
    product = torch.eye(members, dtype=torch.float64)
    for k in range(1, int(math.log2(members)) + 1):
        product = matrix(OnePeer(), members, k) @ product
    torch.testing.assert_close(product, torch.full((members, members), 1 / members, dtype=torch.float64))
