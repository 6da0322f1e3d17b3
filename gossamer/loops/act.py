"""The loop of actors that do not learn."""

from __future__ import annotations

from contextlib import closing

from gossamer.envs.base import threads_of
from gossamer.envs.watchdog import Watchdog
from gossamer.exchange import Broadcast
from gossamer.experience import QueueWriter, RemoteWriter, TrajectoryQueue
from gossamer.member import Player, prepared
from gossamer.runtime import Context
from gossamer.task import Activity, Task


def act(
    ctx: Context,
    task: Task,
    queue: TrajectoryQueue,
    exchange: Broadcast,
    *,
    num_envs: int,
    env_workers: int = 0,
    remote: bool = False,
) -> None:
    """Fill slots of the queue, each with a rollout by the newest parameters, until the budget is spent.

    `num_envs` environments side by side, stepped by `env_workers` threads or processes (0: a share of the cores for
    native threads, else what suits them). `remote`: the learner is on another host."""
    ctx.report(Activity(f"starting {num_envs} environments"))
    workers = env_workers or threads_of(task.env, ctx.copies)
    with (
        Watchdog(task.env.name, ctx.report) as watchdog,
        closing(watchdog.watch(task.env.make(num_envs, workers=workers))) as env,
    ):
        steps = task.rollout_length * num_envs
        with (
            closing(Player(ctx, prepared(ctx, task), env, exchange)) as player,
            closing(_writer(ctx, queue, player, exchange, remote)) as experience,
        ):
            ctx.report(Activity(""))  # rates are counted from here
            while (position := ctx.claim(steps)) is not None:
                with experience.slot(position) as slot:
                    player.unroll(slot)
                ctx.report(player.report(steps))


def _writer(
    ctx: Context, queue: TrajectoryQueue, player: Player, exchange: Broadcast, remote: bool
) -> QueueWriter | RemoteWriter:
    if remote:
        return RemoteWriter(ctx, queue, player.slot(), exchange.parameters.at_least, player.clock)
    return QueueWriter(queue, ctx.rank, ctx.restarts, player.clock)
