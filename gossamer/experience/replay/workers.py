"""Worker loop beside a replay memory that several workers share."""

from __future__ import annotations

from gossamer.experience.replay.limiter import Limiter
from gossamer.runtime import Context

BEAT = 0.2  # seconds between two ticks


def pace(ctx: Context, limiter: Limiter) -> None:
    """Clock of the limiter, until all actors or learners have ended."""
    limiter.forget(ctx.ended_before)
    while not ctx.stopped and limiter.tick(ctx.now()):
        ctx.sleep(BEAT)
