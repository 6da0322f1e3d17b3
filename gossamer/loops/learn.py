"""The loop of learners that do not act."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from gossamer.envs.base import EnvFactory
from gossamer.envs.watchdog import Watchdog
from gossamer.exchange import Exchange
from gossamer.experience import Batching, NextBatch, QueueReader, Slots, TrajectoryQueue
from gossamer.loops.load import replayed
from gossamer.machine import settle
from gossamer.member import Trainer, prepared
from gossamer.runtime import Context, Stopped
from gossamer.spaces import Spec
from gossamer.task import Task


def learn(
    ctx: Context,
    task: Task,
    queue: TrajectoryQueue,
    exchange: Exchange,
    *,
    batching: Batching,
    next_batch: NextBatch | None = None,
    reuse: int = 1,
    replay_share: float = 0.0,
    replay_size: int = 0,
) -> None:
    """Learn from the batches of the queue until its actors have ended.

    `next_batch`: where the worker `load` hands over batches, in which old trajectories are already; None: the learner
    assembles them. `reuse`: passes over each batch; `replay_share`: fraction of old trajectories in each batch, of the
    newest `replay_size`."""
    task = prepared(ctx, task)
    with closing(Trainer(ctx, task, _spec(ctx, task.env), exchange, ctx.restored())) as trainer:
        replay = replayed(task, ctx.rank, replay_share, replay_size)
        batches = [trainer.slot(batching.slots * batching.num_envs) for _ in range(batching.depth)]
        slots = Slots(batches, batching.slots)
        settle(task.device)  # other workers fill this memory
        options: dict[str, Any] = {"clock": trainer.clock, "reuse": reuse, "replay": replay, "next_batch": next_batch}
        options |= {"life": ctx.restarts, "ended": ctx.ended_before}
        with closing(QueueReader(queue, slots, version=trainer.version, **options)) as experience:
            _learn_from(ctx, trainer, experience)


def _learn_from(ctx: Context, trainer: Trainer, experience: QueueReader) -> None:
    """Learn until there are no more batches, and save."""
    try:
        while ctx.claim(0, trainer.state_dict) is not None:
            if (batch := experience.batch()) is None:
                trainer.learner.finish(trainer.link)
                break
            metrics = trainer.update(batch)
            experience.trained(batch)
            ctx.report(trainer.report(metrics, batch.waiting if batch.fresh else None))
    except Stopped:  # while it waited for a batch
        pass
    except Exception:
        if trainer.learner.finite:  # the parameters are those of the last good step
            ctx.save(trainer.state_dict())
        raise
    ctx.save(trainer.state_dict())


def _spec(ctx: Context, env: EnvFactory) -> Spec:
    """The environment's observations and actions, read from one that is closed again."""
    with Watchdog(env.name, ctx.report) as watchdog, closing(watchdog.watch(env.make(1))) as one:
        return one.spec
