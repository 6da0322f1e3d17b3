"""A checkpoint waits until all are idle, lets who is waited for act once more, and does not wait for who is gone."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import pytest
from sweeps import sweep

from gossamer.runtime import Answer, Stage
from gossamer.training.barrier import (
    PATIENCE_SECONDS,
    SETTLE_SECONDS,
    STALL_SECONDS,
    STUCK_SECONDS,
    Barrier,
    Phase,
)


class Kept:
    """A barrier, and a clock that the test turns."""

    def __init__(self, *services: str) -> None:
        self.time = 0.0
        self.barrier = Barrier({"a", "b"}, services, lambda: self.time)

    def claim(self, worker: str, *, idle: bool = True) -> Answer | None:
        answer = self.barrier.claim(worker, idle)
        self.barrier.advance()
        return self.claim(worker, idle=idle) if answer is Answer.GO else answer

    def settle(self, service: str) -> None:
        self.barrier.settled(service)
        self.barrier.advance()

    def save(self, name: str) -> bool:
        self.barrier.saved(name)
        return self.barrier.advance()


def test_claims_are_granted_while_no_checkpoint_is_taken() -> None:
    assert Kept().claim("a") is None


def test_workers_save_once_all_are_idle() -> None:
    kept = Kept()
    kept.barrier.begin()
    assert kept.claim("a") is Answer.WAIT
    assert kept.claim("a") is Answer.WAIT  # b still acts
    assert kept.claim("b") is Answer.WAIT
    assert [kept.claim("a"), kept.claim("b")] == [Answer.SAVE, Answer.SAVE]
    assert not kept.save("a")
    assert kept.claim("a") is Answer.WAIT
    assert kept.save("b")
    assert kept.claim("a") is None


def test_one_that_is_waited_for_acts_once_more() -> None:
    kept = Kept()
    kept.barrier.acted("b", 24)
    kept.barrier.acted("a", 8)  # the farthest behind
    kept.barrier.begin()
    assert kept.claim("a") is Answer.WAIT  # b waits for a in some service, and does not claim
    kept.time += STALL_SECONDS
    assert kept.claim("a") is None
    assert kept.claim("a") is Answer.WAIT
    assert kept.claim("b") is Answer.WAIT
    assert kept.claim("a") is Answer.SAVE


def three(a: int, b: int) -> Kept:
    """Three workers; a and b have acted so many steps and are idle, c has acted 24 and is not."""
    kept = Kept()
    kept.claim("c")
    for worker, steps in (("a", a), ("b", b), ("c", 24)):
        kept.barrier.acted(worker, steps)
    kept.barrier.begin()
    for worker in "ab":
        assert kept.claim(worker) is Answer.WAIT
    kept.time += STALL_SECONDS
    return kept


def test_it_is_the_one_that_has_acted_least() -> None:
    kept = three(16, 8)
    assert [kept.claim("a"), kept.claim("b")] == [Answer.WAIT, None]
    kept.barrier.acted("b", 8)
    assert kept.claim("b") is Answer.WAIT
    kept.time += STALL_SECONDS
    assert [kept.claim("b"), kept.claim("a")] == [Answer.WAIT, None]  # as far as each other: by name


def test_a_restarted_worker_counts_as_far_as_the_others() -> None:
    kept = Kept()
    for worker in "abc":
        kept.claim(worker)
        kept.barrier.acted(worker, 16)
    kept.barrier.died("a")
    kept.barrier.acted("a", 8)  # it has restarted where the others are, and acted: 24, not 8
    kept.barrier.begin()
    for worker in "ab":
        kept.claim(worker)
    kept.time += STALL_SECONDS
    assert [kept.claim("a"), kept.claim("b")] == [Answer.WAIT, None]


def test_leases_in_advance_are_not_granted_and_make_nobody_idle() -> None:
    kept = Kept()
    kept.barrier.begin()
    assert [kept.claim("a", idle=False), kept.claim("b", idle=False)] == [Answer.WAIT, Answer.WAIT]
    assert kept.barrier.phase is Phase.PAUSING


def test_services_settle_and_then_save() -> None:
    kept = Kept("Post")
    kept.barrier.begin()
    assert kept.barrier.due("Post") is None
    kept.claim("a")
    kept.claim("b")
    kept.save("a")
    assert not kept.save("b")
    assert kept.barrier.due("Post") is Stage.SETTLE
    assert kept.claim("a") is Answer.WAIT
    kept.settle("Post")
    kept.settle("Post")
    assert kept.barrier.due("Post") is Stage.SAVE
    assert kept.save("Post")


def test_services_are_asked_again_once_all_have_settled() -> None:
    """What one of them had on its way when another one answered has arrived there meanwhile."""
    kept = Kept("Post", "Post[1]")
    kept.barrier.begin()
    for name in ("a", "b"):
        kept.claim(name)
    for name in ("a", "b"):
        kept.save(name)
    kept.settle("Post")
    assert kept.barrier.due("Post") is None
    kept.settle("Post[1]")
    assert [kept.barrier.due(name) for name in ("Post", "Post[1]")] == [Stage.SETTLE] * 2
    kept.settle("Post[1]")
    assert kept.barrier.due("Post") is Stage.SETTLE
    kept.settle("Post")
    assert [kept.barrier.due(name) for name in ("Post", "Post[1]")] == [Stage.SAVE] * 2


def test_nobody_waits_for_a_service_that_is_away() -> None:
    kept = Kept("Post")
    kept.barrier.begin()
    kept.claim("a")
    kept.claim("b")
    kept.save("a")
    kept.save("b")
    kept.barrier.away("Post")
    assert kept.barrier.advance()
    kept.barrier.begin()
    kept.claim("a")
    kept.claim("b")
    kept.save("a")
    assert kept.save("b")  # it is still away: nothing has asked for it


def test_a_service_that_does_not_settle_saves_after_a_while() -> None:
    kept = Kept("Post")
    kept.barrier.begin()
    for name in ("a", "b"):
        kept.claim(name)
    for name in ("a", "b"):
        kept.save(name)
    for _ in range(2):
        kept.time += SETTLE_SECONDS
        kept.claim("a")
    assert kept.barrier.due("Post") is Stage.SAVE


def test_nobody_waits_for_a_worker_that_is_away_or_has_ended() -> None:
    kept = Kept()
    kept.barrier.begin()
    kept.claim("a")
    kept.barrier.away("b")
    kept.barrier.advance()
    assert kept.claim("a") is Answer.SAVE
    assert kept.claim("b") is Answer.WAIT  # it is back, and waits until this checkpoint is written
    assert kept.save("a")
    assert kept.claim("b") is None


def test_a_worker_that_never_becomes_idle_is_left_out_after_a_while() -> None:
    kept = Kept()
    kept.barrier.begin()
    while kept.barrier.phase is Phase.PAUSING:
        kept.claim("a")  # acts once more now and then: it may be what b waits for
        kept.time += STALL_SECONDS / 2
    assert kept.time > PATIENCE_SECONDS
    assert kept.barrier.missing == {"b"}
    assert kept.claim("a") is Answer.SAVE
    assert kept.save("a")


def test_services_that_were_away_or_have_not_saved_are_missing() -> None:
    kept = Kept("near", "far", "gone")
    kept.barrier.away("gone")
    kept.barrier.begin()
    for worker in ("a", "b"):
        kept.claim(worker)
    for worker in ("a", "b"):
        kept.claim(worker)
        kept.save(worker)
    for _ in range(2):
        for service in ("near", "far"):
            kept.settle(service)
    assert kept.barrier.phase is Phase.SERVICES
    kept.barrier.away("far")  # it is too slow
    assert kept.save("near")
    assert kept.barrier.missing == {"far", "gone"}


NEEDED: dict[str, Callable[[int], Collection[int]]] = {  # whose gradients or messages each of four workers needs
    "nobody": lambda worker: (),
    "pairs": lambda worker: (worker ^ 1,),
    "ring": lambda worker: ((worker - 1) % 4,),
    "all": lambda worker: range(4),
}


@pytest.mark.parametrize("seconds", [0.2, 2.0])  # of a rollout
@pytest.mark.parametrize("needed", NEEDED.values(), ids=NEEDED)
@sweep(200, 5)
def test_all_become_idle_however_long_rollouts_take(
    needed: Callable[[int], Collection[int]], seconds: float, seeds: range
) -> None:
    for seed in seeds:
        taken, missing = checkpoint(needed, seconds, random.Random(seed))
        assert not missing, seed
        assert taken < PATIENCE_SECONDS, seed


def checkpoint(
    needed: Callable[[int], Collection[int]], seconds: float, rng: random.Random
) -> tuple[float, frozenset[str]]:
    """The seconds until four workers save, and which of them are missing. Each acts, gives what the others need, and
    waits for what it needs itself."""
    names, time = [f"worker {each}" for each in range(4)], 0.0
    barrier = Barrier(names, (), lambda: time)
    ends, given, done = [0.0] * 4, [0] * 4, [0] * 4
    acting, begun = [False] * 4, seconds * rng.uniform(3, 5)
    while time < begun + 2 * PATIENCE_SECONDS:
        if barrier.phase is Phase.OPEN and time >= begun:
            barrier.begin()
        for each in rng.sample(range(4), 4):
            if acting[each] and time >= ends[each]:
                given[each] = done[each] + 1
            if acting[each] and all(given[other] > done[each] for other in (each, *needed(each))):
                done[each], acting[each] = done[each] + 1, False
                barrier.acted(names[each], 8)
            if not acting[each]:
                answer = barrier.claim(names[each], True)
                barrier.advance()
                if answer is Answer.SAVE:
                    return time - begun, barrier.missing
                acting[each] = answer is None
                ends[each] = time + seconds * rng.uniform(0.7, 1.3) if acting[each] else ends[each]
        time += 0.02
    raise AssertionError("no checkpoint")


def test_one_that_is_ahead_acts_once_more_where_nothing_moves_for_long() -> None:
    kept = three(32, 40)
    assert [kept.claim("a"), kept.claim("b")] == [Answer.WAIT, Answer.WAIT]
    kept.time += STUCK_SECONDS
    assert [kept.claim("b"), kept.claim("a")] == [Answer.WAIT, None]
