"""A replay memory gives back exactly what was acted: every observation, also of stacks, borders and finals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.data import Final, Trajectory, numpy_dtype
from gossamer.experience.replay.memory import ReplayMemory
from gossamer.experience.replay.pictures import nbytes
from gossamer.spaces import Discrete, Spec

HISTORY = 3
PICTURES = Spec((HISTORY, 2, 2), np.dtype(np.uint8), Discrete(4), history=HISTORY)
PLAIN = Spec((2,), np.dtype(np.float32), Discrete(4))


class Play:
    """Random play of B environments with stacks of pictures, in rollouts as an actor writes them, and all that was ever
    acted: the slow ground truth. Episodes end by chance, terminated or truncated, and begin with black pictures, with
    copies of the first one, or with arbitrary ones."""

    def __init__(self, spec: Spec, num_envs: int, rollout: int, seed: int) -> None:
        self.spec, self.num_envs, self.rollout = spec, num_envs, rollout
        self.rng = np.random.default_rng(seed)
        self.obs = [self._first() for _ in range(num_envs)]
        self.begins = np.ones(num_envs, bool)
        self.steps: list[Trajectory] = []  # every step ever acted, as a rollout of one step

    def rollouts(self, count: int) -> Iterator[Trajectory]:
        for _ in range(count):
            yield self._rollout()

    def _rollout(self) -> Trajectory:
        spec, rng = self.spec, self.rng
        slot = Trajectory.empty(self.rollout, self.num_envs, spec.obs_shape, numpy_dtype(spec.obs_dtype))
        slot.action.copy_(torch.from_numpy(rng.integers(0, 4, slot.action.shape)))
        for name in ("reward", "behaviour", "value"):
            tensor = getattr(slot, name)
            tensor.copy_(torch.from_numpy(rng.normal(size=tensor.shape)))
        slot.version.copy_(torch.from_numpy(rng.integers(0, 99, slot.version.shape)))
        slot.discount.fill_(0.9)
        for b in range(self.num_envs):
            slot.obs[0, b], slot.begins[0, b] = self.obs[b], bool(self.begins[b])
            for t in range(self.rollout):
                after, self.begins[b] = self._next(self.obs[b]), False
                if rng.random() < 0.3:
                    slot.discount[t, b], self.begins[b] = 0.0, True
                    if rng.random() < 0.5:
                        slot.finals.append(Final(t, b, after, {}, float(rng.normal())))
                    after = self._first()
                self.obs[b], slot.obs[t + 1, b] = after, after
                slot.begins[t + 1, b] = bool(self.begins[b])
        self.steps += [self._step(slot, t) for t in range(self.rollout)]
        return slot

    def _step(self, slot: Trajectory, t: int) -> Trajectory:
        """One step of a rollout, copied."""
        two = slice(t, t + 2)
        return Trajectory(
            obs=slot.obs[two].clone(),
            value=slot.value[two].clone(),
            begins=slot.begins[two].clone(),
            **{
                name: getattr(slot, name)[t : t + 1].clone()
                for name in ("action", "reward", "discount", "behaviour", "version")
            },
            state={},
            finals=[final for final in slot.finals if final.t == t],
        )

    def _picture(self) -> torch.Tensor:
        shape = (self.spec.obs_shape[0] // self.spec.history, *self.spec.obs_shape[1:])
        return torch.from_numpy(self.rng.integers(0, 255, shape).astype(self.spec.obs_dtype))

    def _first(self) -> torch.Tensor:
        newest, older = self._picture(), self.spec.history - 1
        kind = self.rng.integers(3)
        fill = [[torch.zeros_like(newest), newest, self._picture()][kind] for _ in range(older)]
        return torch.cat([*fill, newest])

    def _next(self, obs: torch.Tensor) -> torch.Tensor:
        newest = self._picture()
        return torch.cat([obs[len(newest) :], newest])


def assert_window(play: Play, memory: ReplayMemory, first: int, b: int, length: int) -> None:
    """The window that begins with step `first` of environment b is what was acted."""
    found = memory.window(torch.tensor([first * play.num_envs + b]), length)
    for i in range(length):
        step = play.steps[first + i]
        assert torch.equal(found.obs[i : i + 2, 0], step.obs[:, b])
        for name in ("action", "reward", "discount", "behaviour", "version"):
            assert torch.equal(getattr(found, name)[i], getattr(step, name)[0, b : b + 1]), name
        assert torch.equal(found.begins[i : i + 2, 0], step.begins[:, b])
        assert found.value[i, 0] == step.value[0, b]  # of an observation between rollouts: the later one's
        expected = [final for final in step.finals if final.b == b]
        finals = [final for final in found.finals if final.t == i]
        assert len(finals) == len(expected)
        for one, other in zip(finals, expected, strict=True):
            assert torch.equal(one.obs, other.obs)
            assert one.value == pytest.approx(other.value, rel=1e-6)  # stored as float32


@pytest.mark.parametrize("spec", [PICTURES, PLAIN], ids=["stacks", "vectors"])
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


def test_a_million_steps_of_atari_take_seven_and_a_half_gigabytes() -> None:
    atari = Spec((4, 84, 84), np.dtype(np.uint8), Discrete(6), history=4)
    assert nbytes(atari, 1_000_000) <= 7.5e9
    whole = Spec((4, 84, 84), np.dtype(np.uint8), Discrete(6))
    assert nbytes(whole, 1_000_000) >= 28e9  # as four-stacks
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
