"""A member is made once from its task, or again from all that was saved of it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from threading import Thread
from typing import Any

import pytest
import torch
from some_parts import a_task, differences

from gossamer.data import Batch
from gossamer.envs.base import VectorEnv
from gossamer.envs.gym import Gym
from gossamer.envs.toy import Catch
from gossamer.exchange import Alone
from gossamer.experience import Kept
from gossamer.nn.networks import ActorCritic
from gossamer.policy import Replica
from gossamer.system.machine import HostInfo
from gossamer.task import Activity, Note, Task
from gossamer.workers.member import Member


class Place:
    """The context of a worker that nobody watches but the test."""

    name, copies, stopped, restarts = "act_and_learn", 1, False, 0

    def __init__(self, saved: Any = None, rank: int = 0) -> None:
        self.rank, self._saved = rank, saved
        self.told: list[Any] = []

    def stop(self) -> None: ...
    def restored(self) -> Any | None:
        return self._saved

    def report(self, record: Any) -> None:
        if not isinstance(record, HostInfo):
            self.told.append(record)

    def save(self, state: Any) -> None: ...


def member(task: Task, env: VectorEnv, place: Place | None = None) -> Member:
    return Member(place or Place(), task, [env], Replica(), Alone())


def once(one: Member) -> None:
    """A rollout and what is learned from it."""
    slot = one.slot(one.num_envs)
    one.unroll(slot, 0)
    one.update(Batch(slot, fresh=slot.steps, position=0))


def offset(one: Member) -> torch.Tensor:
    assert isinstance(one.learner.model, ActorCritic)
    return one.learner.model.centre.offset


def test_it_chooses_its_device_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    one = member(replace(a_task(), device="auto"), Catch().make(2))
    once(one)
    assert one.learner.task.device == "cpu"


@pytest.mark.parametrize("threads", [1, 2])
def test_the_tiniest_numbers_are_zero_on_its_thread_and_on_those_of_openmp(threads: int) -> None:
    """Else Adam's means of dead units stay there, and each update computes with them in microcode."""
    many = torch.full((1_000_000,), 1e-39)
    kept = [0, 0]

    def work() -> None:
        member(replace(a_task(), threads=threads), Catch().make(2))
        kept[0] = int((many * 1.5).view(torch.int32).count_nonzero())

    def ask() -> None:
        kept[1] = int((many * 1.5).view(torch.int32).count_nonzero())

    for each in (work, ask):
        thread = Thread(target=each)
        thread.start()
        thread.join()
    assert kept == [0, len(many)]


def test_its_slot_has_the_shapes_of_the_task() -> None:
    slot = member(a_task(Catch(pixels=True), rollout_length=3), Catch(pixels=True).make(2)).slot(2)
    assert slot.obs.shape == (4, 2, 1, 42, 42)
    assert slot.obs.dtype == torch.uint8
    assert slot.behaviour.shape == (3, 2)
    assert (slot.action.shape, slot.action.dtype) == ((3, 2), torch.int64)


def test_it_counts_what_it_learned_from_and_reports_it() -> None:
    one = member(a_task(rollout_length=9), Catch().make(2))
    once(one)
    report = one.report(Kept())
    assert (report.steps, report.learned, report.updates) == (18, 18, 1)
    assert {"loss", "gradient_norm", "learning_rate"} <= report.metrics.keys()
    assert [episode.steps for episode in report.episodes] == [9, 9]
    assert set(report.seconds) == {"env", "inference", "update"}
    assert (one.report(Kept()).episodes, one.report(Kept()).metrics) == ((), {})


@pytest.mark.parametrize("pixels", [False, True], ids=["vector", "pixels"])
def test_it_goes_on_bit_for_bit_where_it_was_saved(pixels: bool) -> None:
    toy = Catch(pixels=pixels)
    straight = member(a_task(toy), toy.make(3))
    once(straight)
    resumed = member(a_task(toy), toy.make(3), Place(straight.state_dict()))
    for one in (straight, resumed):
        once(one)
        once(one)
    assert resumed.learner.steps == 36
    assert differences(straight.state_dict(), resumed.state_dict()) == []


def test_pictures_are_centred_on_what_random_play_shows() -> None:
    toy = Catch(pixels=True)
    found = offset(member(a_task(toy), toy.make(4)))
    # The ball is in 1 of 5 columns of 1 of 9 rows: 255 / 45 = 5.7 in its rows' mean. The paddle's row: 255 / 5 = 51.
    rows = found[0].mean(1)
    assert rows[:36].mean().item() == pytest.approx(255 / 45, rel=0.1)
    assert rows[40].item() == pytest.approx(51, rel=0.1)


def test_all_members_see_one_background_and_draw_from_streams_of_their_own() -> None:
    toy = Catch(pixels=True)
    one, other = (member(a_task(toy), toy.make(4), Place(rank=rank)) for rank in (0, 1))
    assert torch.equal(offset(one), offset(other))
    first, second = one.slot(4), other.slot(4)
    one.unroll(first, 0)
    other.unroll(second, 0)
    assert not torch.equal(first.obs[0], second.obs[0])  # other episodes
    assert not torch.equal(first.action, second.action)


def test_it_says_when_it_measures_the_background() -> None:
    place = Place()
    member(a_task(Catch(pixels=True)), Catch(pixels=True).make(2), place)
    assert place.told == [Activity("measuring the background (random play)")]


def test_a_resumed_member_keeps_its_background() -> None:
    toy = Catch(pixels=True)
    state = member(a_task(toy), toy.make(4)).state_dict()
    state["learner"]["model"]["centre.offset"].fill_(7)
    assert offset(member(a_task(toy), toy.make(4), Place(state))).unique().tolist() == [7]


def test_vectors_are_not_centred() -> None:
    assert not offset(member(a_task(), Catch().make(2))).any()


def test_an_environment_that_cannot_give_its_state_is_told_of_and_all_else_goes_on() -> None:
    cart = Gym("CartPole-v1")
    with closing(cart.make(2)) as env, closing(cart.make(2)) as another:
        straight = member(a_task(cart), env)
        once(straight)
        place = Place(straight.state_dict())
        resumed = member(a_task(cart), another, place)
        assert place.told == [
            Note("CartPole-v1 cannot give its state: new episodes begin, all else goes on exactly"),
        ]
        assert differences(resumed.state_dict(), straight.state_dict()) == []
        once(resumed)
        assert resumed.learner.steps == 16


def test_the_new_episodes_of_a_resumed_run_are_not_its_first_ones_again() -> None:
    cart = Gym("CartPole-v1")

    def first_obs(saved: Any) -> torch.Tensor:
        with closing(cart.make(2)) as env:
            one = member(a_task(cart), env, Place(saved))
            slot = one.slot(one.num_envs)
            one.unroll(slot, 0)
            return slot.obs[0]

    with closing(cart.make(2)) as env:
        straight = member(a_task(cart), env)
        once(straight)
    assert not torch.equal(first_obs(None), first_obs(straight.state_dict()))
    assert torch.equal(first_obs(None), first_obs(None))


def test_a_member_that_starts_anew_has_nothing_to_tell() -> None:
    place = Place()
    member(a_task(), Catch().make(2), place)
    assert place.told == []
