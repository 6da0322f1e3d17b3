"""Replay in one worker: how many windows are drawn, from when on, and what their batches say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from some_parts import a_task

from gossamer.algorithms.base import Prioritized, ReplayPlan
from gossamer.algorithms.dqn import DQN, n_step_errors
from gossamer.data import Batch, NoBatch, Trajectory, Updated
from gossamer.envs.toy import Catch
from gossamer.experience import Direct, LocalReplay, own_experience
from gossamer.experience.base import untimed
from gossamer.experience.replay.local import LocalReplayEnd

SPEC = Catch().make(1).spec


@dataclass
class Place:
    """The context of a worker, and what an end needs of it."""

    rank: int = 0
    name: str = "act_and_learn"
    told: list[Any] = field(default_factory=list)
    updates: int = 0
    saved: Any = None
    restarts: int = 0
    task = a_task(algorithm=DQN(), rollout_length=4)
    spec, num_envs, clock = SPEC, 2, staticmethod(untimed)

    def restored(self) -> Any:
        return self.saved

    def report(self, record: Any) -> None:
        self.told.append(record)

    def version(self) -> int:
        return self.updates

    def slot(self, num_envs: int) -> Trajectory:
        return Trajectory.empty(4, num_envs, SPEC.obs_shape, torch.float32)


def an_end(place: Place | None = None, **plan: Any) -> LocalReplayEnd:
    place = place or Place()
    whole = {"capacity": 64, "batch_size": 16, "window": 2, "samples_per_insert": 4.0, "learning_starts": 20, **plan}
    return LocalReplay(ReplayPlan(**whole)).join(place, place)  # type: ignore[arg-type]


def act(end: LocalReplayEnd, position: int) -> list[Batch]:
    """A rollout of two environments and four steps, and the batches that follow it."""
    with end.slot(position) as slot:
        slot.reward.fill_(position)
    found = []
    while isinstance(batch := end.batch(), Batch):
        found.append(batch)
        end.trained(batch, Updated({}))
    assert batch is NoBatch.YET
    return found


def test_so_many_windows_are_drawn_for_each_step_once_it_has_begun() -> None:
    """8 steps a rollout make 32 windows, two batches of 16; there are 20 steps after the third rollout."""
    end = an_end()
    rounds = [act(end, 8 * i) for i in range(6)]
    assert [len(batches) for batches in rounds] == [0, 0, 2, 2, 2, 2]
    assert [batch.fresh for batches in rounds for batch in batches] == [24, 0, 8, 0, 8, 0, 8, 0]
    assert [batch.position for batches in rounds for batch in batches] == [16, 16, 24, 24, 32, 32, 40, 40]
    for batch in rounds[2]:
        assert batch.data.reward.shape == (2, 16)
        assert batch.windows is not None
        assert batch.windows.shape == (16,)
        assert set(batch.data.reward.unique().tolist()) <= {0.0, 8.0, 16.0}


@pytest.mark.parametrize(("ratio", "batches"), [(0.5, [0, 0, 0, 0, 0, 1, 0, 0, 0]), (3.0, [0, 0, 1, 2, 1, 2, 1, 2, 1])])
def test_what_is_left_over_counts_for_the_next_batch(ratio: float, batches: list[int]) -> None:
    """From the third rollout on, 4 windows each make a batch of 16 after four, and 24 windows three after two."""
    end = an_end(samples_per_insert=ratio, learning_starts=20)
    assert [len(act(end, 8 * i)) for i in range(9)] == batches


def test_batches_by_priority_have_weights_and_their_new_priorities_count() -> None:
    """Of 2 * 11 windows of two steps in three rollouts one has priority 1000 after an update and the others 1 and less:
    with alpha 1 it fills nearly the whole next batch. Its weight is the smallest, (N P)^-beta over the largest."""
    end = an_end(priority=Prioritized(1.0, 0.5, n_step_errors), learning_starts=1)
    for position in range(3):
        with end.slot(position) as slot:
            assert slot.chosen is not None
            slot.reward.fill_(0.5)
            slot.discount.fill_(1.0)  # |0.5 + 0.5 - 0| = 1 for each window
    first = end.batch()
    assert isinstance(first, Batch)
    assert first.windows is not None
    assert first.data.weight is not None
    assert first.data.weight.tolist() == [1.0] * 16
    new = torch.where(first.windows == first.windows[0], 1000.0, 1.0)
    end.trained(first, Updated({}, priority=new))
    second = end.batch()
    assert isinstance(second, Batch)
    assert second.windows is not None
    assert second.data.weight is not None
    large = second.windows == first.windows[0]
    assert large.sum() >= 14  # the others have 21 of 1021: part of the first and last of 16 strata
    if not large.all():
        assert second.data.weight[large].tolist() == pytest.approx([1000**-0.5] * int(large.sum()), rel=1e-4)
        assert second.data.weight[~large].tolist() == [1.0] * int((~large).sum())
    with pytest.raises(AssertionError, match="losses give no priorities"):
        end.trained(second, Updated({}))


def test_a_member_that_goes_on_says_that_its_memory_is_empty_and_draws_anew() -> None:
    fresh, again = Place(), Place(updates=70)
    one, other = an_end(fresh), an_end(again)
    assert fresh.told == []
    (note,) = again.told
    assert note.text == "act_and_learn: the replay memory is empty; learning goes on when it has 20 steps"
    keys = [[batch.windows.tolist() for i in range(4) for batch in act(end, i)] for end in (one, other)]  # type: ignore[union-attr]
    assert keys[0] != keys[1]


def test_an_algorithm_s_experience_is_what_it_learns_from() -> None:
    assert own_experience(a_task().algorithm) == Direct()
    algorithm = DQN(buffer_size=500, batch_size=8, learning_starts=100)
    assert own_experience(algorithm) == LocalReplay(algorithm.replay_plan())
    demand = own_experience(algorithm).demand(4)
    assert (demand.batch_envs, demand.rollout_envs, demand.window, demand.stored, demand.passes) == (8, 4, 1, 500, 8.0)


def test_learning_begins_even_where_the_ring_holds_less_than_it_waits_for() -> None:
    """21 steps are 10 of each of two environments: 20 at any time."""
    end = an_end(capacity=21, learning_starts=21)
    rounds = [len(act(end, 8 * i)) for i in range(4)]
    assert rounds == [0, 0, 2, 2]


def restored(*, continues: bool) -> LocalReplayEnd:
    """An end that goes on with the memory of another one, which has two rollouts."""
    first = an_end(saved=True)
    act(first, 0)
    act(first, 8)
    state = {"experience": first.state_dict(), "actor": {"env": 1} if continues else {}}
    return an_end(Place(updates=1, saved=state), saved=True)


@pytest.mark.parametrize(("continues", "windows"), [(True, 22), (False, 20)])
def test_no_window_spans_the_gap_after_a_restart(continues: bool, windows: int) -> None:
    """Three rollouts of 4 steps are 11 windows of two steps in each environment; 7 and 3 if the third begins anew."""
    end = restored(continues=continues)
    act(end, 16)
    assert end._store.windows == windows


def test_a_memory_that_goes_on_has_counted_its_steps() -> None:
    """16 of 20 steps are there, and the next 8 begin the learning."""
    assert len(act(restored(continues=True), 16)) == 2
