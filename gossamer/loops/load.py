"""The loop that assembles batches ahead of a learner."""

from __future__ import annotations

from dataclasses import replace

from gossamer.experience import Assembler, NextBatch, Replaying, TrajectoryQueue
from gossamer.runtime import Context
from gossamer.system.machine import settle
from gossamer.task import Spent, Task
from gossamer.workers.clock import Clock
from gossamer.workers.member import prepared


def load(ctx: Context, task: Task, queue: TrajectoryQueue, next_batch: NextBatch, replaying: Replaying) -> None:
    """Assemble each batch of the queue while the learner trains on the one before, until its actors have ended."""
    task, clock = prepared(ctx, replace(task, threads=1)), Clock()  # more threads would compete with the learner's
    if next_batch.forget(ctx.ended_before):
        return
    memory = replaying.memory(ctx, task)
    assembler = Assembler(queue, queue.memory(), clock, memory, waits="loader_waits")
    while (batch := assembler.batch()) is not None:
        with clock("load"):
            settle(task.device)
        ctx.report(Spent(clock.take()))
        with clock("loader_waits"):
            next_batch.put(batch)
    next_batch.end()
