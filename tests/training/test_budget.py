"""Steps are leased before they are acted, counted once, and come back when the worker that leased them dies."""

from __future__ import annotations

import random

import pytest

from gossamer.training.budget import Budget


def test_positions_follow_each_other_and_the_last_lease_may_go_beyond_the_total() -> None:
    budget = Budget(total=50)
    assert [budget.lease(worker, 20) for worker in "abab"] == [0, 20, 40, None]
    assert [budget.report("a", 40), budget.report("b", 20)] == [40, 20]
    assert (budget.acted, budget.missing, budget.granted) == (60, 0, 60)


def test_what_was_not_reported_comes_back() -> None:
    budget = Budget(total=60)
    for _ in range(3):
        budget.lease("a", 20)
    budget.report("a", 20)
    assert budget.lease("b", 20) is None
    assert budget.release("a") == 40
    assert [budget.lease("b", 20), budget.lease("b", 20), budget.lease("b", 20)] == [20, 40, None]


def test_what_was_taken_back_does_not_count_when_it_is_reported() -> None:
    budget = Budget(total=40)
    budget.lease("a", 20)
    budget.release("a")
    assert budget.report("a", 20) == 0
    assert budget.acted == 0


def test_a_resumed_run_goes_on_behind_what_was_acted() -> None:
    budget = Budget(total=100, acted=60)
    assert [budget.lease("a", 40), budget.lease("a", 40)] == [60, None]


def test_a_claim_of_nothing_is_always_granted() -> None:
    budget = Budget(total=20, acted=20)
    assert budget.lease("a", 0) == 20
    assert budget.granted == 20


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_no_more_is_granted_than_one_lease_beyond_the_total(seed: int) -> None:
    rng, budget, held = random.Random(seed), Budget(total=1_000), {"a": 0, "b": 0, "c": 0}
    while budget.missing:
        worker = rng.choice("abc")
        size = rng.choice([7, 20, 31])
        match rng.randrange(4):
            case 0:
                assert budget.release(worker) == held[worker]
                held[worker] = 0
            case 1 | 2 if budget.lease(worker, size) is not None:
                held[worker] += size
            case _:
                part = rng.randint(0, held[worker])
                assert budget.report(worker, part) == part
                held[worker] -= part
        assert budget.granted == budget.acted + sum(held.values()) < 1_000 + 31


def test_leases_in_advance_end_before_the_budget_does() -> None:
    # Two workers: of 800 steps that nobody has leased, each may have 800 / 8 = 100 in advance, then less and less
    budget = Budget(total=800)
    assert budget.near_end("a", 101, 2)
    leases = 0
    while not budget.near_end("a", 10, 2):
        budget.lease("a", 10)
        leases += 1
    assert leases == 9  # 80 + 10 <= (800 - 80) / 8, but 90 + 10 > (800 - 90) / 8
    budget.lease("b", 700)
    assert budget.near_end("b", 10, 2)
