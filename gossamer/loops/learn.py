"""The loop of learners that do not act."""

from __future__ import annotations

from contextlib import closing

from gossamer.data import Batch, NoBatch
from gossamer.envs.once import spec_of
from gossamer.exchange import Exchange
from gossamer.experience import LearnerExperience, Reader
from gossamer.runtime import Context, Stopped
from gossamer.task import Task
from gossamer.workers.member import Trainer, prepared


def learn(ctx: Context, task: Task, experience: LearnerExperience, exchange: Exchange) -> None:
    """Learn from the batches of the experience until there will be no more."""
    task = prepared(ctx, task)
    with (
        closing(Trainer(ctx, task, spec_of(task.env, ctx.report), exchange, ctx.restored())) as trainer,
        closing(experience.join(ctx, trainer)) as reader,
    ):
        _learn_from(ctx, trainer, reader)


def _learn_from(ctx: Context, trainer: Trainer, reader: Reader) -> None:
    """Learn until there are no more batches, and save."""
    try:
        while ctx.claim(0, trainer.state_dict) is not None:
            batch = reader.batch()
            if batch is NoBatch.END:
                trainer.learner.finish(trainer.link)
                break
            if isinstance(batch, Batch):
                reader.trained(batch, trainer.update(batch))
                ctx.report(trainer.report(batch.waiting if batch.fresh else None))
    except Stopped:  # while it waited for a batch
        pass
    except Exception:
        if trainer.learner.finite:  # the parameters are those of the last good step
            ctx.save(trainer.state_dict())
        raise
    ctx.save(trainer.state_dict())
