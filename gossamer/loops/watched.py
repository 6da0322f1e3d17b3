"""The environments of a worker, closed at its end, with a watchdog that reports steps that hang."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from gossamer.envs.base import VectorEnv
from gossamer.envs.watchdog import Watchdog
from gossamer.loops.roles import Envs
from gossamer.runtime import Context
from gossamer.task import Activity, Task


@contextmanager
def watched(ctx: Context, task: Task, envs: Envs) -> Iterator[VectorEnv]:
    """Make the environments of a worker."""
    ctx.report(Activity(f"starting {envs.count} environments"))
    with (
        Watchdog(task.env.name, ctx.report) as watchdog,
        closing(watchdog.watch(task.env.make(envs.count, workers=envs.workers))) as env,
    ):
        yield env
