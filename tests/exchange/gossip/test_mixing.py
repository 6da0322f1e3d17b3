"""Weights of averages: rows sum to one; what push-sum gives away arrives."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.exchange.gossip.mixing import LEAST, PushSum, Uniform


def test_a_ring_s_weights_are_a_half() -> None:
    assert Uniform().incoming(1.0, 1, [1.0]) == (1.0, [0.5])
    assert Uniform().incoming(1.0, 1, []) == (1.0, [])


def test_the_share_of_what_did_not_come_stays() -> None:
    assert Uniform().incoming(1.0, 3, [1.0]) == (1.0, [0.25])
    assert Uniform().incoming(1.0, 1, [1.0, 1.0]) == (1.0, [1 / 3, 1 / 3])  # two where one was meant to come


def test_push_sum_gives_equal_parts_and_takes_all_that_comes() -> None:
    assert PushSum().outgoing(1.0, 1) == (0.5, 0.5)
    weight, shares = PushSum().incoming(0.5, 1, [0.25, 0.25])
    assert (weight, shares) == (1.0, [0.25, 0.25])
    assert PushSum().outgoing(LEAST / 2, 1) == (0.0, LEAST / 2)  # keeps what it has
    assert PushSum().outgoing(1.0, 0) == (0.0, 1.0)


@given(
    kept=st.floats(LEAST, 10), degree=st.integers(0, 8), weights=st.lists(st.floats(1e-3, 10), max_size=8)
)  # fmt: skip
def test_shares_are_a_convex_combination(kept: float, degree: int, weights: list[float]) -> None:
    for mixing in (Uniform(), PushSum()):
        _, shares = mixing.incoming(kept, degree, weights)
        assert len(shares) == len(weights)
        assert all(share > 0 for share in shares)
        assert 1 - sum(shares) > 0


@given(seed=st.integers(0, 1000))
def test_push_sum_conserves_the_weighted_sum_in_any_order(seed: int) -> None:
    # Five members that send at random to random others, and take in at random what has come
    rng, push = random.Random(seed), PushSum()
    x, w = [rng.gauss(0, 1) for _ in range(5)], [1.0] * 5
    boxes: list[list[tuple[float, float]]] = [[] for _ in range(5)]
    before = sum(x)
    for _ in range(60):
        i = rng.randrange(5)
        to = rng.sample(range(5), rng.randint(0, 3))
        each, kept = push.outgoing(w[i], len(to))
        for j in to if each else []:
            boxes[j].append((each, x[i]))
        w[i], shares = push.incoming(kept, 1, [weight for weight, _ in boxes[i]])
        x[i] = x[i] * (1 - sum(shares)) + sum(s * v for s, (_, v) in zip(shares, boxes[i], strict=True))
        boxes[i] = []
    flying = [letter for box in boxes for letter in box]
    assert sum(w) + sum(weight for weight, _ in flying) == pytest.approx(5)
    assert sum(a * b for a, b in zip(x, w, strict=True)) + sum(a * b for a, b in flying) == pytest.approx(before)
