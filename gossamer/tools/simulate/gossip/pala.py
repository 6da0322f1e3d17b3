"""PALA, and parallel Sarsa, in virtual time: the program of a scenario, and what it is measured by."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gossamer import architectures
from gossamer.data import Array
from gossamer.exchange import room
from gossamer.exchange.gossip.options import Gossiping, outer
from gossamer.exchange.proxy.wire import HEADER, PARCEL, contents
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.loops import act_and_learn
from gossamer.program import Program
from gossamer.tools.simulate.base import Simulated
from gossamer.tools.simulate.gossip.figures import FIGURES, measure, panels, summary, title, warnings
from gossamer.tools.simulate.gossip.members import Workload, stand_in
from gossamer.tools.simulate.gossip.scenario import GossipScenario, SarsaScenario, bytes_of
from gossamer.tools.simulate.ledger import Ledger


def program(s: GossipScenario) -> Program:
    """The architecture's program, with members that compute nothing."""
    period = max(2, s.iterations // 2)
    gossip = Gossiping(
        graph=s.wired,
        staleness=s.staleness,
        interval=s.interval or int(min(4, room(s.staleness))),
        lock_step=s.lock_step,
        period=period,
        window=period // 2,
        sparse=s.sparse,
        outer=outer(s.outer_momentum, s.outer_learning_rate),
        decay=s.staleness_decay,
        rounding=s.form if s.error_feedback else None,
        form="fp32" if s.error_feedback else s.form,
    )
    apart = s.to_distance is not None
    work: Any = Workload(s.iterations, s.step_time, s.jitter, seed=s.seed, elements=s.elements, apart=apart)  # a task
    return (
        architectures.PALA(hosts=s.hosts, learners=s.each, group_size=s.group_size)
        .program(work, gossip=gossip)
        .with_loops({act_and_learn: stand_in})
    )


def network(s: GossipScenario) -> Network:
    """The network between the hosts."""
    return Network(s.latency, s.bandwidth, s.loss, size=partial(_size, s))


def _size(s: GossipScenario, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Bytes of a call on the network: a parcel counts with the scenario's size, not with that of its small model."""
    packets = [packet for packet in args if isinstance(packet, np.ndarray)]
    return 100.0 + sum(_body(s, p) + HEADER.size if p[5] == PARCEL else p.nbytes for p in packets)


def _body(s: GossipScenario, parcel: Array) -> float:
    """Bytes of a parcel's parameters and indices: of all parameters, or of a share."""
    size, form = contents(parcel)
    return s.message_size / 4 * bytes_of(form) if size == s.elements else s.sent_size


def faults(s: GossipScenario) -> Faults:
    """Every host may crash."""
    return Faults(crash_rate=s.crash_rate, down_seconds=s.down)


def ledger(s: GossipScenario, simulation: Simulation) -> Ledger:
    """It ends when all members have taken their steps; messages still in transit then have no receiver."""
    return Ledger(s.members, s.iterations, simulation)


PALA = Simulated(
    scenario=GossipScenario,
    program=program,
    network=network,
    faults=faults,
    ledger=ledger,
    figures=FIGURES,
    measure=measure,
    warnings=warnings,
    summary=summary,
    title=title,
    panels=panels,
)
SARSA = replace(PALA, scenario=SarsaScenario)  # the same exchange and proxies, with other defaults
