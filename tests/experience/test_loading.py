"""Parallel loading: one batch is assembled while the learner trains on the one before, and gives no credit back."""

from __future__ import annotations

import pytest
import torch

from gossamer.data import Batch, NoBatch, Packed, Rollout, Trajectory, Updated
from gossamer.experience import Assembler, Batching, NextBatch, QueueReader, QueueWriter, Replay, Slots, TrajectoryQueue
from gossamer.experience.base import untimed
from gossamer.launch.simulation import Simulation
from gossamer.program import Program
from gossamer.runtime import Context, WouldBlock
from gossamer.workers.clock import Clock

BATCHES = 6


def memory(*, slots: int = 1, depth: int = 3) -> Slots:
    return Slots([Trajectory.empty(3, slots, (4,), torch.float32) for _ in range(depth)], slots)


class Ends:
    """A queue of one actor with all its ends; the batches' only numbers are their rewards."""

    def __init__(self, *, slots: int = 1, depth: int = 3, reuse: int = 1, share: float = 0.0) -> None:
        self.queue = TrajectoryQueue(actors={"act": 0}, batching=Batching(1, slots, depth))
        self.next_batch, self.clock = NextBatch(self.queue, loader="load", learner="learn"), Clock()
        given = {"version": lambda: 0, "clock": self.clock, "reuse": reuse, "next_batch": self.next_batch}
        self.reader = QueueReader(self.queue, memory(slots=slots, depth=depth), **given)  # type: ignore[arg-type]
        replay = Replay(share, 9, torch.Generator().manual_seed(0)) if share else None
        self.assembler = Assembler(self.queue, self.queue.memory(), self.clock, replay, waits="loader_waits")
        self.writer = QueueWriter(self.queue, 0, 0, untimed)

    def fill(self, number: float) -> None:
        with self.writer.slot(int(number)) as slot:
            slot.reward.fill_(number)

    def load(self) -> None:
        """What the loader does with one batch, up to where it waits for the learner."""
        batch = self.assembler.batch()
        assert batch is not None
        with pytest.raises(WouldBlock):
            self.next_batch.put(batch)

    def batch(self) -> Batch:
        batch = self.reader.batch()
        assert isinstance(batch, Batch)
        return batch


def test_a_loader_waits_until_the_learner_has_taken_its_batch() -> None:
    ends = Ends()
    batch = Batch(Trajectory.empty(3, 1, (4,), torch.float32), 3, 0)
    steps = NextBatch.put.waits(ends.next_batch, batch)  # type: ignore[attr-defined]
    next(steps)
    next(steps)
    assert ends.batch().data is batch.data
    with pytest.raises(StopIteration):
        next(steps)
    with pytest.raises(WouldBlock):  # each batch is taken once
        ends.reader.batch()


def test_a_batch_that_is_assembled_ahead_is_in_flight() -> None:
    ends = Ends(depth=2)
    ends.fill(0)
    ends.fill(1)
    ends.load()
    first = ends.batch()
    ends.load()  # the other batch, while the learner trains on this one
    with pytest.raises(WouldBlock):
        ends.queue.lease(0, 0)
    ends.reader.trained(first, Updated({}))
    assert ends.queue.lease(0, 0).slot == 2
    with pytest.raises(WouldBlock):
        ends.queue.lease(1, 0)


@pytest.mark.parametrize("reuse", [1, 2, 3])
def test_with_reuse_the_loader_does_not_keep_the_last_credit(reuse: int) -> None:
    # With the least depth, reuse + 1, one batch is free while the learner holds the others.
    ends = Ends(depth=reuse + 1, reuse=reuse)
    used = []
    for number in range(5):
        ends.fill(number)
        ends.load()
        for _ in range(min(number + 1, reuse)):
            batch = ends.batch()
            used.append((batch.key, batch.fresh))
            ends.reader.trained(batch, Updated({}))
    passes = [range(max(0, number - reuse + 1), number + 1) for number in range(5)]
    assert used == [(key, 3 * (key == number)) for number, each in enumerate(passes) for key in each]


def test_waiting_batches_are_counted_when_the_learner_takes_one() -> None:
    ends = Ends(depth=3, reuse=2)
    ends.fill(0)
    ends.load()  # nothing waits behind it now
    ends.fill(1)
    ends.fill(2)
    first = ends.batch()
    assert first.waiting == 2
    ends.reader.trained(first, Updated({}))
    ends.load()
    assert ends.batch().waiting == 2  # the first one once more
    assert ends.batch().waiting == 1


def test_after_the_last_batch_the_loader_waits_until_the_learner_has_ended() -> None:
    ends = Ends(slots=2)
    ends.fill(7)
    ends.writer.close()
    ends.load()
    assert ends.assembler.batch() is None
    steps = NextBatch.end.waits(ends.next_batch)  # type: ignore[attr-defined]
    next(steps)
    last = ends.batch()
    assert last.data.reward.tolist() == [[7.0]] * 3  # an incomplete batch
    ends.reader.trained(last, Updated({}))
    assert ends.reader.batch() is NoBatch.END
    next(steps)
    ends.reader.close()
    with pytest.raises(StopIteration):
        next(steps)


def test_a_loader_ends_with_its_learner() -> None:
    ends = Ends()
    ends.fill(0)
    ends.load()
    waiting = NextBatch.put.waits(ends.next_batch, ends.batch())  # type: ignore[attr-defined]
    next(waiting)
    ends.fill(1)
    ends.reader.close()
    with pytest.raises(StopIteration):  # the learner does not take it any more
        next(waiting)
    assert ends.assembler.batch() is None  # although one is full
    ends.next_batch.end()


def test_rollouts_of_other_hosts_are_unpacked_and_old_ones_added_by_the_loader() -> None:
    ends = Ends(share=0.5)
    for number in range(2):
        rollout = Trajectory.empty(3, 1, (4,), torch.float32)
        rollout.reward.fill_(float(number + 1))
        ends.queue.deliver(ends.queue.lease(0, 0).slot, Rollout(0, 0, 1, number, 3), Packed.of(rollout))
        ends.load()
        batch = ends.batch()
        assert (batch.fresh, batch.position) == (3, number)
        assert batch.data.reward.tolist() == [[number + 1.0, 1.0][: number + 1]] * 3
        ends.reader.trained(batch, Updated({}))


def test_the_time_of_loading_is_the_loader_s_and_that_of_waiting_each_one_s_own() -> None:
    ends = Ends()
    ends.fill(0)
    ends.load()
    assert ends.clock.take().keys() == {"loader_waits", "load"}
    ends.batch()
    assert ends.clock.take().keys() == {"learner_waits"}


def test_an_actor_waits_for_memory_and_so_does_the_loader() -> None:
    queue = TrajectoryQueue(actors={"act": 0}, batching=Batching(1, 1, 1))
    with pytest.raises(WouldBlock):
        queue.memory()
    slots = memory(depth=1)
    queue.provide(slots)
    assert queue.memory() is slots


# In virtual time: assembling a batch and training on it take a second each, acting takes none.


def act(ctx: Context, queue: TrajectoryQueue) -> None:
    writer = QueueWriter(queue, 0, 0, untimed)
    for number in range(BATCHES):
        with writer.slot(number) as slot:
            slot.reward.fill_(float(number))
    writer.close()


def load(ctx: Context, queue: TrajectoryQueue, next_batch: NextBatch) -> None:
    assembler = Assembler(queue, queue.memory(), untimed, None)
    while (batch := assembler.batch()) is not None:
        ctx.sleep(1.0)
        next_batch.put(batch)
    next_batch.end()


def learn(ctx: Context, queue: TrajectoryQueue, next_batch: NextBatch, depth: int) -> None:
    reader = QueueReader(queue, memory(depth=depth), version=lambda: 0, next_batch=next_batch)
    while isinstance(batch := reader.batch(), Batch):
        ctx.sleep(1.0)
        assert set(batch.data.reward.flatten().tolist()) == {batch.position}
        reader.trained(batch, Updated({}))
    reader.close()


@pytest.mark.parametrize(
    ("depth", "seconds"),
    [
        (1, 2 * BATCHES),  # in turn
        (2, BATCHES + 1),  # the first batch is assembled, then one while the other is trained on
        (4, BATCHES + 1),
    ],
)
def test_a_batch_is_assembled_while_the_learner_trains_on_the_one_before(depth: int, seconds: float) -> None:
    program = Program("loading")
    queue = program.service(TrajectoryQueue)(actors={"act": 0}, batching=Batching(1, 1, depth))
    next_batch = program.service(NextBatch)(queue, loader="load", learner="learn")
    program.worker(act)(queue)
    program.worker(load)(queue, next_batch)
    program.worker(learn)(queue, next_batch, depth)
    for seed in range(20):
        simulation = Simulation(seed)
        simulation(program)
        assert simulation.now == seconds
