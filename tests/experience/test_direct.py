"""One slot, acted into and learned from in turn."""

from __future__ import annotations

import pytest
import torch

from gossamer.data import Trajectory
from gossamer.experience import Direct


def direct() -> tuple[Direct, Trajectory]:
    slot = Trajectory.empty(2, 3, (4,), torch.float32)
    return Direct(slot), slot


def test_what_was_filled_is_what_is_learned_from_and_nothing_is_copied() -> None:
    experience, mine = direct()
    for _ in range(2):
        with experience.slot(0) as slot:
            assert slot is mine
        batch = experience.batch()
        assert batch.data is mine
        experience.trained(batch)


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
    with pytest.raises(RuntimeError, match="holds no trajectory"):
        experience.batch()


def test_what_was_learned_from_is_not_learned_from_again() -> None:
    experience, _ = direct()
    with experience.slot(0):
        pass
    experience.trained(experience.batch())
    with pytest.raises(RuntimeError, match="holds no trajectory"):
        experience.batch()
