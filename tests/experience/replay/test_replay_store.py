"""A replay store against a list of everything that was ever acted: what is there, what is drawn, and how likely."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from some_play import PACKED, PICTURES, PLAIN, Play, assert_acted

import gossamer
from gossamer.algorithms.base import Prioritized, ReplayPlan
from gossamer.algorithms.dqn import n_step_errors
from gossamer.data import Trajectory
from gossamer.envs.games import games_of
from gossamer.experience.replay.pictures import spare
from gossamer.experience.replay.store import Drawn, ReplayStore, importance
from gossamer.spaces import Spec
from gossamer.system.errors import UserError

ROUNDING = 1e-4  # of p^0.6, where the float32 error p is nearly 0
BY_PRIORITY = Prioritized(exponent=0.6, correction=0.4, errors=n_step_errors)


def a_plan(window: int, *, priority: Prioritized | None = None, sequences: bool = False) -> ReplayPlan:
    return ReplayPlan(10**6, 32, window, 1.0, 1, priority=priority, sequences=sequences)


@dataclass
class Told:
    """One writer's play, and which of its windows are in a store: the slow ground truth."""

    play: Play
    length: int  # steps of each environment that are kept
    window: int
    sequences: bool
    first_pictures: dict[tuple[int, int], int] = field(default_factory=dict)  # of x_t of environment b
    pictures: dict[int, int] = field(default_factory=dict)  # of environment b so far
    mass: dict[tuple[int, int], float] = field(default_factory=dict)  # of the window (first step, environment)

    def act(self) -> Trajectory:
        (rollout,) = self.play.rollouts(1)
        start, steps, spec = len(self.play.steps) - self.play.rollout, self.play.steps, self.play.spec
        for b in range(self.play.num_envs):
            if start == 0 or steps[start - 1] is None:
                self._add(b, start, spec.history)
            for t in range(start, len(steps)):
                step = steps[t]
                assert step is not None
                self.pictures[b] += sum(final.b == b for final in step.finals)
                self._add(b, t + 1, spec.history if step.begins[1, b] else 1)
        return rollout

    def _add(self, b: int, t: int, new: int) -> None:
        """The observation x_t comes with so many new pictures."""
        self.pictures[b] = self.pictures.get(b, 0) + new
        self.first_pictures[t, b] = self.pictures[b] - self.play.spec.history

    def there(self, first: int, b: int) -> bool:
        """Whether a window can be drawn."""
        steps = self.play.steps[first : first + self.window]
        room = self.length + spare(self.length, self.play.spec.history)
        kept = first >= len(self.play.steps) - self.length
        pictures = self.first_pictures[first, b] >= self.pictures[b] - room if len(steps) == self.window else False
        whole = len(steps) == self.window and None not in steps
        return kept and whole and pictures and (not self.sequences or self._starts(first, b))

    def _starts(self, first: int, b: int) -> bool:
        step = self.play.steps[first]
        return first in self.play.states or bool(step is not None and step.begins[0, b])

    def windows(self) -> list[tuple[int, int]]:
        envs = range(self.play.num_envs)
        return [(first, b) for first in range(len(self.play.steps)) for b in envs if self.there(first, b)]

    def rate(self, exponent: float) -> None:
        """Give new windows their first priorities: |r_0 + d_0 (r_1 + ..) - Q(x_0, a_0)| by a loop."""
        for first, b in self.windows():
            if (first, b) in self.mass:
                continue
            last = self.play.steps[first + self.window - 1]
            after = self.play.steps[first + self.window] if first + self.window < len(self.play.steps) else None
            assert last is not None
            total = float(last.value[1, b] if after is None else after.value[0, b])
            for step in reversed(self.play.steps[first : first + self.window]):
                assert step is not None
                total = float(step.reward[0, b]) + float(step.discount[0, b]) * total
            begin = self.play.steps[first]
            assert begin is not None
            assert begin.chosen is not None
            self.mass[first, b] = (abs(total - float(begin.chosen[0, b])) + 1e-6) ** exponent


class Stores:
    """A store, the plays of its writers, and their ground truth."""

    def __init__(self, spec: Spec, plan: ReplayPlan, envs: Sequence[int], length: int, rollout: int, seed: int) -> None:
        self.plan, self.offsets, self.total = plan, np.cumsum([0, *envs]).tolist(), sum(envs)
        self.store = ReplayStore(spec, plan, dict(enumerate(envs)), length * self.total)
        plays = [Play(spec, count, rollout, seed + i, recurrent=plan.sequences) for i, count in enumerate(envs)]
        self.told = [Told(play, length, plan.window, plan.sequences) for play in plays]

    def add(self, writer: int) -> None:
        rollout = self.told[writer].act()
        self.store.add(writer, rollout)
        rollout.obs.fill_(7)  # the slot is filled again: the store must have copied it
        rollout.reward.fill_(7)
        if self.plan.priority is not None:
            self.told[writer].rate(self.plan.priority.exponent)

    def cut(self, writer: int) -> None:
        self.store.cut(writer)
        self.told[writer].play.cut()

    def where(self, key: int) -> tuple[Told, int, int]:
        """The writer, the first step and the writer's environment of a window."""
        first, env = divmod(key, self.total)
        writer = int(np.searchsorted(self.offsets, env, side="right")) - 1
        return self.told[writer], first, env - self.offsets[writer]

    def check(self, drawn: Drawn) -> None:
        """Every window that was drawn is there, is what was acted, and has its priority."""
        for w, key in enumerate(drawn.keys.tolist()):
            told, first, b = self.where(key)
            assert told.there(first, b)
            assert_acted(told.play, drawn.data, w, first, b)
            expected = 1.0 if self.plan.priority is None else told.mass[first, b]
            assert drawn.mass[w].item() == pytest.approx(expected, rel=1e-5, abs=ROUNDING)
            if self.plan.sequences:
                self._check_sequence(told, drawn.data, w, first, b)

    def _check_sequence(self, told: Told, data: Trajectory, w: int, first: int, b: int) -> None:
        state = told.play.states.get(first)
        assert torch.equal(data.state["hidden"][w], torch.zeros(2) if state is None else state[b])
        assert data.mask is not None
        episode = 0
        for t, begins in enumerate(data.begins[:-1, w].tolist()):
            episode += begins and t > 0
            assert bool(data.mask[t, w]) is (episode == 0)


KINDS = {
    "uniform": a_plan(2),
    "one step": a_plan(1, priority=BY_PRIORITY),
    "three steps": a_plan(3, priority=BY_PRIORITY),
    "sequences": a_plan(6, priority=BY_PRIORITY, sequences=True),
    "uniform sequences": a_plan(5, sequences=True),
}
CALLS = st.lists(st.tuples(st.sampled_from("aaaaacdu"), st.integers(0, 2)), min_size=4, max_size=25)


@pytest.mark.parametrize("spec", [PICTURES, PLAIN], ids=["stacks", "vectors"])
@pytest.mark.parametrize("kind", KINDS)
@given(
    calls=CALLS,
    envs=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    length=st.integers(6, 20),
    rollout=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=15, deadline=None)
def test_any_schedule_of_calls_leaves_what_was_acted(
    kind: str, spec: Spec, calls: list[tuple[str, int]], envs: list[int], length: int, rollout: int, seed: int
) -> None:
    """(a)dd, (c)ut, (d)raw, and (u)pdate with priorities of the last windows that were drawn, which may be gone."""
    all_of = Stores(spec, KINDS[kind], envs, length, rollout, seed)
    store, rng, last = all_of.store, torch.Generator().manual_seed(seed), None
    for call, writer in calls:
        if call == "a":
            all_of.add(writer % len(envs))
        elif call == "c":
            all_of.cut(writer % len(envs))
        elif call == "d" and store.windows:
            last = store.draw(8, rng)
            all_of.check(last)
        elif call == "u" and last is not None:
            priority = torch.rand(8, generator=rng) * 5
            store.update(last.keys, priority)
            for key, new in zip(last.keys.tolist(), priority.tolist(), strict=True):
                told, first, b = all_of.where(key)
                if told.there(first, b):
                    told.mass[first, b] = (new + 1e-6) ** 0.6
        there = [(told, *where) for told in all_of.told for where in told.windows()]
        assert store.windows == len(there)
        weighed = all_of.plan.priority is not None
        mass = sum(told.mass[first, b] if weighed else 1 for told, first, b in there)
        assert store.mass == pytest.approx(mass, rel=1e-5, abs=10 * ROUNDING)
    if store.windows:
        all_of.check(store.draw(16, rng))
    else:
        with pytest.raises(ValueError, match=r"no window of|all priorities are 0"):
            store.draw(1, rng)


def filled(plan: ReplayPlan, *, rollouts: int = 9, spec: Spec = PICTURES) -> ReplayStore:
    """A store of two writers, with 20 steps of each of three environments, after as many rollouts of 4 steps and a
    cut."""
    store = ReplayStore(spec, plan, {5: 2, 8: 1}, 60)
    for writer, count in {5: 2, 8: 1}.items():
        play = Play(spec, count, 4, seed=writer, recurrent=plan.sequences)
        for i, rollout in enumerate(play.rollouts(rollouts)):
            store.add(writer, rollout)
            if i == 6:
                store.cut(writer)
                play.cut()
    return store


def test_windows_are_drawn_in_proportion_to_their_priorities() -> None:
    """Chi-square of 51,200 draws of n windows: its mean is n - 1 and its deviation (2 (n - 1))^(1/2); stratified draws
    vary less."""
    store, rng = filled(a_plan(2, priority=BY_PRIORITY)), torch.Generator().manual_seed(0)
    mass, counts = dict[int, float](), dict[int, int]()
    for _ in range(100):
        drawn = store.draw(512, rng)
        for key, each in zip(drawn.keys.tolist(), drawn.mass.tolist(), strict=True):
            mass[key], counts[key] = each, counts.get(key, 0) + 1
    assert len(mass) == store.windows
    assert sum(mass.values()) == pytest.approx(store.mass)
    expected = {key: 51_200 * each / store.mass for key, each in mass.items()}
    chi_square = sum((counts[key] - expected[key]) ** 2 / expected[key] for key in mass)
    assert chi_square < len(mass) - 1 + 4 * (2 * (len(mass) - 1)) ** 0.5


def test_importance_weights_against_worked_out_numbers() -> None:
    """Three windows of masses 1, 4 and 5, of which the first two are drawn: N P = 0.3 and 1.2, and the first weight is
    the larger one. With beta 1 they are 1 and 1/4, with 1/2 1 and 1/2, with 0 equal."""
    mass = torch.tensor([1.0, 4.0], dtype=torch.float64)
    assert importance(mass, 10.0, 3, 1.0).tolist() == [1.0, 0.25]
    assert importance(mass, 10.0, 3, 0.5).tolist() == [1.0, 0.5]
    assert importance(mass, 10.0, 3, 0.0).tolist() == [1.0, 1.0]
    assert importance(mass, 10.0, 3, 0.5).dtype == torch.float32


def test_a_window_that_was_overwritten_keeps_the_priority_of_the_new_one() -> None:
    store, rng = filled(a_plan(2, priority=BY_PRIORITY), rollouts=3, spec=PLAIN), torch.Generator().manual_seed(0)
    old = store.draw(64, rng)
    for rollout in Play(PLAIN, 2, 4, 0).rollouts(20):
        store.add(5, rollout)
    before = store.mass
    of_5 = old.keys % 3 < 2
    store.update(old.keys[of_5], torch.full((int(of_5.sum()),), 99.0))
    assert store.mass == before
    store.update(old.keys, torch.full((64,), 99.0))
    assert store.mass > before  # those of writer 8 are still there


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_was_saved_draws_the_same_afterwards(kind: str) -> None:
    plan = KINDS[kind]
    store, again = filled(plan), ReplayStore(PICTURES, plan, {5: 2, 8: 1}, 60)
    again.load_state_dict(store.state_dict())
    assert (len(again), again.windows, again.mass) == (len(store), store.windows, pytest.approx(store.mass))
    draws, more = (
        [torch.Generator().manual_seed(1) for _ in range(2)],
        Play(PICTURES, 1, 4, 9, recurrent=plan.sequences),
    )
    for rollout in more.rollouts(6):
        one, other = (each.draw(16, rng) for each, rng in zip((store, again), draws, strict=True))
        assert_same(one, other)
        for each in (store, again):
            each.update(one.keys, torch.arange(16.0))
            each.add(8, rollout)


def assert_same(one: Drawn, other: Drawn) -> None:
    assert torch.equal(one.keys, other.keys)
    assert torch.equal(one.mass, other.mass)
    for name, tensor in vars(one.data).items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(tensor, getattr(other.data, name)), name
    assert all(torch.equal(each, other.data.state[name]) for name, each in one.data.state.items())
    assert [(f.t, f.b, f.value) for f in one.data.finals] == [(f.t, f.b, f.value) for f in other.data.finals]
    assert all(torch.equal(a.obs, b.obs) for a, b in zip(one.data.finals, other.data.finals, strict=True))


@pytest.mark.parametrize("spec", [PICTURES, PLAIN, PACKED], ids=["stacks", "vectors", "packed"])
def test_pictures_in_a_file_are_those_in_memory(spec: Spec, tmp_path: Path) -> None:
    plan = a_plan(2, priority=BY_PRIORITY)
    one, other = filled(plan, spec=spec), filled(replace(plan, folder=str(tmp_path / "new")), spec=spec)
    assert list((tmp_path / "new").iterdir()) == []  # the file has no name, and is gone when the process is
    assert_same(*(each.draw(64, torch.Generator().manual_seed(0)) for each in (one, other)))


def test_a_folder_that_cannot_have_pictures_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = a_plan(2)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"^--replay-dir .*/file: cannot be used \(File exists\); give another folder$"):
        filled(replace(plan, folder=str(tmp_path / "file")))
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=full))
    with pytest.raises(UserError, match=r"cannot be used \(No space left on device\)"):
        filled(replace(plan, folder=str(tmp_path / "folder")))
    assert list((tmp_path / "folder").iterdir()) == []


def test_what_a_store_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match="60 steps of 20 environments: a window has 5 steps of one"):
        ReplayStore(PLAIN, a_plan(5), {0: 20}, 60)
    (rollout,) = Play(PLAIN, 2, 4, 0).rollouts(1)
    store = ReplayStore(PLAIN, a_plan(2, priority=BY_PRIORITY), {0: 2}, 60)
    with pytest.raises(ValueError, match="priorities need rollouts with `chosen`"):
        store.add(0, Trajectory.empty(4, 2, (2,), torch.float32))
    sequences = ReplayStore(PLAIN, a_plan(6, sequences=True), {0: 2}, 60)
    sequences.add(0, rollout)
    (shorter,) = Play(PLAIN, 2, 3, 0).rollouts(1)
    with pytest.raises(ValueError, match="a rollout of 3 steps: sequences need rollouts of equal length, here 4"):
        sequences.add(0, shorter)


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        (
            "dqn",
            {"priority_exponent": 0.9, "buffer_size": 600, "rescale_values": False},
        ),  # the memory becomes full: priorities are forgotten
        ("r2d2", {"actors": 1, "buffer_size": 3_000, "burn_in": 2, "rollout_length": 6}),
        ("apex", {"actors": 1, "buffer_size": 3_000, "rescale_values": False}),
    ],
)
def test_samples_have_each_game_as_often_as_it_has_steps(
    architecture: str, options: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rewards of one game are 1000 times those of the other."""
    counts, draw = np.zeros(2), ReplayStore.draw

    def counted(store: ReplayStore, count: int, rng: torch.Generator) -> Drawn:
        drawn = draw(store, count, rng)
        batch = np.bincount(games_of(store.spec, drawn.data.obs[0].numpy()), minlength=2)
        assert abs(batch - count * np.array([2, 1]) / 3).max() < 1
        counts[:] += batch
        return drawn

    monkeypatch.setattr(ReplayStore, "draw", counted)
    options = {"num_envs": 3, "batch_size": 16, "learning_starts": 200, "steps": 1_500, "threads": 1, **options}
    env = "some_games:Small:2,some_games:Large"
    gossamer.train(architecture, env=env, run_dir=tmp_path / "run", log="none", **options)  # type: ignore[arg-type]
    assert counts.sum() > 500
