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
        with experience.slot() as slot:
            assert slot is mine
        batch = experience.batch(1)
        assert batch.data is mine
        experience.trained(batch)


def test_nothing_is_acted_over_before_it_is_learned_from() -> None:
    experience, _ = direct()
    with experience.slot():
        pass
    with pytest.raises(RuntimeError, match="has not been trained on"), experience.slot():
        pass


def test_a_trajectory_that_failed_is_not_handed_over() -> None:
    experience, _ = direct()
    with pytest.raises(OSError, match="no coal"), experience.slot():
        raise OSError("no coal left")
    with pytest.raises(RuntimeError, match="holds 0"):
        experience.batch(1)


@pytest.mark.parametrize("size", [0, 2])
def test_it_holds_one_trajectory(size: int) -> None:
    experience, _ = direct()
    with experience.slot():
        pass
    with pytest.raises(RuntimeError, match=f"{size} trajectories requested from a slot that holds 1"):
        experience.batch(size)


def test_what_was_learned_from_is_not_learned_from_again() -> None:
    experience, _ = direct()
    with experience.slot():
        pass
    experience.trained(experience.batch(1))
    with pytest.raises(RuntimeError, match="holds 0"):
        experience.batch(1)
