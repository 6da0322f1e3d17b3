"""A shard of a parameter server: which gradients it applies, and what it goes on from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from some_messages import Learns, Place, Vector
from torch.optim import SGD, Adagrad, Optimizer
from torch.optim.optimizer import ParamsT

from gossamer.data import Array
from gossamer.exchange import Server
from gossamer.exchange.server.outliers import WARM_UP, Outliers
from gossamer.exchange.server.pull import slices
from gossamer.exchange.server.shard import ParameterShard, ShardVersion
from gossamer.launch.threads import Monitor
from gossamer.runtime import GONE
from gossamer.task import Optimization

ADAGRAD: Callable[[ParamsT, float], Optimizer] = partial(Adagrad, eps=1e-10)


def a_shard(
    learners: int = 2, max_delay: int = 1000, make: Callable[[ParamsT, float], Optimizer] = SGD
) -> ParameterShard:
    return ParameterShard(Optimization(make, 1.0, 0), [f"learn[{rank}]" for rank in range(learners)], max_delay)


def at(shard: ParameterShard, version: int) -> ShardVersion:
    pulled = shard.pull(None, None)
    assert pulled is not None
    return pulled.stamp._replace(version=version)


def before(version: int) -> ShardVersion:
    """Of an earlier life of the shard."""
    return ShardVersion("before", version)


def of(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


def parameters(shard: ParameterShard) -> list[float]:
    pulled = shard.pull(0, None)
    assert pulled is not None
    assert pulled.parameters is not None
    return [float(each) for each in pulled.parameters]


def test_the_first_parameters_that_are_offered_are_taken_and_each_gradient_is_an_update() -> None:
    shard = a_shard()
    empty = shard.pull(0, None)
    assert empty is not None
    assert empty.parameters is None
    shard.offer(of(1, 2), 0, {})
    shard.offer(of(5, 5), 0, {})
    assert parameters(shard) == [1, 2]
    assert shard.push(0, of(1, 1), at(shard, 0), 0.5).applied
    assert parameters(shard) == [0.5, 1.5]
    assert shard.push(1, of(1, 0), at(shard, 0), 0.5).staleness == 1
    assert parameters(shard) == [0, 1.5]
    assert shard.pull(0, at(shard, 2)) is None  # known already


def test_a_learner_that_holds_its_parameters_is_heard_of_while_its_replay_memory_fills() -> None:
    shard, place = a_shard(learners=1), Place()
    learner: Any = Learns(Vector(torch.ones(16)))
    context: Any = place
    link = Server([shard], holds=True).join(context, learner)
    for now in range(0, 5 * int(GONE)):
        place.time = 100.0 + now
        assert link.refresh() == 0  # before each rollout
        assert shard.tick(place.time)


def test_the_optimizer_is_the_shards_and_its_state_is_in_a_checkpoint() -> None:
    """AdaGrad with G = 3^2, then 3^2 + 4^2: steps of 3 / 3 = 1 and 4 / 5."""
    shard = a_shard(make=ADAGRAD)
    shard.offer(of(10), 0, {})
    shard.push(0, of(3), at(shard, 0), 1.0)
    assert parameters(shard) == [9]
    again = a_shard(make=ADAGRAD)
    again.load_state_dict(shard.state_dict())
    state = shard.state_dict()
    again.load_state_dict(state)
    for each in (shard, again):
        each.push(0, of(4), at(each, 1), 1.0)
        assert parameters(each) == pytest.approx([8.2])
    assert float(state["optimizer"]["sum"]) == 9  # a snapshot may be restored once more


@given(limit=st.integers(0, 4), versions=st.lists(st.integers(0, 30), min_size=1, max_size=30))
def test_a_gradient_is_applied_if_and_only_if_it_is_not_older_than_the_limit(limit: int, versions: list[int]) -> None:
    shard, now, total = a_shard(max_delay=limit), 0, 0.0
    shard.offer(of(0), 0, {})
    for number, version in enumerate(versions):
        version = min(version, now)
        pushed = shard.push(number % 2, of(-(number + 1)), at(shard, version), 1.0)
        assert pushed.applied == (now - version <= limit)
        assert pushed.staleness == now - version
        if now - version <= limit:
            now, total = now + 1, total + number + 1
    assert parameters(shard) == [total]
    assert shard.pull(0, at(shard, now)) is None


def test_a_restored_shard_knows_from_its_learners_what_was_lost() -> None:
    """It has been restored at update 10. Learners know of updates 14 and 12: 4 are lost, and gradients that were
    computed after them are not applied. A learner that knows of update 9 only has lost nothing."""
    saved = a_shard()
    saved.offer(of(0), 10, {})
    shard = ParameterShard(Optimization(SGD, 1.0, 0), learners=["a", "b", "c"], max_delay=100)
    shard.load_state_dict(saved.state_dict())
    assert not shard.push(0, of(1), before(14), 1.0).applied
    assert not shard.push(1, of(1), before(12), 1.0).applied
    assert shard.lost() == (10, 4)
    old = shard.push(2, of(1), before(9), 1.0)
    assert (old.applied, old.staleness) == (True, 1)
    pulled = shard.pull(0, before(14))
    assert pulled is not None
    assert pulled.stamp == at(shard, 11)


def test_a_shard_that_has_lost_all_takes_the_parameters_and_the_version_of_a_learner() -> None:
    shard = a_shard()
    assert not shard.push(0, of(1), before(7), 1.0).applied
    shard.offer(of(3), 7, {})
    pulled = shard.pull(0, None)
    assert pulled is not None
    assert pulled.stamp.version == 7


def test_what_a_learner_offers_is_not_lost() -> None:
    """The shard died before its first snapshot. Another learner knows of two updates more."""
    shard = ParameterShard(Optimization(SGD, 1.0, 0), learners=["a", "b"], max_delay=100)
    assert not shard.push(0, of(1), before(120), 1.0).applied
    shard.offer(of(3), 120, {})
    assert shard.lost() == (120, 0)
    assert not shard.push(1, of(1), before(122), 1.0).applied
    assert shard.lost() == (120, 2)


def test_silent_learners_count_as_lost_once_all_others_have_left() -> None:
    shard, started = a_shard(learners=2), 1000.0  # seconds that the machine has been up

    def ticks(first: float, last: float) -> list[bool]:
        """The answers to a tick each second."""
        return [shard.tick(started + second) for second in np.arange(first, last)]

    shard.push(0, of(1), before(0), 1.0)  # before the first tick
    assert all(ticks(0, 10))
    shard.leave(0)
    assert all(ticks(10, GONE + 1))
    assert not any(ticks(GONE + 1, GONE + 5))
    shard.pull(1, None)  # it was only silent
    assert all(ticks(GONE + 5, GONE + 10))
    assert all(ticks(9 * GONE, 9 * GONE + 10))  # the process was paused
    shard.leave(1)
    assert not any(ticks(9 * GONE + 10, 9 * GONE + 12))


def test_a_shard_without_a_clock_answers() -> None:
    """Its clock had ended, and its host has been restarted since."""
    shard = Monitor("shard", a_shard(), lambda: False).handle()
    assert shard.pull(None, None).parameters is None
    assert not shard.push(0, of(1), before(7), 1.0).applied
    shard.offer(of(3), 7, {})
    assert shard.pull(0, None).stamp.version == 7


@given(size=st.integers(1, 5000), shards=st.integers(1, 20))
def test_slices_are_a_partition_of_nearly_equal_parts(size: int, shards: int) -> None:
    if shards > -(-size // 16):
        with pytest.raises(ValueError, match=f"{shards} shards: the {size} parameters can be split over"):
            slices(size, shards)
        return
    parts = slices(size, shards)
    vector = torch.arange(size)
    assert torch.equal(torch.cat([vector[part] for part in parts]), vector)
    sizes = [len(vector[part]) for part in parts]
    assert len(sizes) == shards
    assert min(sizes) > 0
    assert max(sizes) - min(sizes) <= 32


def test_losses_far_above_their_running_mean_are_outliers_after_a_warm_up() -> None:
    """Losses of 1 and 3 in turn have mean 2 and deviation 1."""
    outliers = Outliers(deviations=4.0)
    assert not outliers.add(1000.0)
    outliers = Outliers(deviations=4.0)
    assert not any(outliers.add(1.0 + 2.0 * (i % 2)) for i in range(WARM_UP))
    state = outliers.state_dict()
    assert not outliers.add(5.9)  # 2 + 4 * 1 = 6
    again = Outliers(deviations=4.0)
    again.load_state_dict(state)
    assert again.add(6.1)
    assert not any(Outliers(float("inf")).add(each) for each in (1.0, 1e9) * 200)


def test_a_lasting_change_of_losses_is_soon_no_outlier() -> None:
    outliers = Outliers(deviations=4.0)
    for i in range(200):
        outliers.add(1.0 + 0.1 * (i % 2))
    dropped = [outliers.add(50.0) for _ in range(300)]
    assert dropped[0]
    assert not any(dropped[100:])
