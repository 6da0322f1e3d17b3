"""The queue: which slots are free, who holds them, which batches are ready, and how old they can be."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from some_services import ticks

from gossamer.data import Batch, Final, NoBatch, Packed, Rollout, Stamp, Trajectory, Updated
from gossamer.experience import Batching, QueueReader, QueueWriter, Replay, Slots, TrajectoryQueue
from gossamer.experience.base import untimed
from gossamer.experience.queue.queue import PATIENCE
from gossamer.experience.queue.workers import BEAT, beat, watch
from gossamer.runtime import Stopped, Unreachable, WouldBlock
from gossamer.workers.clock import Clock


def a_queue(*, actors: int = 1, slots: int = 2, depth: int = 2, begun: bool = True) -> TrajectoryQueue:
    queue = TrajectoryQueue(actors={f"act[{i}]": i for i in range(actors)}, batching=Batching(1, slots, depth))
    if begun:
        queue.provide(memory(slots=slots, depth=depth))
    return queue


def memory(*, width: int = 1, slots: int = 2, depth: int = 2) -> Slots:
    return Slots([Trajectory.empty(3, width * slots, (4,), torch.float32) for _ in range(depth)], slots)


def ends(*, slots: int = 2, depth: int = 2, **given: object) -> tuple[QueueWriter, QueueReader, TrajectoryQueue]:
    queue = a_queue(slots=slots, depth=depth)
    given = {"version": lambda: 0, **given}
    reader = QueueReader(queue, memory(slots=slots, depth=depth), **given)  # type: ignore[arg-type]
    return QueueWriter(queue, 0, 0, lambda what: nullcontext()), reader, queue


def rollout(actor: int, life: int, position: int) -> Rollout:
    return Rollout(actor, life, number=1, position=position, steps=3)


def fill(writer: QueueWriter, number: float, position: int = 0) -> None:
    with writer.slot(position) as slot:
        slot.reward.fill_(number)


def test_slots_are_leased_in_order_until_credit_is_used_up() -> None:
    queue = a_queue(slots=2, depth=2)
    assert [queue.lease(actor, 0).slot for actor in range(4)] == [0, 1, 2, 3]
    with pytest.raises(WouldBlock):
        queue.lease(4, 0)
    for key in (0, 1):
        queue.put(key, rollout(key, 0, 0))
    with pytest.raises(WouldBlock):  # full is not yet trained on
        queue.lease(0, 0)
    assert queue.take() is not None
    queue.trained(0, 0)
    assert [queue.lease(0, 0).slot, queue.lease(1, 0).slot] == [4, 5]


def test_an_actor_has_one_slot_at_a_time() -> None:
    queue = a_queue()
    assert [queue.lease(0, 0).slot, queue.lease(0, 0).slot, queue.lease(1, 0).slot] == [
        0,
        0,
        1,
    ]  # an answer that was lost


def test_a_slot_s_parameters_are_not_older_than_those_after_the_batch_that_freed_it() -> None:
    queue = a_queue(slots=1, depth=2)
    queue.provide(memory(slots=1, depth=2), Stamp(1, 7))
    found = []
    for number in range(6):
        lease = queue.lease(0, 0)
        assert queue.lease(0, 0) == lease  # an answer that was lost
        found.append((lease.slot, lease.stamp.version))
        assert lease.stamp.life == 1
        queue.put(lease.slot, rollout(0, 0, 0))
        if number >= 1:  # one batch is full while the next one is filled
            queue.trained(number - 1, 8 + number)
    assert found == [(0, 7), (1, 7), (2, 9), (3, 10), (4, 11), (5, 12)]


def test_batches_are_taken_in_order_even_if_a_later_one_is_full_first() -> None:
    queue = a_queue(slots=1, depth=2)
    first, second = queue.lease(0, 0).slot, queue.lease(1, 0).slot
    queue.put(second, rollout(1, 0, 7))
    with pytest.raises(WouldBlock):
        queue.take()
    queue.put(first, rollout(0, 0, 5))
    batches = [queue.take(), queue.take()]
    assert [(full.number, full.position, full.waiting) for full in batches if full] == [(0, 5, 1), (1, 7, 0)]


def test_a_slot_given_back_is_leased_before_any_other() -> None:
    queue = a_queue(slots=2, depth=2)
    keys = [queue.lease(actor, 0).slot for actor in range(3)]
    queue.give_back(keys[1], 1, 0)
    queue.give_back(keys[0], 0, 0)
    assert [queue.lease(actor, 0).slot for actor in (4, 5, 6)] == [0, 1, 3]


def test_what_a_dead_actor_held_comes_back_and_cannot_be_handed_over() -> None:
    queue = a_queue(actors=2, slots=1)
    queue.provide(memory())
    key = queue.lease(1, 0).slot
    queue.join(1, 1)  # it has been restarted
    assert queue.put(key, rollout(1, 0, 0)) is False
    assert queue.lease(0, 0).slot == key
    queue.give_back(key, 1, 0)  # its earlier life, late
    assert queue.put(key, rollout(0, 0, 0)) is True


def test_at_the_end_what_is_full_is_taken_and_nothing_else() -> None:
    queue = a_queue(actors=2, slots=2, depth=2)
    queue.put(queue.lease(0, 0).slot, rollout(0, 0, 0))
    queue.lease(1, 0)
    queue.put(queue.lease(0, 0).slot, rollout(0, 0, 2))
    queue.leave(0, 0)
    with pytest.raises(WouldBlock):  # the other actor may still fill its slot
        queue.take()
    queue.leave(1, 0)
    ends = [queue.take(), queue.take()]
    assert [(full.number, full.places) for full in ends if full] == [(0, (0,)), (1, (0,))]
    assert queue.take() is None


def test_an_actor_waits_until_there_is_memory() -> None:
    queue = a_queue(begun=False)
    with pytest.raises(WouldBlock):
        queue.join(0, 0)
    slots = memory()
    queue.provide(slots, Stamp(2, 7))
    assert queue.join(0, 0) is slots
    assert queue.lease(0, 0).stamp == (2, 7)  # of a learner that has been resumed or restarted


def test_a_batch_is_what_was_filled_without_a_copy() -> None:
    writer, reader, queue = ends()
    for number in (1.0, 2.0):
        fill(writer, number, position=int(number))
    batch = reader.batch()
    assert isinstance(batch, Batch)
    assert batch.data.reward.tolist() == [[1.0, 2.0]] * 3
    assert (batch.fresh, batch.position) == (6, 1)
    queue.memory().slot(0).reward.fill_(9.0)
    assert batch.data.reward[0].tolist() == [9.0, 2.0]


def test_an_incomplete_batch_has_the_slots_that_are_full() -> None:
    writer, reader, _ = ends(slots=3)
    fill(writer, 1.0)
    fill(writer, 2.0)
    writer.close()
    batch = reader.batch()
    assert isinstance(batch, Batch)
    assert batch.data.reward.tolist() == [[1.0, 2.0]] * 3
    reader.trained(batch, Updated({}))
    assert reader.batch() is NoBatch.END


def test_two_calls_of_one_actor_that_both_wait_get_the_same_slot() -> None:
    # The connection of the first one was lost, which the learner's host has not noticed yet
    queue = a_queue(slots=1, depth=1)
    queue.put(queue.lease(0, 0).slot, rollout(0, 0, 0))
    first, second = (TrajectoryQueue.lease.waits(queue, 0, 0) for _ in range(2))  # type: ignore[attr-defined]
    assert [next(first), next(second)] == [None, None]
    assert queue.take() is not None
    queue.trained(0, 0)
    assert [answer(call).slot for call in (first, second)] == [1, 1]


def test_an_earlier_life_of_an_actor_gets_no_slot_and_does_not_end_the_newer_one() -> None:
    queue = a_queue(slots=1, depth=1)
    queue.register(0, 0)
    queue.put(queue.lease(0, 0).slot, rollout(0, 0, 0))
    earlier = TrajectoryQueue.lease.waits(queue, 0, 0)  # type: ignore[attr-defined]
    next(earlier)
    queue.register(0, 1)  # its host counted as dead, and lives on
    assert queue.take() is not None
    queue.trained(0, 0)
    assert answer(earlier) is None
    assert queue.lease(0, 0) is None
    queue.leave(0, 0)
    assert queue.beat([0])
    assert queue.lease(0, 1).slot == 1


def answer(call: Any) -> Any:
    """What a call returns that has waited."""
    with pytest.raises(StopIteration) as end:
        next(call)
    return end.value.value


def test_a_slot_whose_actor_failed_is_not_handed_over() -> None:
    writer, _, queue = ends(slots=1)
    with pytest.raises(OSError, match="no coal"), writer.slot(0):
        raise OSError("no coal left")
    assert queue.lease(0, 0).slot == 0
    with pytest.raises(WouldBlock):
        queue.take()


def test_each_batch_is_used_so_many_times_in_turn_with_newer_ones() -> None:
    writer, reader, queue = ends(slots=1, depth=3, reuse=2)
    used, fresh = [], []
    for number in range(4):
        fill(writer, float(number))
        for _ in range(1 if number == 0 else 2):
            batch = reader.batch()
            assert isinstance(batch, Batch)
            used.append(batch.key)
            fresh.append(batch.fresh)
            reader.trained(batch, Updated({}))
    assert used == [0, 0, 1, 1, 2, 2, 3]
    assert fresh == [3, 0, 3, 0, 3, 0, 3]
    assert queue._released == 3  # the last one is used once more


def test_final_observations_come_with_the_batch_at_their_own_environment() -> None:
    slots = memory(width=2, slots=2)
    for place, b in ((0, 1), (1, 0)):
        slots.slot(place).finals.append(Final(t=2, b=b, obs=torch.full((4,), float(place)), state={}, value=0.5))
    batch = slots.batch(0, (0, 1))
    assert [(final.t, final.b, final.obs[0].item()) for final in batch.finals] == [(2, 1, 0.0), (2, 2, 1.0)]
    assert [(final.b, final.obs[0].item()) for final in slots.batch(0, (1,)).finals] == [(0, 1.0)]
    assert [final.b for final in batch.column(2).finals] == [0]
    assert batch.column(0).finals == []


def test_replay_adds_its_share_of_old_trajectories_and_forgets_the_oldest() -> None:
    replay = Replay(0.5, 4, torch.Generator().manual_seed(0))
    slots = memory(width=2, slots=1, depth=1)
    for number in range(4):
        slots.slot(0).reward.fill_(float(number))
        batch = replay.mixed(slots.batch(0, (0,))).data
        assert batch.reward.shape == ((3, 2) if number == 0 else (3, 4))
        assert batch.reward[0, :2].tolist() == [number, number]
        for old in batch.reward[0, 2:].tolist():
            assert max(0, number - 2) <= old < number  # the two newest rollouts of two environments each


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.8])
@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_over_many_batches_the_share_of_old_trajectories_is_exact(width: int, share: float) -> None:
    replay, slots = Replay(share, 8, torch.Generator().manual_seed(0)), memory(width=width, slots=1, depth=1)
    widths = [replay.mixed(slots.batch(0, (0,))).data.num_envs for _ in range(101)]
    old = sum(widths) - 101 * width
    wanted = 100 * width * share / (1 - share)  # the first batch has none: nothing is kept yet
    assert wanted - 1 < old <= wanted + 1e-6
    assert max(widths) - min(widths[1:]) <= 1


def test_waiting_for_a_batch_and_loading_it_are_timed_apart() -> None:
    clock = Clock()
    writer, reader, _ = ends(slots=1, depth=1, clock=clock, replay=Replay(0.5, 4, torch.Generator().manual_seed(0)))
    fill(writer, 1.0)
    assert isinstance(reader.batch(), Batch)
    assert clock.take().keys() == {"learner_waits", "load"}


def test_replayed_trajectories_are_copies_that_later_rollouts_do_not_change() -> None:
    writer, reader, _ = ends(slots=1, depth=1, replay=Replay(0.75, 100, torch.Generator().manual_seed(0)))
    seen = []
    for number in range(1, 4):
        fill(writer, float(number))
        batch = reader.batch()
        assert isinstance(batch, Batch)
        assert (batch.fresh, batch.data.reward.shape[1]) == (3, 1 if number == 1 else 4)
        seen.append(set(batch.data.reward[0].tolist()))
        reader.trained(batch, Updated({}))
    assert seen[0] == {1.0}
    assert seen[1] == {1.0, 2.0}
    assert {3.0} < seen[2] <= {1.0, 2.0, 3.0}


def test_replayed_trajectories_have_their_own_state_version_and_final_observations() -> None:
    replay = Replay(0.5, 2, torch.Generator().manual_seed(0))
    for number in (1, 2, 3):
        fresh = Trajectory.empty(2, 2, (4, 8, 8), torch.uint8, state={"hidden": torch.zeros(2, 5)})
        for b in range(2):
            fresh.obs[:, b], fresh.state["hidden"][b], fresh.version[:, b] = number, number, number
            fresh.finals.append(Final(number, b, torch.full((4, 8, 8), number), {"hidden": torch.ones(5)}, 0.5))
        batch = replay.mixed(fresh).data
    assert [final.b for final in batch.finals] == [0, 1, 2, 3]
    assert [final.t for final in batch.finals] == batch.version[1].tolist() == [3, 3, 2, 2]
    assert batch.obs[0, :, 0, 0, 0].tolist() == batch.state["hidden"][:, 0].tolist() == [3, 3, 2, 2]
    assert batch.obs.stride()[2] == 1  # channels last


def test_a_batch_wider_than_the_replay_memory_leaves_its_last_trajectories_there() -> None:
    replay, fresh = Replay(0.5, 2, torch.Generator().manual_seed(0)), Trajectory.empty(2, 5, (4,), torch.float32)
    fresh.reward.copy_(torch.arange(5.0).expand(2, 5))
    replay.mixed(fresh)
    assert {*replay.mixed(fresh).data.reward[0, 5:].tolist()} == {3.0, 4.0}


def test_pictures_keep_their_format_when_they_are_copied() -> None:
    picture = Trajectory.empty(2, 3, (4, 8, 8), torch.uint8)
    assert Trajectory.concatenated([picture, picture]).obs.stride()[2] == picture.obs.stride()[2] == 1


def test_a_silent_actor_s_slot_goes_to_another_one_and_what_it_sends_later_is_refused() -> None:
    queue = a_queue(actors=2, slots=1, depth=1)
    for actor in range(2):
        queue.register(actor, 0)
    key = queue.lease(0, 0).slot
    for second in range(8):
        assert queue.tick(float(second))
        queue.beat([1])
        if second == 4:
            with pytest.raises(WouldBlock):
                queue.lease(1, 0)
    assert queue.lease(1, 0).slot == key
    packed = Packed.of(Trajectory.empty(3, 1, (4,), torch.float32))
    assert queue.deliver(key, rollout(0, 0, 0), packed) is False
    assert queue.deliver(key, rollout(1, 0, 5), packed) is True
    full = queue.take()
    assert full is not None
    assert (full.position, list(full.packed)) == (5, [0])


def test_actors_that_are_gone_for_good_are_not_waited_for_at_the_end() -> None:
    queue = a_queue(actors=2, slots=1)
    for actor in range(2):
        queue.register(actor, 0)
    queue.lease(0, 0)
    queue.leave(1, 0)
    assert queue.tick(100.0)
    with pytest.raises(WouldBlock):
        queue.take()
    assert not ticks(queue, 101.0, 1000.0)
    assert queue.take() is None


def test_heartbeats_may_come_before_the_first_tick() -> None:
    # The clock is that of the machine, which has long been up: a restarted or resumed learner's host answers actors
    # before its own workers have begun.
    queue = a_queue(actors=2, slots=1)
    for actor in range(2):
        queue.register(actor, 0)
    key = queue.lease(0, 0).slot
    assert queue.beat([0, 1])
    assert queue.tick(50_000.0)
    assert queue.lease(0, 0).slot == key
    assert queue.tick(50_000.0 + PATIENCE)
    assert queue.put(key, rollout(0, 0, 0))


def test_a_heartbeat_answers_whether_any_of_these_actors_has_not_ended() -> None:
    queue = a_queue(actors=3, slots=1)
    assert queue.beat([0, 1])
    queue.leave(0, 0)
    assert queue.beat([0, 1])
    queue.leave(1, 0)
    assert not queue.beat([0, 1])


def test_a_queue_does_not_wait_for_ever_for_actors_that_it_never_hears_from() -> None:
    queue = a_queue(actors=2, slots=1)
    queue.register(1, 0)
    queue.leave(1, 0)
    assert ticks(queue, 10.0, 300.0)  # a host may still come back
    assert not ticks(queue, 301.0, 320.0)
    assert queue.take() is None


def test_actors_are_not_silent_while_the_process_is_paused() -> None:
    queue = a_queue(actors=1, slots=1)
    queue.register(0, 0)
    assert ticks(queue, 0.0, 3.0)
    queue.beat([0])
    key = queue.lease(0, 0).slot
    assert queue.tick(1000.0)
    assert queue.beat([0])
    assert queue.put(key, rollout(0, 0, 0))


def test_an_actor_gets_no_slot_after_the_learner_has_ended() -> None:
    queue = a_queue(actors=2, slots=1, depth=1)
    reader = QueueReader(queue, memory(slots=1, depth=1), version=lambda: 0)
    assert queue.lease(0, 0) is not None
    reader.close()
    assert queue.lease(0, 1) is None
    with pytest.raises(Stopped), QueueWriter(queue, 1, 0, untimed).slot(0):
        pass


def test_final_observations_from_another_host_lie_where_the_slot_does() -> None:
    slot = Trajectory.empty(3, 2, (4,), torch.float32, state={"hidden": torch.zeros(2, 5)})
    slot.finals.append(Final(1, 1, torch.ones(4), {"hidden": torch.ones(5)}, 0.5))
    other = Trajectory.empty(
        3, 2, (4,), torch.float32, device="meta", state={"hidden": torch.zeros(2, 5, device="meta")}
    )
    Packed.of(slot).unpack(other)
    assert (other.finals[0].obs.device.type, other.finals[0].state["hidden"].device.type) == ("meta", "meta")


def test_a_rollout_crosses_hosts_unchanged() -> None:
    slot = Trajectory.empty(3, 2, (4, 8, 8), torch.uint8, state={"hidden": torch.zeros(2, 5)})
    slot.obs.random_(255)
    slot.action.random_(1, 9)
    slot.version.random_(1, 9)
    for tensor in (slot.reward, slot.discount, slot.behaviour, slot.value, slot.state["hidden"]):
        tensor.normal_()
    slot.begins[1, 0] = True
    slot.finals.append(Final(1, 1, slot.obs[2, 1].clone(), {"hidden": torch.ones(5)}, 0.5))
    packed = Packed.of(slot)
    other = Trajectory.empty(3, 2, (4, 8, 8), torch.uint8, state={"hidden": torch.zeros(2, 5)})
    other.finals.append(Final(0, 0, slot.obs[0, 0], {}, 9.0))  # of an earlier rollout
    packed.unpack(other)
    for name in ("obs", "action", "reward", "discount", "behaviour", "value", "begins", "version"):
        assert torch.equal(getattr(other, name), getattr(slot, name))
    assert torch.equal(other.state["hidden"], slot.state["hidden"])
    (final,) = other.finals
    assert (final.t, final.b, final.value) == (1, 1, 0.5)
    assert torch.equal(final.obs, slot.finals[0].obs)
    assert torch.equal(final.state["hidden"], torch.ones(5))
    assert packed.nbytes > slot.obs.numel()
    slot.reward.zero_()  # a copy
    assert float(torch.from_numpy(packed.arrays["reward"]).abs().sum()) > 0
    with pytest.raises(ValueError, match=r"whose obs is \(4, 2, 8, 8, 4\), not \(4, 1, 8, 8, 4\)"):
        packed.unpack(Trajectory.empty(3, 1, (4, 8, 8), torch.uint8))


class Gone:
    """The context of `beat`, a queue whose host does not answer for the second and third of four heartbeats, and the
    copy of the parameters: all that `beat` knows."""

    name, stopped = "beat", False

    def __init__(self) -> None:
        self.beats, self.asked = 0, list[int]()

    def now(self) -> float:
        return float(self.beats)

    def sleep(self, seconds: float) -> None:
        pass

    def report(self, record: object) -> None:
        raise AssertionError(record)  # nothing is told of such a short time

    def beat(self, actors: object) -> bool:
        self.beats += 1
        if self.beats in (2, 3):
            raise Unreachable("learner")
        return True

    def followed(self) -> bool:
        return self.beats < 5

    def ask_again(self) -> None:
        self.asked.append(self.beats)

    def abandon(self, actors: int) -> None:
        raise AssertionError


def test_a_host_that_answers_again_is_asked_whether_it_wants_the_copy() -> None:
    gone = Gone()
    beat(gone, gone, gone, [0])  # type: ignore[arg-type]
    assert gone.asked == [4]


class Restarted:
    """The context of a worker on a restarted host. The launcher learns after 7 s that the actor has ended."""

    stopped = False

    def __init__(self) -> None:
        self.time = 0.0

    @property
    def ended_before(self) -> frozenset[str]:
        return frozenset({"act[0]"}) if self.time >= 7 else frozenset()

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def test_an_actor_whose_end_the_launcher_learns_after_the_restart_is_not_waited_for() -> None:
    ctx: Any = Restarted()
    queue = a_queue(actors=1)
    watch(ctx, queue)
    assert 7 <= ctx.time <= 7 + BEAT
    assert queue.take() is None
