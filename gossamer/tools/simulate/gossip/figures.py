"""The figures of a simulation of gossip: meaning, unit, printed form, and plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gossamer.diagnostics.plots import GREY
from gossamer.diagnostics.traffic import staleness
from gossamer.loops import act_and_learn
from gossamer.tools.simulate.base import Run
from gossamer.tools.simulate.figures import Figure, faults_line
from gossamer.tools.simulate.gossip.curves import Curves, Reached, curves, cut_distance, reached
from gossamer.tools.simulate.gossip.scenario import GossipScenario
from gossamer.tools.simulate.picture import Curve, OverTime, Panel
from gossamer.tools.simulate.quantity import BYTES, SECONDS

FIGURES = (
    Figure("efficiency", "fraction", "efficiency", "% of the members' time spent computing", 2),
    Figure("waited", "fraction", "waited", "% of the members' time waiting for other learners", 2),
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
    Figure("seconds_to_distance", "seconds"),  # None: never, or not asked for
    Figure("bytes_to_distance", "bytes of each member"),
    Figure("crashes_to_distance", "crashes"),
    Figure("members", "members"),
    Figure("hosts", "hosts"),
    Figure("iterations", "iterations of each member"),
)


def measure(ran: Run[GossipScenario]) -> dict[str, Any]:
    """The figures and `graph`, by their keys in JSON. A figure that is not known is None."""
    s, simulation, totals = ran.scenario, ran.simulation, ran.ledger.totals
    clocks = {name: clock for name, clock in simulation.clocks.items() if name.startswith(act_and_learn.__name__)}
    present = sum(clocks.values())
    far = cut_distance(ran.ledger)
    mean, most = staleness(totals.lag)
    there = None if s.to_distance is None else reached(ran.ledger, s.to_distance)
    return {
        "efficiency": round(totals.seconds["compute"] / present, 4) if present else None,
        "staleness_max": most,
        "staleness_mean": None if mean is None else round(mean, 2),
        "distance": None if far is None else round(far, 5),
        "waited": round(sum(simulation.waited[name] for name in clocks) / present, 4) if present else None,
        "exchanged": round(totals.counts["averaged"] / max(1, totals.counts["iterations"]), 3),
        "sent": totals.counts["sent"],
        "delivered": sum(call.endswith(".file") for _, call in simulation.trace),  # one call for each message
        "averaged": totals.counts["averaged"],
        "members": s.groups,
        "hosts": s.hosts,
        "graph": s.graph,
        "iterations": s.iterations,
        **_until(there, s, simulation.crashes),
        "virtual_seconds": round(max(clocks.values()), 3),
        "crashes": len(simulation.crashes),
        "seconds": round(ran.seconds, 1),
    }


def _until(there: Reached | None, s: GossipScenario, crashes: Sequence[tuple[float, str]]) -> dict[str, Any]:
    """The figures of --to-distance."""
    if there is None:
        return dict.fromkeys(("seconds_to_distance", "bytes_to_distance", "crashes_to_distance"))
    return {
        "seconds_to_distance": round(there.seconds, 4),
        "bytes_to_distance": round(there.whole * s.whole_size + (there.sent - there.whole) * s.sent_size),
        "crashes_to_distance": sum(second <= there.seconds for second, _ in crashes),
    }


def warnings(s: GossipScenario, figures: Mapping[str, Any]) -> list[str]:
    """Sentences about figures that may mislead, for example because no message was delivered."""
    if s.hosts == 1:
        return [f"one host: no message crosses the network; --learners must be below --members {s.members}"]
    if not figures["delivered"]:
        ran, needs = SECONDS.text(figures["virtual_seconds"]), SECONDS.text(s.delivery)
        return [f"0 messages delivered between hosts in {ran} of virtual time; one message takes at least {needs}"]
    if not figures["averaged"]:
        return [f"0 of {figures['delivered']} delivered messages averaged: they arrived after the last exchange"]
    return []


def summary(figures: Mapping[str, Any]) -> list[str]:
    """The scenario, as it is printed."""
    s, hosts = figures["scenario"], figures["hosts"]
    lost = f", {s['loss']:.3g} of calls lost" if s["loss"] else ""
    size = s["group_size"]
    groups = f"{figures['members']} groups of {size} learners" if size > 1 else s["members"]
    members = f"{groups} on {hosts} host{'s' * (hosts != 1)}, graph {s['graph']}"
    return [
        f"members: {members}, {s['iterations']} iterations of {s['step_time']}",
        f"network: {s['bandwidth']} each way, {s['latency']} between hosts, {s['message_size']} a message{lost}",
        *faults_line(f"faults:  {s['crash_rate']} crashes of each host", s),
        *([] if s["to_distance"] is None else [_to_distance(figures)]),
    ]


def _to_distance(figures: Mapping[str, Any]) -> str:
    """The printed line of --to-distance."""
    near = f"nearer than {100 * figures['scenario']['to_distance']:g} % of the norm of the mean"
    if figures["seconds_to_distance"] is None:
        return f"result:  the farthest member was never {near}"
    seconds, sent = SECONDS.text(figures["seconds_to_distance"]), BYTES.text(figures["bytes_to_distance"])
    return f"result:  the farthest member is {near} after {seconds}, and {sent} sent by each member"


def title(s: GossipScenario, options: Mapping[str, Any]) -> str:
    """The title of the plot."""
    return (
        f"{s.groups} members on {s.hosts} hosts, {s.graph}; {options['bandwidth']}, {options['latency']}, "
        f"{options['message_size']} a message, {options['step_time']} an iteration"
    )


def panels(ran: Run[GossipScenario], figures: Mapping[str, Any]) -> tuple[Panel, ...]:
    """Distance to consensus, efficiency and staleness over virtual time."""
    return panels_of(curves(ran.ledger), ran.scenario, ran.simulation.crashes)


def panels_of(c: Curves, s: GossipScenario, crashes: Sequence[tuple[float, str]]) -> tuple[Panel, ...]:
    """The panels of these curves."""
    far, busy = Curve(100 * c.distance), Curve(100 * c.efficiency)
    ages = [Curve(c.staleness_max, "max", GREY, dots=True, width=1), Curve(c.staleness_mean, "mean", dots=True)]
    over_time = partial(OverTime, seconds=c.seconds, crashes=crashes)
    norm, time = "farthest member, % of the norm of the mean", "computing, % of the members' time"
    return (
        over_time("Distance to consensus", norm, curves=[far], logarithmic=True, percent=True),
        over_time("Efficiency", time, curves=[busy], top=105, percent=True),
        over_time("Staleness of averaged messages", "iterations", curves=ages, bound=s.staleness),
    )
