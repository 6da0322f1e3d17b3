"""The environments of a worker, closed at its end, with a watchdog that reports steps that hang; and their spec."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from gossamer.envs.base import EnvFactory, VectorEnv
from gossamer.envs.watchdog import Watchdog
from gossamer.loops.roles import Envs
from gossamer.runtime import Context
from gossamer.spaces import Spec
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


def spec_of(ctx: Context, env: EnvFactory) -> Spec:
    """The environment's observations and actions, read from one that is closed again."""
    with Watchdog(env.name, ctx.report) as watchdog, closing(watchdog.watch(env.make(1))) as one:
        return one.spec
