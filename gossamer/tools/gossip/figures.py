"""The figures of a simulation of gossip: their meaning, unit and printed form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.diagnostics.traffic import staleness
from gossamer.launch.simulation import Simulation
from gossamer.loops import act_and_learn
from gossamer.tools.gossip.ledger import Ledger
from gossamer.tools.gossip.scenario import Scenario
from gossamer.tools.quantity import SECONDS
from gossamer.tools.table import Figure, table

FIGURES = (
    Figure("efficiency", "fraction", "efficiency", "% of the members' time spent computing", 2),
    Figure("waited", "fraction", "waited", "% of the members' time waiting due to --staleness", 2),
    Figure(
        "staleness_mean",
        "iterations",
        "staleness, mean",
        "iterations that messages were behind their receivers",
        2,
    ),
    Figure("staleness_max", "iterations", "staleness, max", "iterations that a message was behind its receiver"),
    Figure("distance", "fraction", "distance", "% of the norm of the mean, for the farthest member", 2),
    Figure("exchanged", "messages per iteration", "exchanged", "messages averaged per iteration and member", 3),
    Figure("sent", "messages", "sent", "messages sent to neighbours on all hosts"),
    Figure("delivered", "messages", "delivered", "messages delivered to other hosts"),
    Figure("averaged", "messages", "averaged", "messages averaged from neighbours on all hosts"),
    Figure("crashes", "crashes", "crashes", "crashes of hosts"),
    Figure("virtual_seconds", "seconds", "virtual time", "s until the last member ended", 3),
    Figure("seconds", "seconds", "real time", "s taken by the simulation", 1),
    Figure("members", "members"),
    Figure("hosts", "hosts"),
    Figure("iterations", "iterations of each member"),
)


def figures(s: Scenario, simulation: Simulation, ledger: Ledger, seconds: float) -> dict[str, Any]:
    """The figures and `graph`, by their keys in JSON. A figure that is not known is None."""
    clocks = {name: clock for name, clock in simulation.clocks.items() if name.startswith(act_and_learn.__name__)}
    present = sum(clocks.values())
    distance = ledger.distance()
    mean, most = staleness(ledger.staleness)
    return {
        "efficiency": round(ledger.worked / present, 4) if present else None,
        "staleness_max": most,
        "staleness_mean": None if mean is None else round(mean, 2),
        "distance": None if distance is None else round(distance, 5),
        "waited": round(sum(simulation.waited[name] for name in clocks) / present, 4) if present else None,
        "exchanged": round(ledger.mixed / max(1, ledger.iterations), 3),
        "sent": ledger.sent,
        "delivered": sum(call.endswith(".file") for _, call in simulation.trace),  # one call for each message
        "averaged": ledger.mixed,
        "members": s.members,
        "hosts": s.hosts,
        "graph": s.graph,
        "iterations": s.iterations,
        "virtual_seconds": round(max(clocks.values()), 3),
        "crashes": len(simulation.crashes),
        "seconds": round(seconds, 1),
    }


def warnings(s: Scenario, found: Mapping[str, Any]) -> list[str]:
    """Sentences about figures that may mislead, for example because no message was delivered."""
    if s.hosts == 1:
        return [f"one host: no message crosses the network; --learners must be below --members {s.members}"]
    if not found["delivered"]:
        ran, needs = SECONDS.text(found["virtual_seconds"]), SECONDS.text(s.delivery)
        return [f"0 messages delivered between hosts in {ran} of virtual time; one message takes at least {needs}"]
    if not found["averaged"]:
        return [f"0 of {found['delivered']} delivered messages averaged: they arrived after the last exchange"]
    return []


def lines(found: Mapping[str, Any]) -> list[str]:
    """The printed output: the scenario, then one aligned line for each figure, with its unit."""
    return [*_scenario(found["scenario"], found["hosts"]), "", *table(FIGURES, found)]


def _scenario(s: Mapping[str, Any], hosts: int) -> list[str]:
    lost = f", {s['loss']:.3g} of calls lost" if s["loss"] else ""
    plural = "s" * (hosts != 1)
    members = f"{s['members']} on {hosts} host{plural}, graph {s['graph']}"
    network = f"{s['bandwidth']} each way, {s['latency']} between hosts, {s['message_size']} a message{lost}"
    faults = [f"faults:  {s['crash_rate']} crashes of each host, {s['down']} down"] if s["crash_rate"] != "0/h" else []
    return [
        f"members: {members}, {s['iterations']} iterations of {s['step_time']}",
        f"network: {network}",
        *faults,
    ]
