"""The figures of a simulation of an all-reduce: meaning, unit, printed form, and plot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gossamer.task import Regrouped
from gossamer.tools.simulate.all_reduce.scenario import AllReduceScenario
from gossamer.tools.simulate.all_reduce.workers import Iteration
from gossamer.tools.simulate.base import Run
from gossamer.tools.simulate.figures import Figure, faults_line, shares
from gossamer.tools.simulate.picture import POINTS, Curve, OverTime, Panel, Shares

LEARNERS = {"acting": "act", "computing": "update", "averaging": "average"}  # figure -> span
FIGURES = (
    Figure("updates", "updates per second", "updates", "updates/s of the parameters", 2),
    Figure("steps", "steps per second", "acted", "steps/s of all learners"),
    Figure("exchange", "seconds", "exchange", "s for each, from a learner's gradient to its step", 4),
    Figure("acting", "fraction", "learners act", "% of their time", 1),
    Figure("computing", "fraction", "learners compute", "% of their time, gradients", 1),
    Figure("averaging", "fraction", "learners average", "% of their time, waiting for others included", 1),
    Figure("sent", "bytes per second", "gradients", "MB/s out of each host, and into it", 1),
    Figure("link_busy", "fraction", "links", "% of a host's time busy in one direction", 1),
    Figure("crashes", "crashes", "crashes", "crashes of hosts"),
    Figure("changes", "changes", "changes", "changes of the group"),
    Figure("stopped", "seconds", "longest stop", "s without a step at a change of the group", 1),
    Figure("virtual_seconds", "seconds", "virtual time", "s", 2),
    Figure("seconds", "seconds", "real time", "s taken by the simulation", 1),
    Figure("hosts", "hosts"),
    Figure("learners", "learners of each host"),
    Figure("iterations", "steps of each learner"),
)


def measure(ran: Run[AllReduceScenario]) -> dict[str, Any]:
    """The figures and `bound_by`, by their keys in JSON. They count from the end of the warm-up on, but for crashes and
    changes of the group."""
    s, totals = ran.scenario, ran.ledger.totals
    seconds, taken = totals.end - totals.start, totals.counts["taken"]
    each = taken / s.hosts / s.learners / seconds  # updates per second
    sent = each * 2 * s.part_size * (s.hosts - 1)  # each host sends its sum to all owners, and its mean slice to all
    changes = [told for told in ran.ledger.told if isinstance(told, Regrouped)]
    figures = {
        "updates": round(each, 3),
        "steps": round(totals.counts["steps"] / seconds, 1),
        "exchange": round(totals.seconds["average"] / taken, 5),
        **shares(totals, LEARNERS),
        "sent": round(sent),
        "link_busy": round(min(1.0, sent / s.bandwidth), 4),
        "crashes": len(ran.simulation.crashes),
        "changes": len(changes),
        "stopped": round(max((told.waited for told in changes), default=0.0), 2),
        "virtual_seconds": round(totals.end, 3),
        "seconds": round(ran.seconds, 1),
        "hosts": s.hosts,
        "learners": s.learners,
        "iterations": s.iterations,
    }
    return {**figures, "bound_by": bound_by(s, figures)}


def bound_by(s: AllReduceScenario, figures: Mapping[str, Any]) -> str:
    """The bottleneck: the busiest of the learners' processors, the links, and the round trips of the calls, which are
    made one after the other."""
    load = {
        "learners": figures["acting"] + figures["computing"],
        "links": figures["link_busy"],
        "round trips": figures["updates"] * 2 * (s.hosts - 1) * 2 * s.latency,
    }
    return max(load, key=lambda name: float(load[name]))


def warnings(s: AllReduceScenario, figures: Mapping[str, Any]) -> list[str]:
    """Sentences about figures that may mislead."""
    if figures["averaging"] > 0.5:
        return [f"learners spend {figures['averaging']:.0%} of their time on averaging: fewer hosts act as fast"]
    return []


def summary(figures: Mapping[str, Any]) -> list[str]:
    """The scenario, as it is printed."""
    s = figures["scenario"]
    return [
        f"hosts:   {s['hosts']} with {s['learners']} learner{'s' * (s['learners'] > 1)} each, {s['act_time']} to act "
        f"{s['rollout_steps']} steps, {s['update_time']} a gradient",
        f"network: {s['bandwidth']} each way, {s['latency']}, {s['message_size']} of a gradient",
        *faults_line(f"faults:  {s['crash_rate']} crashes of each host", s),
    ]


def title(s: AllReduceScenario, options: Mapping[str, Any]) -> str:
    """The title of the plot."""
    return f"{s.hosts} hosts; {options['bandwidth']}, {options['latency']}, {options['message_size']} of a gradient"


def panels(ran: Run[AllReduceScenario], figures: Mapping[str, Any]) -> tuple[Panel, ...]:
    """What learners do, and their updates over virtual time."""
    rows = {"learners": {"acting": "act", "computing": "compute", "averaging": "average"}}
    edges = np.linspace(0.0, ran.ledger.totals.end, POINTS + 1)
    ends = [record.spans[-1].end for _, record in ran.ledger.of(Iteration)]
    count, _ = np.histogram(ends, edges)
    rate = Curve(count / ran.scenario.hosts / ran.scenario.learners / np.diff(edges))
    over = OverTime(
        "Over time",
        "updates/s",
        edges[1:],
        [rate],
        warm_up=ran.ledger.totals.start,
        crashes=ran.simulation.crashes,
    )
    return Shares("What learners do", rows, figures), over
