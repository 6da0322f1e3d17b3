"""The environments of a worker, closed at its end, with watchdogs that report steps that hang."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from gossamer.envs.base import VectorEnv
from gossamer.envs.numbered import Numbered
from gossamer.envs.watchdog import Watchdog
from gossamer.loops.roles import Envs
from gossamer.runtime import Context
from gossamer.task import Activity, Task


@contextmanager
def watched(ctx: Context, task: Task, envs: Envs) -> Iterator[list[VectorEnv]]:
    """Make the environments of a worker, in the task's groups."""
    ctx.report(Activity(f"starting {envs.count} environments"))
    each = envs.of_group(task.groups)
    with ExitStack() as stack:
        groups = list[VectorEnv]()
        for first in range(0, envs.count, each):
            watchdog = stack.enter_context(Watchdog(task.env.name, ctx.report))
            env = stack.enter_context(closing(task.env.make(each, workers=envs.workers)))
            groups.append(watchdog.watch(Numbered(env, first) if first else env))
        yield groups
