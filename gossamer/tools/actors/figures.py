"""The figures of a simulation of actors and learners: their meaning, unit and printed form."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from gossamer.launch.simulation import Simulation
from gossamer.tools.actors.ledger import Ledger, Totals
from gossamer.tools.actors.scenario import ActorScenario
from gossamer.tools.table import Figure, table

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
CALLS = {"received": ".deliver", "sent": ".replace"}  # figure -> the call that ends a transfer


def figures(s: ActorScenario, simulation: Simulation, ledger: Ledger, seconds: float) -> dict[str, Any]:
    """The figures, `lag` (the histogram) and `bound_by`, by their keys in JSON. A figure that is not known is None.
    They count from the end of the warm-up on."""
    totals = ledger.totals
    duration = totals.end - totals.start
    traffic = _traffic(s, simulation, totals, duration)
    found = {
        **_shares(totals),
        "acted": round(totals.acted * s.rollout_steps / duration, 1),
        "learned": round(totals.learned * s.rollout_steps / duration, 1),
        **_lag(totals),
        "queue": round(fmean(totals.waiting), 3),
        **traffic,
        "crashes": len(simulation.crashes),
        "virtual_seconds": round(totals.end, 3),
        "seconds": round(seconds, 1),
        "actors": s.actors,
        "hosts": s.hosts,
        "learners": s.learners,
        "batches": s.batches,
        "depth": s.depth_used,
    }
    return {**found, "bound_by": bound_by(found)}


def _shares(totals: Totals) -> dict[str, float]:
    """Shares of the time of learners and of actors."""
    spent = totals.seconds
    learners = sum(spent[what] for what in LEARNERS.values())
    actors = sum(spent[what] for what in ACTORS.values())
    shares = {key: spent[what] / learners for key, what in LEARNERS.items()}
    shares |= {key: spent[what] / actors if actors else 0.0 for key, what in ACTORS.items()}
    return {key: round(share, 4) for key, share in shares.items()}


def _lag(totals: Totals) -> dict[str, Any]:
    counts = totals.lag
    mean = sum(lag * count for lag, count in counts.items()) / counts.total()
    return {
        "lag_mean": round(mean, 3),
        "lag_max": max(counts),
        "lag": {str(lag): counts[lag] for lag in sorted(counts)},
    }


def _traffic(s: ActorScenario, simulation: Simulation, totals: Totals, duration: float) -> dict[str, float]:
    """Bytes per second through the two links of the learners' host, and how busy they are."""
    calls = [call for _, call in simulation.trace[totals.first_call : totals.end_call]]
    sizes = {"received": s.rollout_bytes, "sent": s.parameters_size}
    rates = {
        key: sum(call.endswith(end) for call in calls) * sizes[key] / duration if s.hosts else 0.0
        for key, end in CALLS.items()
    }
    busy = {"downlink_busy": rates["received"] / s.bandwidth, "uplink_busy": rates["sent"] / s.bandwidth}
    shares = {key: round(min(1.0, share), 4) for key, share in busy.items()}  # a message counts when it has arrived
    return {**{key: round(rate) for key, rate in rates.items()}, **shares}


def bound_by(found: Mapping[str, Any]) -> str:
    """What is busiest: learners, the downlink or the uplink of their host, or actors."""
    busy = {
        "learners": found["utilisation"] + found["averaging"],
        "downlink": found["downlink_busy"],
        "uplink": found["uplink_busy"],
        "actors": found["actors_act"],
    }
    return max(busy, key=lambda name: float(busy[name]))


def warnings(s: ActorScenario, found: Mapping[str, Any]) -> list[str]:
    """Sentences about figures that may mislead."""
    if found["waits_for_slots"] > 0.2 and found["waits_for_batches"] > 0.2 and found["downlink_busy"] < 0.8:
        return [
            f"actors wait for slots while learners wait for batches: --depth {s.depth_used} is too small for "
            f"{s.actors // s.learners} actors of each learner"
        ]
    if found["waits_for_parameters"] > 0.2 and found["waits_for_batches"] > 0.2 and found["uplink_busy"] < 0.8:
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


def lines(found: Mapping[str, Any]) -> list[str]:
    """The printed output: the scenario, then one aligned line for each figure, with its unit."""
    return [*_scenario(found["scenario"], found), "", *table(FIGURES, found), f"bound by {found['bound_by']}"]


def _scenario(s: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    places = f"on {found['hosts']} host{'s' * (found['hosts'] != 1)}" if found["hosts"] else "on the learners' host"
    network = f"{s['bandwidth']} each way, {s['latency']}, {s['parameters_size']} of parameters"
    faults = [f"faults:   {s['crash_rate']} crashes of each host of actors, {s['down']} down"]
    return [
        f"actors:   {s['actors']} {places}, {s['envs_per_actor']} environments each, {s['step_time']} a step",
        f"learners: {s['learners']}, batches of {s['batch_rollouts']} rollouts, {s['update_time']} a pass, "
        f"depth {found['depth']}, reuse {s['reuse']}",
        *([f"network:  {network}"] if found["hosts"] else []),
        *(faults if s["crash_rate"] != "0/h" else []),
    ]
