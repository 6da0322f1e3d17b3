"""Leases between the driver and a host: some ahead of their use, none lost or used twice, whatever is asked again."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.launch.ray import leases
from gossamer.launch.ray.leases import RATE_SECONDS, Demand, Granted, Leases
from gossamer.runtime import Answer, Silent
from gossamer.training.barrier import STALL_SECONDS, Barrier
from gossamer.training.budget import Budget

STEPS = 8


class Owner(Silent):
    """A budget, and a barrier of the workers a and b."""

    def __init__(self, steps: int) -> None:
        self.time = 0.0
        self.budget, self.barrier = Budget(steps), Barrier({"a", "b"}, (), lambda: self.time)

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        answer = self.barrier.claim(worker, idle)
        self.barrier.advance()
        if answer is not None:
            return answer
        position = self.budget.lease(worker, steps)
        return Answer.END if position is None else position

    def save(self, name: str, state: Any) -> None:
        self.barrier.saved(name)
        self.barrier.advance()


class Pair:
    """Both ends of the worker a, and looks between them."""

    def __init__(self, steps: int = 1000) -> None:
        self.owner = Owner(steps)
        self.restart()

    def restart(self) -> None:
        self.time = 0.0
        self.leases, self.granted = Leases(lambda: self.time), Granted()

    def claim(self, steps: int = STEPS) -> int | Answer:
        return self.leases.claim(steps)

    def look(self, *, seconds: float = 0.0) -> Demand:
        """Grants there, the demand back."""
        self.time += seconds
        self.leases.take(self.granted.grant())
        demand = self.leases.demand()
        self.granted.satisfy("a", demand, self.owner)
        return demand

    def looks(self) -> None:
        """Once for the demand, once for the answer to it."""
        self.look()
        self.leases.take(self.granted.grant())


@pytest.fixture(autouse=True)
def _one_second_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "AHEAD_SECONDS", 1.0)


def used(pair: Pair, most: int = 100) -> list[int]:
    """The leases that the worker may use now."""
    found = []
    while len(found) < most and isinstance(position := pair.claim(), int):
        found.append(position)
    return found


def test_a_first_claim_waits_for_the_driver() -> None:
    pair = Pair()
    assert pair.claim() is Answer.WAIT
    assert pair.leases.idle
    pair.looks()
    assert not pair.leases.idle
    assert used(pair) == [0]


def test_leases_come_ahead_of_their_use_as_fast_as_they_are_used() -> None:
    pair = Pair()
    pair.claim()
    pair.looks()
    assert pair.claim() == 0
    assert pair.look(seconds=RATE_SECONDS).ahead == 5  # one in a quarter of a second: four in a second, and one more
    pair.leases.take(pair.granted.grant())
    assert used(pair) == [8, 16, 24, 32, 40]
    assert pair.look(seconds=RATE_SECONDS / 100).ahead == 5  # too short a time to count in


def test_one_that_waits_is_not_held_to_one_lease_per_look() -> None:
    pair = Pair()
    pair.claim()
    pair.looks()
    assert pair.claim() == 0
    assert pair.claim() is Answer.WAIT
    pair.look(seconds=RATE_SECONDS)
    pair.leases.take(pair.granted.grant())
    assert len(used(pair)) == 5


def test_a_grant_that_comes_twice_counts_once_and_one_that_is_lost_comes_again() -> None:
    pair = Pair()
    pair.claim()
    demand = pair.leases.demand()
    pair.granted.satisfy("a", demand, pair.owner)
    for _ in range(3):
        pair.leases.take(pair.granted.grant())
    assert used(pair) == [0]
    pair.leases.take(pair.granted.grant())
    assert used(pair) == []
    pair.granted.satisfy("a", demand, pair.owner)  # an older demand, again
    assert pair.look().received == 1
    assert pair.owner.budget.granted == 2 * STEPS  # what is used, and one ahead
    for _ in range(3):
        pair.look()
    assert pair.owner.budget.granted == 2 * STEPS


def test_claims_of_no_steps_ask_only_whether_to_go_on() -> None:
    pair = Pair()
    assert pair.claim(0) is Answer.WAIT
    pair.looks()
    assert pair.claim(0) == 0
    assert pair.owner.budget.granted == 0


def test_all_leases_are_used_before_the_end() -> None:
    pair = Pair(steps=5 * STEPS)
    pair.claim()
    pair.looks()
    pair.claim()
    pair.look(seconds=RATE_SECONDS)
    pair.leases.take(pair.granted.grant())
    assert used(pair) == [8, 16, 24, 32]
    assert pair.claim() is Answer.END
    pair.looks()
    assert pair.claim() is Answer.END
    assert pair.owner.budget.granted == 5 * STEPS


def prefetched() -> Pair:
    """A worker with leases ahead, of which it has used one."""
    pair = Pair()
    pair.claim()
    pair.looks()
    pair.claim()
    pair.look(seconds=RATE_SECONDS)
    pair.leases.take(pair.granted.grant())
    return pair


def test_a_checkpoint_stops_a_worker_that_has_leases_and_lets_it_go_on_with_them() -> None:
    pair = prefetched()
    granted = pair.owner.budget.granted
    pair.owner.barrier.begin()
    pair.looks()
    assert pair.claim() is Answer.WAIT
    pair.look()
    assert pair.owner.claim("b", STEPS) is Answer.WAIT  # the other one is idle
    pair.looks()
    assert pair.claim() is Answer.SAVE
    pair.leases.saved()
    assert pair.claim() is Answer.WAIT
    pair.owner.save("a", None)
    pair.owner.save("b", None)
    pair.looks()
    assert used(pair) == [8, 16, 24, 32, 40]
    assert pair.owner.budget.granted >= granted


def test_one_that_others_wait_for_acts_once_more_before_a_checkpoint() -> None:
    pair = prefetched()
    pair.owner.barrier.begin()
    pair.looks()
    assert pair.claim() is Answer.WAIT
    pair.look()
    pair.owner.time += STALL_SECONDS
    pair.look()
    pair.look()  # it has not looked at its leases yet; what it was granted stays
    pair.look()
    assert used(pair) == [8]
    pair.looks()
    assert used(pair) == []
    pair.owner.time += STALL_SECONDS
    pair.looks()
    assert used(pair) == [16]


def test_a_restarted_host_begins_with_no_leases() -> None:
    pair = prefetched()
    assert pair.owner.budget.release("a") == 6 * STEPS  # none was reported
    pair.restart()
    assert pair.claim() is Answer.WAIT
    pair.looks()
    assert used(pair) == [0]


@pytest.mark.parametrize("answer", [Answer.WAIT, Answer.SAVE, Answer.END])
def test_leases_ahead_are_no_claim_of_an_idle_worker(answer: Answer) -> None:
    asked = list[tuple[int, bool]]()

    class Asked(Silent):
        def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
            asked.append((steps, idle))
            return answer

    Granted().satisfy("a", Demand(STEPS, received=0, used=0, ahead=3, idle=False), Asked())
    assert asked == [(STEPS, False)]
