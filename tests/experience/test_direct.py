"""One slot, acted into and learned from in turn."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gossamer.data import Batch, NoBatch, Trajectory, Updated
from gossamer.experience import Demand, Direct
from gossamer.experience.direct import DirectEnd


def direct() -> tuple[DirectEnd, Trajectory]:
    slot = Trajectory.empty(2, 3, (4,), torch.float32)
    return DirectEnd(slot), slot


def test_what_was_filled_is_what_is_learned_from_and_nothing_is_copied() -> None:
    experience, mine = direct()
    for position in (0, 6):
        with experience.slot(position) as slot:
            assert slot is mine
        batch = experience.batch()
        assert isinstance(batch, Batch)
        assert batch.data is mine
        assert (batch.fresh, batch.position) == (6, position)
        experience.trained(batch, Updated({}))


def test_nothing_is_acted_over_before_it_is_learned_from() -> None:
    experience, _ = direct()
    with experience.slot(0):
        pass
    with pytest.raises(RuntimeError, match="has not been trained on"), experience.slot(0):
        pass


def test_a_trajectory_that_failed_is_not_handed_over() -> None:
    experience, _ = direct()
    with pytest.raises(OSError, match="no coal"), experience.slot(0):
        raise OSError("no coal left")
    assert experience.batch() is NoBatch.YET


def test_what_was_learned_from_is_not_learned_from_again() -> None:
    experience, _ = direct()
    with experience.slot(0):
        pass
    batch = experience.batch()
    assert isinstance(batch, Batch)
    experience.trained(batch, Updated({}))
    assert experience.batch() is NoBatch.YET


def test_before_anything_is_acted_there_is_no_batch_yet() -> None:
    experience, _ = direct()
    assert experience.batch() is NoBatch.YET


def test_an_end_has_one_slot_for_all_environments_of_its_worker() -> None:
    made = list[int]()

    def slot(num_envs: int) -> Trajectory:
        made.append(num_envs)
        return Trajectory.empty(2, num_envs, (4,), torch.float32)

    end = Direct().join(None, SimpleNamespace(num_envs=3, slot=slot))  # type: ignore[arg-type]
    with end.slot(0) as filled:
        assert filled.num_envs == 3
    assert made == [3]
    assert Direct().demand(3) == Demand(batch_envs=3, rollout_envs=3)
