"""The loop of architectures that act and learn in one place: PAAC, GALA, PALA, A2C."""

from __future__ import annotations

from contextlib import closing, suppress

from gossamer.data import Batch, Tree
from gossamer.exchange import Exchange
from gossamer.experience import OwnExperience
from gossamer.loops.roles import Envs
from gossamer.loops.watched import watched
from gossamer.policy import Policy
from gossamer.runtime import Context, Stopped
from gossamer.task import Activity, Task
from gossamer.workers.learner import NonFinite
from gossamer.workers.member import Member


def act_and_learn(
    ctx: Context, task: Task, policy: Policy, experience: OwnExperience, exchange: Exchange, *, envs: Envs
) -> None:
    """Act for a rollout, learn from the batches that the experience has then, let the exchange make it parameters."""
    exchange.begin(ctx)
    with (
        watched(ctx, task, envs) as groups,
        closing(Member(ctx, task, groups, policy, exchange)) as member,
        closing(experience.join(ctx, member)) as end,
    ):

        def state() -> Tree:
            return {**member.state_dict(), "experience": end.state_dict()}

        ctx.report(Activity(""))  # rates are counted from here
        try:
            while (position := ctx.claim(member.rollout_steps, state)) is not None:
                with end.slot(position) as slot:
                    member.unroll(slot, position)
                while isinstance(batch := end.batch(), Batch):
                    end.trained(batch, member.update(batch))
                ctx.report(member.report(end.kept()))
            if not ctx.stopped:
                member.learner.finish(member.link)
        except Stopped:  # by an exchange that would have had to wait; the rollout before it counts as acted
            ctx.report(member.report(end.kept()))
        except Exception as error:
            if member.learner.finite:  # the parameters are those of the last good step
                learned = member.state_dict(acting=False)
                ctx.save(learned)
                if not isinstance(error, NonFinite):  # the experience may have what is not finite
                    with suppress(Exception):  # there may be no memory for a copy
                        ctx.save({**learned, "experience": end.state_dict()})
            raise
        ctx.save(state())
