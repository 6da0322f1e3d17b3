"""The loop of actors that do not learn."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from gossamer.envs.base import threads_of
from gossamer.experience import ActorExperience
from gossamer.loops.roles import Envs
from gossamer.loops.watched import watched
from gossamer.policy import Policy
from gossamer.runtime import Context
from gossamer.task import Activity, Task
from gossamer.workers.member import Player, prepared


def act(ctx: Context, task: Task, policy: Policy, experience: ActorExperience, *, envs: Envs) -> None:
    """Fill slots of the experience, each with a rollout by the newest parameters, until the budget is spent.

    With no `envs.workers`, native threads get a share of the cores."""
    envs = replace(envs, workers=envs.workers or threads_of(task.env, ctx.copies))
    with (
        watched(ctx, task, envs) as groups,
        closing(Player(ctx, prepared(ctx, task), groups, policy)) as player,
        closing(experience.join(ctx, player)) as writer,
    ):
        ctx.report(Activity(""))  # rates are counted from here
        while (position := ctx.claim(player.rollout_steps)) is not None:
            with writer.slot(position) as slot:
                player.unroll(slot, position)
            ctx.report(player.report(writer.kept()))
