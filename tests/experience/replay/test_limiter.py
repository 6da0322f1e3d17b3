"""The limiter of a shared replay memory: who waits for whom, step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from some_services import ticks

from gossamer.algorithms.base import ReplayPlan
from gossamer.data import Rollout
from gossamer.experience.replay.limiter import STARTING, Granted, Inserted, Limiter
from gossamer.runtime import GONE, WouldBlock

PLAN = ReplayPlan(capacity=1000, batch_size=4, window=1, samples_per_insert=0.5, learning_starts=20)
NOTHING = Inserted()


def a_limiter(max_ahead: float = 8, plan: ReplayPlan = PLAN) -> Limiter:
    return Limiter(plan, max_ahead, {"act[0]": 0, "act[1]": 1}, ["learn"])


def drawn(limiter: Limiter) -> Granted | None:
    """Leave for the learner's next batch."""
    return limiter.sample("learn", 0, limiter._last("learn")[1] + 1)


def test_a_learner_waits_until_a_batch_is_owed_of_the_steps_since_learning_began() -> None:
    """Rollouts of 10 steps: the second one reaches 20 and owes 5 samples, of which a batch takes 4; the third, 6."""
    limiter = a_limiter(max_ahead=100)
    assert limiter.insert(0, 0, NOTHING, 10)
    with pytest.raises(WouldBlock):
        drawn(limiter)
    assert limiter.insert(0, 0, Inserted(1, 10, 0), 10)
    with pytest.raises(WouldBlock):
        drawn(limiter)
    assert limiter.insert(0, 0, Inserted(2, 10, 10), 10)
    assert drawn(limiter) == Granted((Rollout(0, 0, 1, 0, 10), Rollout(0, 0, 2, 10, 10)), position=10)
    with pytest.raises(WouldBlock):
        drawn(limiter)
    assert limiter.insert(0, 0, Inserted(3, 10, 20), 10)
    assert drawn(limiter) == Granted((Rollout(0, 0, 3, 20, 10),), position=20)


def test_an_actor_waits_while_its_rollout_and_those_that_run_would_be_too_far_ahead() -> None:
    """After 20 steps 5 samples are owed. One rollout more would make 10, of at most 8; after a batch, 6."""
    limiter = a_limiter()
    for number in range(2):
        limiter.insert(0, 0, Inserted(number, 10 * (number > 0), 0), 10)
    with pytest.raises(WouldBlock):
        limiter.insert(0, 0, Inserted(2, 10, 10), 10)
    drawn(limiter)
    assert limiter.insert(0, 0, Inserted(2, 10, 10), 10)  # it was counted with the call that would have waited
    with pytest.raises(WouldBlock):
        limiter.insert(1, 0, NOTHING, 10)  # 1 is owed, and two rollouts would make 11


def test_a_call_that_is_executed_twice_counts_once() -> None:
    limiter = a_limiter(max_ahead=100)
    for _ in range(3):
        limiter.insert(0, 0, Inserted(1, 30, 0), 10)
    assert drawn(limiter).fresh == 30  # type: ignore[union-attr]


def test_after_all_actors_have_ended_what_is_owed_is_drawn_and_no_more() -> None:
    limiter = a_limiter(max_ahead=100)
    limiter.insert(0, 0, NOTHING, 20)
    limiter.leave(0, 0, Inserted(1, 20, 0))
    limiter.leave(1, 0, NOTHING)
    assert [drawn(limiter) is None for _ in range(3)] == [False, False, True]  # 10 are owed, then 6, then 2
    assert limiter.tick(0.0)  # if its host were restarted now, the learner would have to be told again
    limiter.close("learn")
    assert not limiter.tick(0.0)


def test_a_learner_that_never_calls_again_keeps_nobody_waiting() -> None:
    limiter = a_limiter()
    for actor in range(2):
        limiter.leave(actor, 0, NOTHING)
    assert ticks(limiter, 0.0, GONE)
    assert not limiter.tick(GONE + 1)


def test_actors_end_with_the_learners() -> None:
    limiter = a_limiter()
    limiter.close("learn")
    assert not limiter.insert(0, 0, NOTHING, 10)
    restarted = a_limiter()
    restarted.forget({"learn"})
    assert not restarted.insert(0, 0, NOTHING, 10)


def test_an_earlier_life_of_an_actor_does_nothing() -> None:
    limiter = a_limiter()
    assert limiter.insert(0, 1, NOTHING, 10)
    assert not limiter.insert(0, 0, Inserted(9, 10, 0), 10)
    limiter.leave(0, 0, NOTHING)
    assert limiter.tick(0.0)


def test_silent_actors_count_as_ended_until_they_call() -> None:
    limiter = a_limiter()
    for actor in range(2):
        assert limiter.insert(actor, 0, NOTHING, 10)
    ticks(limiter, 0.0, GONE)
    with pytest.raises(WouldBlock):
        drawn(limiter)
    limiter.tick(GONE + 1)
    assert drawn(limiter) is None
    assert not ticks(limiter, GONE + 2, 2 * GONE + 2)
    assert limiter.insert(0, 0, NOTHING, 10)
    assert limiter.tick(2 * GONE + 3)


def test_actors_are_not_silent_while_the_process_is_paused() -> None:
    """The clock is that of the machine, which has long been up; one actor calls before the first tick."""
    limiter = a_limiter()
    assert limiter.insert(0, 0, NOTHING, 10)
    assert limiter.tick(50_000.0)
    assert limiter.insert(1, 0, NOTHING, 10)
    assert limiter.tick(60_000.0)
    with pytest.raises(WouldBlock):
        drawn(limiter)


def test_actors_whose_environments_start_slowly_are_waited_for_but_not_for_ever() -> None:
    limiter = a_limiter()
    ticks(limiter, 0.0, STARTING)
    with pytest.raises(WouldBlock):
        drawn(limiter)
    limiter.tick(STARTING + 1)
    assert drawn(limiter) is None


def test_a_restarted_limiter_knows_from_actors_what_shards_have() -> None:
    limiter = a_limiter(max_ahead=100)
    limiter.insert(0, 0, Inserted(7, 10, 70, held=70), 10)
    # 70 of 20 steps are there, and 5 samples owed
    assert drawn(limiter) == Granted((Rollout(0, 0, 7, 70, 10),), position=70)


def test_less_room_than_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="max_ahead=3: must be at least a batch of 4 samples"):
        a_limiter(max_ahead=3)
    assert replace(PLAN, batch_size=3).batch_size == 3
    a_limiter(max_ahead=3, plan=replace(PLAN, batch_size=3))


def test_actors_go_on_where_the_shards_have_lost_everything() -> None:
    """10 samples are owed, of at most 8, and no shard has anything to draw them from."""
    limiter = a_limiter()
    limiter.insert(0, 0, NOTHING, 20)
    with pytest.raises(WouldBlock):
        limiter.insert(0, 0, Inserted(1, 20, 0), 10)
    limiter.starve()
    assert limiter.insert(0, 0, Inserted(1, 20, 0), 10)


def test_leave_is_given_once_though_the_call_is_executed_twice() -> None:
    """10 samples are owed, two batches of 4. A second life of the learner gets what is left."""
    limiter = a_limiter(max_ahead=100)
    limiter.insert(0, 0, NOTHING, 20)
    limiter.insert(0, 0, Inserted(1, 20, 0), 10)
    first = limiter.sample("learn", 0, 1)
    assert first is not None
    assert first.fresh == 20
    assert limiter.sample("learn", 0, 1) == first
    second = limiter.sample("learn", 1, 1)
    assert second == Granted((), position=0)
    assert limiter.sample("learn", 0, 2) is None  # of an earlier life
    with pytest.raises(WouldBlock):
        limiter.sample("learn", 1, 2)


def test_the_rollout_of_an_actor_that_ends_holds_nobody_up() -> None:
    """Actor 1 ends in the middle of a rollout. Then none runs, and actor 0 may begin although its rollout makes
    more than the 8 samples that may be owed."""
    limiter = a_limiter()
    limiter.insert(0, 0, NOTHING, 18)
    limiter.insert(1, 0, NOTHING, 10)
    limiter.insert(0, 0, Inserted(1, 18, 0), 6)
    limiter.leave(1, 0, NOTHING)
    assert limiter.insert(0, 0, Inserted(2, 6, 18), 20)


def test_an_actor_that_ends_before_it_inserts_in_a_new_life_keeps_nobody_waiting() -> None:
    """Its host was restarted, and all steps of the run are acted: its first claim says that it is over."""
    limiter = a_limiter()
    assert limiter.insert(0, 0, NOTHING, 10)
    assert limiter.insert(1, 0, NOTHING, 10)
    limiter.leave(0, 0, Inserted(1, 10, 0))
    limiter.leave(1, 1, NOTHING)
    assert drawn(limiter) is None
    assert not limiter._running
