"""Random play with stacks of pictures, and all that was ever acted: the slow ground truth of replay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from gossamer.data import Final, Trajectory, numpy_dtype
from gossamer.experience.replay.memory import ReplayMemory
from gossamer.spaces import Discrete, Spec
from gossamer.spaces.observations import WHOLE, Layout, Part

HISTORY = 3
PICTURES = Spec((HISTORY, 2, 2), np.dtype(np.uint8), Discrete(4), history=HISTORY)
NAMES = ("action", "reward", "discount", "behaviour", "version", "chosen")
PLAIN = Spec((2,), np.dtype(np.float32), Discrete(4))
# As with --last-action-reward. The stack is not at the start, and the bytes are a multiple of the history: 4 + 12 + 8
LAYOUT = Layout(
    (
        Part("before", (1,), np.dtype(np.float32)),
        Part(WHOLE, PICTURES.obs_shape, PICTURES.obs_dtype),
        Part("after", (2,), np.dtype(np.float32)),
    )
)
PACKED = Spec((LAYOUT.size,), np.dtype(np.uint8), Discrete(4), layout=LAYOUT, history=HISTORY)


class Play:
    """Random play of B environments with stacks of pictures, in rollouts as an actor writes them, and all that was ever
    acted: the slow ground truth. Episodes end by chance, terminated or truncated, and begin with black pictures, with
    copies of the first one, or with arbitrary ones."""

    def __init__(self, spec: Spec, num_envs: int, rollout: int, seed: int, *, recurrent: bool = False) -> None:
        """`recurrent`: with random states."""
        self.spec, self.num_envs, self.rollout, self.recurrent = spec, num_envs, rollout, recurrent
        self.rng = np.random.default_rng(seed)
        self.obs = [self._first() for _ in range(num_envs)]
        self.begins = np.ones(num_envs, bool)
        self.steps: list[Trajectory | None] = []  # every step ever acted, as a rollout of one step; None: a cut
        self.states: dict[int, torch.Tensor] = {}  # by the first step of each rollout

    def rollouts(self, count: int) -> Iterator[Trajectory]:
        for _ in range(count):
            yield self._rollout()

    def cut(self) -> None:
        """Begin anew, after a crash. Without effect if nothing was acted since."""
        self.obs, self.begins = [self._first() for _ in range(self.num_envs)], np.ones(self.num_envs, bool)
        if self.steps and self.steps[-1] is not None:
            self.steps.append(None)

    def _rollout(self) -> Trajectory:
        spec, rng = self.spec, self.rng
        slot = Trajectory.empty(self.rollout, self.num_envs, spec.obs_shape, numpy_dtype(spec.obs_dtype)).with_chosen()
        slot.action.copy_(torch.from_numpy(rng.integers(0, 4, slot.action.shape)))
        for name in ("reward", "behaviour", "value", "chosen"):
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
                        state = {"hidden": self._hidden()[b]} if self.recurrent else {}
                        slot.finals.append(Final(t, b, after, state, float(rng.normal())))
                    after = self._first()
                self.obs[b], slot.obs[t + 1, b] = after, after
                slot.begins[t + 1, b] = bool(self.begins[b])
        self.states[len(self.steps)] = torch.zeros(0)
        if self.recurrent:
            slot.state["hidden"] = self._hidden() * ~slot.begins[0].unsqueeze(1)
            self.states[len(self.steps)] = slot.state["hidden"].clone()
        self.steps += [self._step(slot, t) for t in range(self.rollout)]
        return slot

    def _step(self, slot: Trajectory, t: int) -> Trajectory:
        """One step of a rollout, copied."""
        two = slice(t, t + 2)
        return Trajectory(
            obs=slot.obs[two].clone(),
            value=slot.value[two].clone(),
            begins=slot.begins[two].clone(),
            **{name: getattr(slot, name)[t : t + 1].clone() for name in NAMES},
            state={},
            finals=[final for final in slot.finals if final.t == t],
        )

    def _hidden(self) -> torch.Tensor:
        return torch.from_numpy(self.rng.normal(size=(self.num_envs, 2))).float()

    def _picture(self) -> torch.Tensor:
        channels, *plane = PICTURES.obs_shape if self.spec.layout else self.spec.obs_shape
        shape = (channels // self.spec.history, *plane)
        return torch.from_numpy(self.rng.integers(0, 255, shape).astype(self.spec.obs_dtype))

    def _first(self) -> torch.Tensor:
        newest, older = self._picture(), self.spec.history - 1
        kind = self.rng.integers(3)
        fill = [[torch.zeros_like(newest), newest, self._picture()][kind] for _ in range(older)]
        return self._observed(torch.cat([*fill, newest]))

    def _next(self, obs: torch.Tensor) -> torch.Tensor:
        newest = self._picture()
        stack = self.spec.layout.part(obs, WHOLE) if self.spec.layout else obs
        return self._observed(torch.cat([stack[len(newest) :], newest]))

    def _observed(self, stack: torch.Tensor) -> torch.Tensor:
        """The observation with these pictures; if it is packed, its other parts are random."""
        if self.spec.layout is None:
            return stack
        others = {part.name: self.rng.normal(size=part.shape) for part in self.spec.layout.parts if not part.picture}
        return torch.from_numpy(self.spec.layout.pack({WHOLE: stack.numpy(), **others}))


def assert_window(play: Play, memory: ReplayMemory, first: int, b: int, length: int) -> None:
    """The window that begins with step `first` of environment b is what was acted."""
    assert_acted(play, memory.window(torch.tensor([first * play.num_envs + b]), length), 0, first, b)


def assert_acted(play: Play, found: Trajectory, w: int, first: int, b: int) -> None:
    """Window w of those found is what was acted in environment b from step `first` on."""
    for i in range(found.reward.shape[0]):
        step = play.steps[first + i]
        assert step is not None
        assert torch.equal(found.obs[i : i + 2, w], step.obs[:, b])
        for name in NAMES:
            assert torch.equal(getattr(found, name)[i, w], getattr(step, name)[0, b]), name
        assert torch.equal(found.begins[i : i + 2, w], step.begins[:, b])
        assert found.value[i, w] == step.value[0, b]  # of an observation between rollouts: the later one's
        expected = [final for final in step.finals if final.b == b]
        finals = [final for final in found.finals if (final.t, final.b) == (i, w)]
        assert len(finals) == len(expected)
        for one, other in zip(finals, expected, strict=True):
            assert torch.equal(one.obs, other.obs)
            assert one.value == pytest.approx(other.value, rel=1e-6)  # stored as float32
            assert one.state.keys() == other.state.keys()
            assert all(torch.equal(one.state[name], other.state[name]) for name in one.state)
