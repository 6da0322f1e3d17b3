"""The loop that assembles batches ahead of a learner."""

from __future__ import annotations

from dataclasses import replace

import torch

from gossamer.actor import Clock
from gossamer.experience import Assembler, NextBatch, Replay, TrajectoryQueue
from gossamer.machine import settle
from gossamer.member import prepared
from gossamer.runtime import Context
from gossamer.task import Spent, Task


def load(
    ctx: Context,
    task: Task,
    queue: TrajectoryQueue,
    next_batch: NextBatch,
    *,
    replay_share: float = 0.0,
    replay_size: int = 0,
) -> None:
    """Assemble each batch of the queue while the learner trains on the one before, until its actors have ended.

    `replay_share`: fraction of old trajectories in each batch, of the newest `replay_size`."""
    task, clock = prepared(ctx, replace(task, threads=1)), Clock()  # more threads would compete with the learner's
    if next_batch.forget(ctx.ended_before):
        return
    replay = replayed(task, ctx.rank, replay_share, replay_size)
    assembler = Assembler(queue, queue.memory(), clock, replay, waits="loader_waits")
    while (batch := assembler.batch()) is not None:
        with clock("load"):
            settle(task.device)
        ctx.report(Spent(clock.take()))
        with clock("loader_waits"):
            next_batch.put(batch)
    next_batch.end()


def replayed(task: Task, rank: int, share: float, size: int) -> Replay | None:
    """The replay memory of a learner; None if nothing is replayed. It chooses on the CPU, wherever the trajectories
    are."""
    return Replay(share, size, torch.Generator().manual_seed(task.stream("replay", rank))) if share else None
