"""Slots have the shapes that the legend says, and the layouts that are fast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from gossamer.data import Packed, Trajectory, numpy_dtype


def test_an_empty_slot_has_the_shapes_of_the_legend() -> None:
    slot = Trajectory.empty(rollout=5, envs=3, obs_shape=(7,), obs_dtype=torch.float32)
    shapes = {name: tuple(v.shape) for name, v in vars(slot).items() if isinstance(v, Tensor)}
    assert shapes == {
        "obs": (6, 3, 7),
        "action": (5, 3),
        "reward": (5, 3),
        "discount": (5, 3),
        "behaviour": (5, 3),
        "value": (6, 3),
        "begins": (6, 3),
        "version": (5, 3),
    }
    assert slot.action.dtype == slot.version.dtype == torch.int64
    assert slot.steps == 15


def test_actions_may_be_of_any_shape_and_kind() -> None:
    slot = Trajectory.empty(5, 3, (7,), torch.float32, action_shape=(2,), action_dtype=torch.float32)
    assert (slot.action.shape, slot.action.dtype, slot.steps) == ((5, 3, 2), torch.float32, 15)


def test_pictures_stay_bytes_and_lie_channels_last() -> None:
    slot = Trajectory.empty(rollout=2, envs=3, obs_shape=(4, 6, 5), obs_dtype=torch.uint8)
    assert slot.obs.shape == (3, 3, 4, 6, 5)
    assert slot.obs.dtype == torch.uint8
    # [C, H, W] = [4, 6, 5] with the channels side by side: a step of 1 in C, 4 in W, 20 in H, 120 in B, 360 in T.
    assert slot.obs.stride() == (360, 120, 1, 20, 4)
    batch = slot.obs[:-1].flatten(0, 1)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert batch.data_ptr() == slot.obs.data_ptr()  # a view: learning copies no bytes


def test_a_trajectory_moves_whole() -> None:
    slot = Trajectory.empty(2, 3, (7,), torch.float32).to("meta")
    assert {v.device.type for v in vars(slot).values() if isinstance(v, Tensor)} == {"meta"}
    assert slot.steps == 6


@pytest.mark.parametrize(("ours", "theirs"), [(np.uint8, torch.uint8), (np.float32, torch.float32)])
def test_dtypes_of_observations(ours: type, theirs: torch.dtype) -> None:
    assert numpy_dtype(np.dtype(ours)) == theirs


def with_all(envs: int) -> Trajectory:
    """A trajectory with everything that some have only, numbered through."""
    slot = Trajectory.empty(2, envs, (7,), torch.float32).with_chosen()
    assert slot.chosen is not None
    slot.chosen.copy_(torch.arange(2.0 * envs).view(2, envs))
    return replace(slot, mask=slot.chosen > 1, weight=torch.arange(float(envs)))


def test_what_some_trajectories_have_only_goes_with_them() -> None:
    """Columns 1 and 2 of three have weights 1 and 2, chosen 1 2 | 4 5 and mask 0 1 | 1 1."""
    found = [whole := with_all(3)]
    (other := with_all(3).new_empty(3)).copy_(whole)
    (sent := with_all(3).new_empty(3)).copy_(with_all(3))
    Packed.of(whole).unpack(sent)
    found += [other, sent, Trajectory.concatenated([whole.columns(0, 1), whole.columns(1, 3)]), whole.to("cpu")]
    for each in found:
        part = each.columns(1, 3)
        assert part.weight is not None
        assert part.chosen is not None
        assert part.mask is not None
        assert part.weight.tolist() == [1, 2]
        assert part.chosen.tolist() == [[1, 2], [4, 5]]
        assert part.mask.tolist() == [[False, True], [True, True]]


def test_a_slot_without_memory_for_what_arrives_is_refused() -> None:
    with pytest.raises(ValueError, match="a trajectory with chosen, for which the slot has no memory"):
        Packed.of(Trajectory.empty(2, 1, (7,), torch.float32).with_chosen()).unpack(
            Trajectory.empty(2, 1, (7,), torch.float32)
        )
