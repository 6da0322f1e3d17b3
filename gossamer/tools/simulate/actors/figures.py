"""The figures of a simulation of actors and learners: meaning, unit, printed form, and plot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gossamer.launch.simulation import Simulation
from gossamer.tools.simulate.actors.scenario import ActorScenario
from gossamer.tools.simulate.actors.workers import Learned
from gossamer.tools.simulate.base import Run
from gossamer.tools.simulate.figures import Figure, faults_line, lag, rate, shares
from gossamer.tools.simulate.ledger import Totals, busy
from gossamer.tools.simulate.picture import POINTS, Beside, Curve, Histogram, OverTime, Panel, Shares

LEARNERS = {"utilisation": "update", "waits_for_batches": "learner_waits", "averaging": "average"}  # figure -> span
ACTORS = {
    "actors_act": "act",
    "waits_for_slots": "actors_wait",
    "waits_for_parameters": "parameters_wait",
    "actors_send": "send",
}
FIGURES = (
    Figure("utilisation", "fraction", "learners update", "% of their time", 1),
    Figure("waits_for_batches", "fraction", "learners wait", "% of their time, for batches", 1),
    Figure("averaging", "fraction", "learners average", "% of their time, waiting for each other's gradients", 1),
    Figure("actors_act", "fraction", "actors act", "% of their time", 1),
    Figure("waits_for_slots", "fraction", "actors wait", "% of their time, for a free slot of a batch", 1),
    Figure("waits_for_parameters", "fraction", "actors wait", "% of their time, for parameters that are new enough", 1),
    Figure("actors_send", "fraction", "actors send", "% of their time, rollouts over the network", 1),
    Figure("acted", "steps per second", "acted", "steps/s of all actors"),
    Figure("learned", "steps per second", "learned", "steps/s, each step counted once"),
    Figure("lag_mean", "optimizer steps", "policy lag, mean", "optimizer steps from acting to learning", 2),
    Figure("lag_max", "optimizer steps", "policy lag, max", "optimizer steps from acting to learning"),
    Figure("queue", "batches", "queue", "full batches behind the one that is taken, mean", 2),
    Figure("received", "bytes per second", "rollouts", "MB/s into the learners' host", 1),
    Figure("downlink_busy", "fraction", "downlink", "% of its time busy, with rollouts", 1),
    Figure("sent", "bytes per second", "parameters", "MB/s out of the learners' host", 1),
    Figure("uplink_busy", "fraction", "uplink", "% of its time busy, with parameters", 1),
    Figure("crashes", "crashes", "crashes", "crashes of hosts"),
    Figure("virtual_seconds", "seconds", "virtual time", "s", 2),
    Figure("seconds", "seconds", "real time", "s taken by the simulation", 1),
    Figure("actors", "actors"),
    Figure("hosts", "hosts of actors"),
    Figure("learners", "learners"),
    Figure("batches", "batches of each learner"),
    Figure("depth", "batches"),
)
SHARES = {  # row -> figures, from left to right, with their labels
    "actors": {
        "actors_act": "act",
        "waits_for_slots": "wait for a slot",
        "actors_send": "send",
        "waits_for_parameters": "wait for parameters",
    },
    "learners": {"utilisation": "update", "waits_for_batches": "wait for batches", "averaging": "wait for each other"},
}


def measure(ran: Run[ActorScenario]) -> dict[str, Any]:
    """The figures, `lag` (the histogram) and `bound_by`, by their keys in JSON. They count from the end of the warm-up
    on."""
    s, totals = ran.scenario, ran.ledger.totals
    steps = s.rollout_steps / (totals.end - totals.start)  # per second, for each rollout
    figures = {
        **shares(totals, LEARNERS),
        **shares(totals, ACTORS),
        "acted": round(totals.counts["acted"] * steps, 1),
        "learned": round(totals.counts["learned"] * steps, 1),
        **lag(totals.lag),
        "queue": round(totals.counts["waiting"] / totals.counts["batches"], 3),
        **_traffic(s, ran.simulation, totals),
        "crashes": len(ran.simulation.crashes),
        "virtual_seconds": round(totals.end, 3),
        "seconds": round(ran.seconds, 1),
        "actors": s.actors,
        "hosts": s.hosts,
        "learners": s.learners,
        "batches": s.batches,
        "depth": s.depth_used,
    }
    return {**figures, "bound_by": bound_by(figures)}


def _traffic(s: ActorScenario, simulation: Simulation, totals: Totals) -> dict[str, float]:
    """Bytes per second through the two links of the learners' host, and how busy they are."""
    received = rate(simulation, totals, "deliver", s.rollout_bytes) if s.hosts else 0.0
    sent = rate(simulation, totals, "replace", s.parameters_size) if s.hosts else 0.0
    return {
        "received": round(received),
        "sent": round(sent),
        "downlink_busy": round(min(1.0, received / s.bandwidth), 4),  # a message counts when it has arrived
        "uplink_busy": round(min(1.0, sent / s.bandwidth), 4),
    }


def bound_by(figures: Mapping[str, Any]) -> str:
    """The bottleneck: learners, the downlink or the uplink of their host, or actors."""
    load = {
        "learners": figures["utilisation"] + figures["averaging"],
        "downlink": figures["downlink_busy"],
        "uplink": figures["uplink_busy"],
        "actors": figures["actors_act"],
    }
    return max(load, key=lambda name: float(load[name]))


def warnings(s: ActorScenario, figures: Mapping[str, Any]) -> list[str]:
    """Sentences about figures that may mislead."""
    if figures["waits_for_slots"] > 0.2 and figures["waits_for_batches"] > 0.2 and figures["downlink_busy"] < 0.8:
        return [
            f"actors wait for slots while learners wait for batches: --depth {s.depth_used} is too small for "
            f"{s.actors // s.learners} actors of each learner"
        ]
    if figures["waits_for_parameters"] > 0.2 and figures["waits_for_batches"] > 0.2 and figures["uplink_busy"] < 0.8:
        return [
            f"actors wait for parameters while learners wait for batches: --depth {s.depth_used} is too small for this "
            "network; a larger one allows older parameters"
        ]
    if s.depth_used > s.batches // 4:
        return [
            f"--batches {s.batches}: its first quarter, the warm-up, is shorter than the queue, {s.depth_used} "
            f"batches; use {4 * s.depth_used} or more"
        ]
    return []


def summary(figures: Mapping[str, Any]) -> list[str]:
    """The scenario, as it is printed."""
    s, hosts = figures["scenario"], figures["hosts"]
    places = f"on {hosts} host{'s' * (hosts != 1)}" if hosts else "on the learners' host"
    network = f"{s['bandwidth']} each way, {s['latency']}, {s['parameters_size']} of parameters"
    return [
        f"actors:   {s['actors']} {places}, {s['envs_per_actor']} environments each, {s['step_time']} a step",
        f"learners: {s['learners']}, batches of {s['batch_rollouts']} rollouts, {s['update_time']} a pass, "
        f"depth {figures['depth']}, reuse {s['reuse']}",
        *([f"network:  {network}"] if hosts else []),
        *faults_line(f"faults:   {s['crash_rate']} crashes of each host of actors", s),
    ]


def title(s: ActorScenario, options: Mapping[str, Any]) -> str:
    """The title of the plot."""
    return (
        f"{s.actors} actors on {s.hosts} hosts, {s.learners} learner{'s' * (s.learners > 1)}; {options['bandwidth']}, "
        f"{options['latency']}, {options['update_time']} a pass, reuse {s.reuse}"
    )


def panels(ran: Run[ActorScenario], figures: Mapping[str, Any]) -> tuple[Panel, ...]:
    """Who waits, the policy lag, and utilisation over virtual time."""
    s, records = ran.scenario, [record for _, record in ran.ledger.of(Learned)]
    updates = [span for record in records for span in record.spans if span.what == "update"]
    queue = [(record.spans[-1].end, record.waiting) for record in records if record.positions]
    edges = np.linspace(0.0, ran.ledger.totals.end, POINTS + 1)
    xlabel, ylabel = "optimizer steps from acting to learning", "% of the rollouts"
    return (
        Shares("Who waits", SHARES, figures),
        Histogram("Policy lag", figures["lag"], xlabel, ylabel, s.lag_bound, "bound by credit"),
        OverTime(
            "Over time",
            "learners update, % of their time",
            edges[1:],
            [Curve(100 * busy(updates, edges) / s.learners)],
            top=105,
            warm_up=ran.ledger.totals.start,
            beside=Beside("full batches in the queue", queue),
        ),
    )
