"""The state of a run for those that watch it: members, hosts, gossip and counters as of now (`status.json`)."""

from __future__ import annotations

import time
from typing import Any

from gossamer.diagnostics.consensus import ConsensusMonitor
from gossamer.evaluation.members import rank, ranked
from gossamer.training.policy_lag import by_value
from gossamer.training.progress import Progress


def status(progress: Progress, consensus: ConsensusMonitor | None) -> dict[str, Any]:
    """The content of `status.json`. `row` has what a line of `metrics.jsonl` has; times are in seconds, `written` is
    Unix time."""
    return {
        "written": round(time.time(), 3),
        "activity": progress.activity,
        "total": progress.total,
        "left_seconds": progress.left,
        "steps_per_second_60s": round(progress.rate(60), 1),
        "row": progress.current(),
        "members": _members(progress),
        "hosts": [
            {"name": host.name, "address": host.address, "up": host.up, "workers": list(host.learners)}
            for host in progress.hosts.known
        ],
        "absences": progress.hosts.to_list(),
        "environment_restarts": progress.restarts,
        "policy_lag": by_value(progress.staleness.lag),
        "traffic": consensus.traffic() if consensus is not None else {},
    }


def _members(progress: Progress) -> list[dict[str, Any]]:
    """Every worker that has reported, or that belongs to a host; in the order of their ranks."""
    returns, away = progress.member_returns, progress.away
    known = {*returns, *(worker for host in progress.hosts.known for worker in host.learners)}
    return [
        {
            "name": worker,
            "rank": rank(worker),
            "group": progress.groups.get(worker),
            "learns": worker not in progress.actors,
            "up": worker not in away,
            "mean_return": returns.get(worker),
        }
        for worker in ranked(known)
    ]
