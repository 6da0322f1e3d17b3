"""The loop of architectures that act and learn in one place: PAAC, GALA, PALA."""

from __future__ import annotations

from contextlib import closing

from gossamer.envs.watchdog import Watchdog
from gossamer.exchange import Exchange
from gossamer.experience import Direct
from gossamer.member import Member
from gossamer.runtime import Context, Stopped
from gossamer.task import Activity, Task


def act_and_learn(ctx: Context, task: Task, exchange: Exchange, *, num_envs: int, env_workers: int = 0) -> None:
    """Act for a rollout, learn from it, let the exchange make it parameters: on policy, in one place.

    `num_envs` environments side by side, stepped by `env_workers` threads or processes (0: what suits them)."""
    exchange.begin(ctx)
    ctx.report(Activity(f"starting {num_envs} environments"))
    with (
        Watchdog(task.env.name, ctx.report) as watchdog,
        closing(watchdog.watch(task.env.make(num_envs, workers=env_workers))) as env,
        closing(Member(ctx, task, env, exchange)) as member,
    ):
        experience = Direct(member.slot())
        ctx.report(Activity(""))  # rates are counted from here
        try:
            while (position := ctx.claim(task.rollout_length * num_envs, member.state_dict)) is not None:
                with experience.slot(position) as slot:
                    member.unroll(slot)
                batch = experience.batch()
                metrics = member.update(batch)
                experience.trained(batch)
                ctx.report(member.report(metrics))
        except Stopped:  # by an exchange that would have had to wait
            pass
        except Exception:
            if member.learner.finite:  # the parameters are those of the last good step
                ctx.save(member.state_dict(acting=False))
            raise
        ctx.save(member.state_dict())
