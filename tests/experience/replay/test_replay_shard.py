"""A shard of a shared replay memory, and what checkpoints have of it."""

from __future__ import annotations

from some_parts import differences
from some_play import PLAIN, Play

from gossamer.algorithms.base import ReplayPlan
from gossamer.data import Packed
from gossamer.experience.replay.shard import ReplayShard

PLAN = ReplayPlan(capacity=64, batch_size=4, window=2, samples_per_insert=1.0, learning_starts=1, saved=True)


def a_shard() -> ReplayShard:
    return ReplayShard(PLAN, {0: 2}, 64, seed=1)


def test_a_restored_memory_is_in_checkpoints_before_the_first_actor_begins() -> None:
    shard, again = a_shard(), a_shard()
    shard.register(0, 0, PLAIN)
    for number, rollout in enumerate(Play(PLAIN, 2, 4, seed=0).rollouts(3), start=1):
        shard.insert(0, 0, number, Packed.of(rollout))
    state = shard.state_dict()
    again.load_state_dict(state)
    assert again.amount().windows == 0  # until an actor says what its environments are like
    assert differences(again.state_dict(), state) == []
    assert again.register(0, 1, PLAIN) == 24
    assert again._saved is None  # the memory is not kept twice
    assert differences(again.state_dict()["store"]["memory"]["steps"], state["store"]["memory"]["steps"]) == []
