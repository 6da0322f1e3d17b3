"""Worker loop beside a replay memory that several workers share."""

from __future__ import annotations

from gossamer.experience.replay.limiter import Limiter
from gossamer.runtime import Context

BEAT = 0.2  # seconds between two ticks


def pace(ctx: Context, limiter: Limiter) -> None:
    """Clock of the limiter, until all learners have ended."""
    while not ctx.stopped:
        limiter.forget(ctx.ended_before)  # each time: after a restart, the launcher may learn late who has ended
        if not limiter.tick(ctx.now()):
            return
        ctx.sleep(BEAT)
