"""The wiring of a parameter server."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.exchange import ParameterShard, tend
from gossamer.program import OnRestart, Program
from gossamer.task import Task

SNAPSHOT_SECONDS = 10.0


def share_server(
    p: Program,
    task: Task,
    learners: Sequence[str],
    *,
    shards: int,
    max_delay: int,
    snapshot_seconds: float = SNAPSHOT_SECONDS,
) -> tuple[ParameterShard, ...]:
    """Add the shards of a parameter server, each on a host of its own. `learners`: their names, by rank."""
    made = []
    for s in range(shards):
        with p.host(f"shard{s}"):
            service = p.service(
                ParameterShard, saved=True, on_restart=OnRestart.SNAPSHOT, snapshot_seconds=snapshot_seconds
            )
            shard = service(task.optimization, learners=learners, max_delay=max_delay)
            p.worker(tend)(shard)
            made.append(shard)
    return tuple(made)
