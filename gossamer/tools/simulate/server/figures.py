"""The figures of a simulation of a parameter server: meaning, unit, printed form, and plot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gossamer.data import Array
from gossamer.task import ShardRestored
from gossamer.tools.simulate.base import Run
from gossamer.tools.simulate.figures import Figure, faults_line, lag, shares
from gossamer.tools.simulate.ledger import Totals
from gossamer.tools.simulate.picture import POINTS, Curve, Histogram, OverTime, Panel, Shares
from gossamer.tools.simulate.server.scenario import CALLS_EACH, ServerScenario
from gossamer.tools.simulate.server.workers import Iteration

BUNDLES = {"acting": "act", "computing": "update", "pulling": "pull", "pushing": "push"}  # figure -> span
FIGURES = (
    Figure("updates", "updates per second", "updates", "updates/s of the parameters, mean of the shards", 1),
    Figure("steps", "steps per second", "acted", "steps/s of all bundles"),
    Figure("dropped", "fraction", "dropped", "% of the gradients, staler than --max-delay", 2),
    Figure("lag_mean", "updates", "staleness, mean", "updates since the parameters of a gradient", 2),
    Figure("lag_max", "updates", "staleness, max", "updates since the parameters of a gradient"),
    Figure("acting", "fraction", "bundles act", "% of their time", 1),
    Figure("computing", "fraction", "bundles compute", "% of their time, gradients", 1),
    Figure("pulling", "fraction", "bundles pull", "% of their time, parameters", 1),
    Figure("pushing", "fraction", "bundles push", "% of their time, gradients", 1),
    Figure("received", "bytes per second", "gradients", "MB/s into all shards", 1),
    Figure("downlink_busy", "fraction", "downlinks", "% of a shard's time busy, with gradients", 1),
    Figure("sent", "bytes per second", "parameters", "MB/s out of all shards", 1),
    Figure("uplink_busy", "fraction", "uplinks", "% of a shard's time busy, with parameters", 1),
    Figure("applying", "fraction", "shards apply", "% of their time", 1),
    Figure("crashes", "crashes", "crashes", "crashes of hosts"),
    Figure("lost", "updates", "updates lost", "updates that crashes undid, of all shards"),
    Figure("virtual_seconds", "seconds", "virtual time", "s", 2),
    Figure("seconds", "seconds", "real time", "s taken by the simulation", 1),
    Figure("bundles", "bundles"),
    Figure("shards", "shards"),
    Figure("iterations", "gradients of each bundle"),
)


def measure(ran: Run[ServerScenario]) -> dict[str, Any]:
    """The figures, `lag` (the histogram) and `bound_by`, by their keys in JSON. They count from the end of the warm-up
    on, but for crashes and what they undid."""
    s, totals = ran.scenario, ran.ledger.totals
    seconds, counts = totals.end - totals.start, totals.counts
    restored = [each for each in ran.ledger.told if isinstance(each, ShardRestored)]
    figures = {
        "updates": round(counts["applied"] / s.shards / seconds, 2),
        "steps": round(counts["steps"] / seconds, 1),
        "dropped": round(1 - counts["applied"] / counts["pushed"], 4),
        **lag(totals.lag),
        **shares(totals, BUNDLES),
        **_server(s, totals),
        "crashes": len(ran.simulation.crashes),
        "lost": sum(each.lost for each in restored),
        "virtual_seconds": round(totals.end, 3),
        "seconds": round(ran.seconds, 1),
        "bundles": s.bundles,
        "shards": s.shards,
        "iterations": s.iterations,
    }
    return {**figures, "bound_by": bound_by(s, figures)}


def _server(s: ServerScenario, totals: Totals) -> dict[str, float]:
    """Bytes per second into and out of the shards, and how busy a shard and its links are on average."""
    seconds = totals.end - totals.start
    received, sent = (totals.counts[what] * s.part_size / seconds for what in ("pushed", "pulled"))
    return {
        "received": round(received),
        "sent": round(sent),
        "downlink_busy": round(min(1.0, received / s.shards / s.bandwidth), 4),  # counted when a bundle reports it
        "uplink_busy": round(min(1.0, sent / s.shards / s.bandwidth), 4),
        "applying": round(min(1.0, totals.counts["pushed"] * s.part_time / s.shards / seconds), 4),
    }


def bound_by(s: ServerScenario, figures: Mapping[str, Any]) -> str:
    """The bottleneck: the busiest of the bundles' processors and links, the round trips of their calls, each to all
    shards at the same time, and the shards with their links."""
    each = figures["steps"] / s.rollout_steps / s.bundles  # iterations per second of a bundle
    load = {
        "bundles": figures["acting"] + figures["computing"],
        "links of bundles": (figures["received"] + figures["sent"]) / s.bundles / s.bandwidth,
        "round trips": each * CALLS_EACH * 2 * s.latency,
        "uplinks of shards": figures["uplink_busy"],
        "downlinks of shards": figures["downlink_busy"],
        "shards": figures["applying"],
    }
    return max(load, key=lambda name: float(load[name]))


def warnings(s: ServerScenario, figures: Mapping[str, Any]) -> list[str]:
    """Sentences about figures that may mislead."""
    if figures["dropped"] > 0.1:
        return [
            f"--max-delay {s.max_delay}: {figures['dropped']:.0%} of the gradients were dropped; their staleness was "
            f"{figures['lag_mean']:.0f} on average"
        ]
    return []


def summary(figures: Mapping[str, Any]) -> list[str]:
    """The scenario, as it is printed."""
    s = figures["scenario"]
    return [
        f"bundles: {s['bundles']}, {s['act_time']} to act {s['rollout_steps']} steps, {s['update_time']} a gradient",
        f"shards:  {s['shards']}, {s['apply_time']} to apply a gradient on one, at most {s['max_delay']} updates old",
        f"network: {s['bandwidth']} each way, {s['latency']}, {s['message_size']} of parameters",
        *faults_line(f"faults:  {s['crash_rate']} crashes of each host", s),
    ]


def title(s: ServerScenario, options: Mapping[str, Any]) -> str:
    """The title of the plot."""
    return (
        f"{s.bundles} bundle{'s' * (s.bundles > 1)}, {s.shards} shard{'s' * (s.shards > 1)}; {options['bandwidth']}, "
        f"{options['latency']}, {options['message_size']} of parameters"
    )


def panels(ran: Run[ServerScenario], figures: Mapping[str, Any]) -> tuple[Panel, ...]:
    """What bundles do, the staleness of their gradients, and updates over virtual time."""
    s, totals = ran.scenario, ran.ledger.totals
    rows = {"bundles": {"acting": "act", "computing": "compute", "pulling": "pull", "pushing": "push"}}
    edges = np.linspace(0.0, totals.end, POINTS + 1)
    return (
        Shares("What bundles do", rows, figures),
        Histogram("Staleness", figures["lag"], "updates", "% of the gradients", s.max_delay, "--max-delay"),
        OverTime(
            "Over time",
            "updates/s",
            edges[1:],
            [Curve(updates(ran, edges))],
            warm_up=totals.start,
            crashes=ran.simulation.crashes,
        ),
    )


def updates(ran: Run[ServerScenario], edges: Array) -> Array:
    """Updates per second [N] in each interval between the N + 1 edges, mean of the shards."""
    records = [record for _, record in ran.ledger.of(Iteration)]
    ends, applied = [record.spans[-1].end for record in records], [record.applied for record in records]
    count, _ = np.histogram(ends, edges, weights=applied)
    rate: Array = count / ran.scenario.shards / np.diff(edges)
    return rate
