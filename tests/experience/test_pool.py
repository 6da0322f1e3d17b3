from __future__ import annotations

from typing import Any

import pytest
import torch

from gossamer.data import Rollout, Trajectory
from gossamer.experience.base import untimed
from gossamer.experience.pool.parts import PoolWriter
from gossamer.experience.pool.pool import Nothing, RolloutPool, Sizes, Taken
from gossamer.runtime import WouldBlock

SLOT = Trajectory.empty(1, 1, (2,), torch.float32)
TWO: dict[str, Any] = {"agents": {"act[0]": 0, "act[1]": 1}, "trainers": {"learn[0]": 0, "learn[1]": 1}}


def filled(pool: RolloutPool, *agents: int) -> list[int]:
    """A full slot of each of these agents; positions are 10, 20, .."""
    keys = []
    for place, agent in enumerate(agents):
        key = pool.lease(agent)
        assert isinstance(key, int)
        pool.put(key, Rollout(agent, 0, 1, 10 * (place + 1), 1))
        keys.append(key)
    return keys


def test_a_batch_has_at_least_and_at_most_so_many_rollouts_the_oldest_first() -> None:
    pool = RolloutPool(Sizes(slots=6, least=2, most=3), **TWO)
    filled(pool, 1)
    with pytest.raises(WouldBlock):
        pool.take(0)
    filled(pool, 0, 0, 1)
    # slots 0 (agent 1), 1 and 2 (agent 0) arrived first: in the order of their agents
    taken = pool.take(0)
    assert isinstance(taken, Taken)
    assert (taken.keys, taken.position, taken.waiting) == ((1, 2, 0), 10, 0)
    with pytest.raises(WouldBlock):
        pool.take(1)  # one rollout is left


def test_slots_are_free_again_after_training() -> None:
    pool = RolloutPool(Sizes(slots=2, least=1, most=2), **TWO)
    filled(pool, 0, 1)
    with pytest.raises(WouldBlock):
        pool.lease(0)
    taken = pool.take(0)
    assert isinstance(taken, Taken)
    with pytest.raises(WouldBlock):
        pool.lease(0)  # taken, not trained on yet
    pool.trained(taken.keys)
    assert (pool.lease(0), pool.trained_rollouts()) == (0, 2)


def test_parked_workers_get_nothing_and_take_the_place_of_those_that_end() -> None:
    pool = RolloutPool(Sizes(slots=4, least=1, most=1), **TWO)
    pool.run(agents=1, trainers=1)
    filled(pool, 0)
    assert (pool.lease(1), pool.take(1)) == (Nothing.PARKED, Nothing.PARKED)
    pool.leave(0)
    assert pool.lease(1) == 1
    pool.close(0)
    assert isinstance(pool.take(1), Taken)


def test_what_is_left_at_the_end_is_trained_on() -> None:
    pool = RolloutPool(Sizes(slots=4, least=3, most=4), **TWO)
    key = pool.lease(1)
    assert isinstance(key, int)
    filled(pool, 0)
    pool.leave(0)
    pool.give_back(key)
    with pytest.raises(WouldBlock):
        pool.take(0)  # agent 1 may fill more
    pool.leave(1)
    taken = pool.take(0)
    assert isinstance(taken, Taken)
    assert (taken.keys, taken.position, taken.waiting) == ((1,), 10, 0)
    assert pool.take(0) is Nothing.END
    assert pool.trained_rollouts() is None
    pool.close(0)
    pool.close(1)
    assert pool.lease(0) is Nothing.END


def test_workers_that_had_ended_before_a_restart_are_not_waited_for() -> None:
    pool = RolloutPool(Sizes(slots=2, least=2, most=2), **TWO)
    pool.forget({"act[1]", "learn[0]", "other"})
    filled(pool, 0)
    pool.leave(0)
    assert isinstance(pool.take(1), Taken)


def test_one_trainer_allocates_the_memory() -> None:
    pool = RolloutPool(Sizes(slots=1, least=1, most=1), **TWO)
    assert (pool.provides(1), pool.provides(0), pool.provides(1)) == (True, False, True)
    with pytest.raises(WouldBlock):
        pool.memory()
    pool.close(0)
    pool.close(1)
    assert pool.memory() is None


@pytest.mark.parametrize(("slots", "least", "most"), [(4, 0, 1), (4, 3, 2), (2, 3, 3)])
def test_sizes_that_never_make_a_batch_are_refused(slots: int, least: int, most: int) -> None:
    with pytest.raises(ValueError, match="least"):
        Sizes(slots, least, most)


def test_a_parked_agent_leases_nothing() -> None:
    """A lease that it would not act on would be one that others cannot take."""

    class Place:
        name, rank, restarts, stopped, ended_before = "act[1]", 1, 0, False, frozenset[str]()
        asked = 0

        def claim(self, steps: int) -> None:
            self.asked += 1

        def sleep(self, seconds: float) -> None:
            pool.run(agents=2, trainers=1)  # it is woken

    pool = RolloutPool(Sizes(slots=4, least=1, most=1), **TWO)
    pool.run(agents=1, trainers=1)
    pool.provide([SLOT] * 4)
    place = Place()
    writer = PoolWriter(place, pool, [SLOT] * 4, untimed)  # type: ignore[arg-type]
    with writer.slot(0) as slot:
        assert slot is SLOT
    assert place.asked == 0
