"""A replay memory gives back exactly what was acted: every observation, also of stacks, borders and finals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from some_play import PACKED, PICTURES, PLAIN, Play, assert_window

from gossamer.data import Trajectory
from gossamer.envs.last import LastParts
from gossamer.experience.replay.memory import ReplayMemory
from gossamer.experience.replay.pictures import nbytes
from gossamer.spaces import Discrete, Spec


@pytest.mark.parametrize("spec", [PICTURES, PLAIN, PACKED], ids=["stacks", "vectors", "packed"])
@given(
    seed=st.integers(0, 10**6),
    num_envs=st.integers(1, 3),
    rollout=st.integers(1, 5),
    capacity=st.integers(5, 40),
    count=st.integers(1, 12),
    length=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_every_window_is_what_was_acted_also_after_the_ring_has_wrapped(
    spec: Spec, seed: int, num_envs: int, rollout: int, capacity: int, count: int, length: int
) -> None:
    play, memory = Play(spec, num_envs, rollout, seed), ReplayMemory(spec, num_envs, capacity * num_envs)
    for each in play.rollouts(count):
        memory.add(each)
        each.obs.fill_(7)  # the slot is filled again: the memory must have copied it
        each.reward.fill_(7)
    for b in range(num_envs):
        there = int(memory.windows(length)[b])
        oldest = rollout * count - length + 1 - there
        assert there == 0 or oldest >= rollout * count - capacity
        for first in range(oldest, oldest + there):
            assert_window(play, memory, first, b, length)


def test_it_keeps_the_newest_steps_up_to_its_capacity() -> None:
    play, memory = Play(PLAIN, 2, 4, 0), ReplayMemory(PLAIN, 2, 40)
    sizes = []
    for each in play.rollouts(8):
        each.finals.clear()
        memory.add(each)
        sizes.append(len(memory))
    assert sizes == [8, 16, 24, 32, 40, 40, 40, 40]
    assert memory.windows(3).tolist() == [18, 18]  # 20 steps of each: the last two begin no window of three


def test_episodes_that_need_more_pictures_than_there_is_room_for_shorten_the_memory() -> None:
    """An episode of one step needs three pictures: of 30 steps, a ring of 37 pictures keeps 12."""
    memory = ReplayMemory(PICTURES, 1, 30)
    for value in range(40):
        one = Trajectory.empty(1, 1, PICTURES.obs_shape, torch.uint8)
        one.obs.fill_(value)
        one.obs[1].fill_(value + 1)
        one.begins.fill_(True)
        memory.add(one)
    # 30 + 5 % + 2 * 3 = 37 pictures, of which x_40, which follows the last step, has three: 34 // 3 = 11 steps remain
    assert len(memory) == 11
    found = memory.window(memory.draw(50, 1, torch.Generator().manual_seed(0)), 1)
    assert found.obs[0].amin().item() >= 29
    assert torch.equal(found.obs[1, :, 0, 0, 0], found.obs[0, :, 0, 0, 0] + 1)


def test_windows_are_drawn_uniformly() -> None:
    """Of 4 environments with 10 steps there are 4 * 8 windows of 3 steps: chi-square of 32,000 draws with 31 degrees of
    freedom is below 61.1 with probability 0.999."""
    play, memory = Play(PLAIN, 4, 10, 0), ReplayMemory(PLAIN, 4, 40)
    for each in play.rollouts(3):
        each.finals.clear()
        memory.add(each)
    keys = memory.draw(32_000, 3, torch.Generator().manual_seed(1))
    counts = torch.bincount(keys - 20 * 4, minlength=32).double()  # steps 20 to 27 begin windows
    assert len(counts) == 32
    assert ((counts - 1000) ** 2 / 1000).sum() < 61.1


def test_a_window_of_several_draws_is_their_windows_side_by_side() -> None:
    play, memory = Play(PICTURES, 3, 5, 3), ReplayMemory(PICTURES, 3, 60)
    for each in play.rollouts(4):
        memory.add(each)
    keys = memory.draw(9, 2, torch.Generator().manual_seed(2))
    whole = memory.window(keys, 2)
    assert (whole.reward.shape, whole.obs.shape) == ((2, 9), (3, 9, *PICTURES.obs_shape))
    for w, key in enumerate(keys):
        one = memory.window(key.unsqueeze(0), 2)
        assert torch.equal(whole.obs[:, w], one.obs[:, 0])
        assert torch.equal(whole.reward[:, w], one.reward[:, 0])
        assert [(f.t, f.value) for f in whole.finals if f.b == w] == [(f.t, f.value) for f in one.finals]


def test_windows_without_inner_observations_have_the_first_and_the_last_one() -> None:
    play, memory = Play(PICTURES, 3, 5, 3), ReplayMemory(PICTURES, 3, 60)
    for each in play.rollouts(4):
        memory.add(each)
    keys = memory.draw(9, 4, torch.Generator().manual_seed(2))
    whole, ends = memory.window(keys, 4), memory.window(keys, 4, inner=False)
    assert torch.equal(ends.obs, whole.obs[[0, 4]])
    assert torch.equal(ends.reward, whole.reward)
    assert len(ends.finals) == len(whole.finals)


def test_a_million_steps_of_atari_take_seven_and_a_half_gigabytes() -> None:
    atari = Spec((4, 84, 84), np.dtype(np.uint8), Discrete(6), history=4)
    assert nbytes(atari, 1_000_000) <= 7.5e9
    whole = Spec((4, 84, 84), np.dtype(np.uint8), Discrete(6))
    assert nbytes(whole, 1_000_000) >= 28e9  # as four-stacks
    with_last = LastParts(atari).spec
    assert nbytes(with_last, 1_000_000) - nbytes(atari, 1_000_000) == pytest.approx(
        28 * 1_050_000, rel=1e-4
    )  # 7 floats
    small = ReplayMemory(with_last, 16, 16_000)
    assert small._pictures.nbytes == pytest.approx(nbytes(with_last, 16_000), rel=0.02)
    small = ReplayMemory(Spec((4, 84, 84), np.dtype(np.uint8), Discrete(6), history=4), 16, 16_000)
    assert small._pictures.nbytes == pytest.approx(nbytes(atari, 16_000), rel=0.02)  # eight pictures more for each


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="3 environments need at least 3"):
        ReplayMemory(PLAIN, 3, 2)
    with pytest.raises(ValueError, match="are not 3 pictures"):
        ReplayMemory(Spec((4, 2, 2), np.dtype(np.uint8), Discrete(2), history=3), 1, 10)
    memory = ReplayMemory(PLAIN, 2, 8)
    with pytest.raises(ValueError, match="no window of 1 steps"):
        memory.draw(1, 1, torch.Generator())
    (rollout,) = Play(PLAIN, 2, 5, 0).rollouts(1)
    with pytest.raises(ValueError, match="a rollout of 5 steps: the memory keeps 4 of each environment"):
        memory.add(rollout)
    (rollout,) = Play(PLAIN, 2, 2, 0).rollouts(1)
    rollout.state["hidden"] = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="no recurrent state"):
        memory.add(rollout)
