"""Worker loops that find out which actors of other hosts are alive."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from gossamer.experience.queue.queue import PATIENCE, TrajectoryQueue
from gossamer.runtime import Context, Unreachable
from gossamer.task import Note

BEAT = 1.0  # seconds between heartbeats


class Followed(Protocol):
    """A service that knows whether its host's actors have ended."""

    def followed(self) -> bool:
        """Whether actors of this host have not ended."""

    def ask_again(self) -> None:
        """Have the learner's host asked whether it needs this host's copy: it may have restarted."""

    def abandon(self, actors: int) -> None:
        """All actors that one queue has on this host have ended: so many."""


def beat(ctx: Context, queue: TrajectoryQueue, here: Followed, actors: Collection[int]) -> None:
    """Send a heartbeat of this host's actors to the learner's host, until they have ended. Tells the observer when that
    host does not answer for a while, and when it answers again. After that, the host may need this host's copy."""
    answered, away, told = ctx.now(), False, False
    while not ctx.stopped and here.followed():
        try:
            if not queue.beat(actors):
                here.abandon(len(actors))
                return
        except Unreachable:
            away = True
            if not told and ctx.now() - answered > PATIENCE:
                told = True
                ctx.report(Note(f"{ctx.name}: no answer from the learner's host for {PATIENCE:g} s; its actors wait"))
        else:
            if told:
                ctx.report(Note(f"{ctx.name}: the learner's host answers again"))
            if away:
                here.ask_again()
            answered, away, told = ctx.now(), False, False
        ctx.sleep(BEAT)


def watch(ctx: Context, queue: TrajectoryQueue) -> None:
    """Clock of a queue, on the learner's host, until all actors have ended."""
    while not ctx.stopped:
        queue.forget(ctx.ended_before)  # each time: after a restart, the launcher may learn late who has ended
        if not queue.tick(ctx.now()):
            return
        ctx.sleep(BEAT)
