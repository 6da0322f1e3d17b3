"""Worker loop of a shard's host."""

from __future__ import annotations

from gossamer.exchange.server.shard import ParameterShard
from gossamer.runtime import Context
from gossamer.task import ShardRestored

BEAT = 0.2  # seconds between two ticks
AFTER = 15.0  # seconds after a restart until what was lost is reported; at the latest when learners end


def tend(ctx: Context, shard: ParameterShard) -> None:
    """Clock of a shard, until its learners have ended. After a restart it reports what was lost."""
    untold, began = ctx.restarts > 0, ctx.now()
    while not ctx.stopped:
        shard.forget(ctx.ended_before)  # each time: after a restart, the launcher may learn late who has ended
        if not shard.tick(ctx.now()):
            break
        if untold and ctx.now() - began >= AFTER:
            untold = False
            _tell(ctx, shard)
        ctx.sleep(BEAT)
    if untold:
        _tell(ctx, shard)


def _tell(ctx: Context, shard: ParameterShard) -> None:
    ctx.report(ShardRestored(*shard.lost()))
