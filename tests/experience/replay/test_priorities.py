"""The sum tree: totals, and draws in proportion to priorities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.experience.replay.priorities import Priorities, PrioritiesOfGames


@given(count=st.integers(1, 700), batches=st.lists(st.integers(1, 40), max_size=6), seed=st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_the_total_is_the_sum_and_leaves_of_priority_0_are_never_drawn(
    count: int, batches: list[int], seed: int
) -> None:
    """Batches may have a leaf several times: the last priority counts."""
    tree, rng, plain = Priorities(count), np.random.default_rng(seed), np.zeros(count)
    for size in batches:
        leaves = rng.integers(0, count, size)
        new = rng.random(size) * (rng.random(size) < 0.6) * 10.0 ** rng.integers(-9, 9)
        tree.set(leaves, new)
        for leaf, priority in zip(leaves, new, strict=True):
            plain[leaf] = priority
    assert np.array_equal(tree.leaves, plain)
    assert tree.total == pytest.approx(plain.sum(), rel=1e-12)
    if plain.any():
        drawn = tree.draw(500, torch.Generator().manual_seed(seed))
        assert (plain[drawn] > 0).all()
    else:
        with pytest.raises(ValueError, match="all priorities are 0"):
            tree.draw(1, torch.Generator())


def test_leaves_are_drawn_in_proportion_to_their_priorities() -> None:
    """Chi-square of 64,000 draws among 299 leaves, in batches of 64: below 376.3 with probability 0.999 at 298 degrees
    of freedom. Stratified draws vary less than independent ones."""
    tree, rng = Priorities(300), torch.Generator().manual_seed(3)
    priorities = np.random.default_rng(1).random(300) + 0.1
    priorities[7] = 0.0
    tree.set(np.arange(300), priorities)
    counts = np.bincount(np.concatenate([tree.draw(64, rng) for _ in range(1000)]), minlength=300)
    expected = 64_000 * priorities / priorities.sum()
    assert counts[7] == 0
    assert ((counts - expected)[expected > 0] ** 2 / expected[expected > 0]).sum() < 376.3


def test_a_batch_has_each_leaf_as_often_as_its_share_rounded_up_or_down() -> None:
    """Of shares 0.5, 0.3, 0.2 of ten draws: one from each tenth of the total, so exactly 5, 3 and 2."""
    tree = Priorities(40)
    tree.set(np.array([3, 20, 39]), np.array([5.0, 3.0, 2.0]))
    assert sorted(tree.draw(10, torch.Generator().manual_seed(0))) == [3] * 5 + [20] * 3 + [39] * 2


def test_sums_stay_exact_after_many_changes() -> None:
    """Small priorities beside a large one that comes and goes: 1e16 + 1 - 1e16 would be 0."""
    tree = Priorities(100)
    tree.set(np.arange(100), 1.0)
    for _ in range(50):
        tree.set(np.array([50]), 1e16)
        tree.set(np.array([50]), 1.0)
    assert tree.total == 100.0


def test_a_tree_has_leaves() -> None:
    with pytest.raises(ValueError, match="needs at least one"):
        Priorities(0)


@given(seed=st.integers(0, 999), exponent=st.integers(-6, 6))
@settings(max_examples=40, deadline=None)
def test_each_game_is_drawn_by_its_steps_and_its_leaves_by_their_priorities(seed: int, exponent: int) -> None:
    """The third game has steps and no leaf yet. Priorities of the second one are larger by `exponent` powers of ten."""
    rng, drawing = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    tree, game = PrioritiesOfGames(60, 3), rng.integers(0, 2, 60)
    game[:2] = 0, 1
    plain = (rng.random(60) + 0.1) * 10.0 ** (exponent * game)
    tree.set(np.arange(60), plain, game)
    tree.set(np.array([5]), 0.0, game[[5]])
    plain[5] = 0.0
    assert np.array_equal(tree.leaves, plain)
    assert np.array_equal(tree.of(np.array([3, 5, 9])), plain[[3, 5, 9]])

    scales = tree.scales(np.array([300, 100, 50]), windows=59)
    chance = plain / np.array([plain[game == each].sum() for each in (0, 1)])[game] * np.array([0.75, 0.25])[game]
    assert tree.total(scales) == pytest.approx(59)
    leaves, mass = tree.draw(4000, drawing, scales)
    assert np.allclose(mass, 59 * chance[leaves])
    counts = np.bincount(leaves, minlength=60)
    assert counts[5] == 0
    assert abs(counts[game == 0].sum() - 3000) <= 1  # stratified
    assert abs(counts - 4000 * chance).max() <= 2


def test_one_game_is_drawn_as_by_one_tree() -> None:
    plain, one, games = np.random.default_rng(2).random(300), Priorities(300), PrioritiesOfGames(300, 1)
    one.set(np.arange(300), plain)
    games.set(np.arange(300), plain, np.zeros(300, np.int64))
    scales = games.scales(np.array([7]), windows=300)
    leaves, mass = games.draw(64, torch.Generator().manual_seed(1), scales)
    assert games.total(scales) == one.total
    assert np.array_equal(leaves, one.draw(64, torch.Generator().manual_seed(1)))
    assert np.array_equal(mass, plain[leaves])
