"""Members that gossip in virtual time, and the run of a scenario."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gossamer.architectures import PALA
from gossamer.exchange import Exchange, room
from gossamer.exchange.gossip.options import Gossiping
from gossamer.exchange.proxy.wire import HEADER, PARCEL
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.loops import act_and_learn
from gossamer.program import Program
from gossamer.runtime import Context
from gossamer.tools.gossip.figures import FIGURES, figures, warnings
from gossamer.tools.gossip.ledger import Computed, Ledger, curves
from gossamer.tools.gossip.picture import draw
from gossamer.tools.gossip.scenario import Scenario
from gossamer.tools.measured import in_units
from gossamer.tools.stand_in import ELEMENTS, Point, StandIn
from gossamer.tools.table import units


@dataclass(frozen=True)
class Workload:
    """Replaces a `Task`: each member follows noisy gradients to its own target. The targets are close."""

    iterations: int  # of each member
    step_time: float = 0.0  # seconds of computing for one iteration
    jitter: float = 0.0  # standard deviation of that time, relative
    early: dict[int, int] = field(default_factory=dict)  # rank -> iterations after which this member ends
    rate: float = 0.1
    seed: int = 0
    algorithm: None = None  # the wiring asks whether it learns from a replay memory
    gpus: float = 0


def stand_in(ctx: Context, task: Workload, policy: Any, experience: Any, exchange: Exchange, **more: Any) -> None:
    """Replaces the loop `act_and_learn`: sleep for the time of one step, then apply a gradient through the exchange."""
    rng = np.random.default_rng([task.seed, ctx.rank, ctx.restarts])
    learner = StandIn(Point(), task.rate)
    link = exchange.join(ctx, learner, ctx.restored())
    (point,) = learner.model.parameters()
    target = torch.from_numpy(rng.normal(1, 0.1, ELEMENTS).astype(np.float32))
    try:
        while link.refresh() < task.early.get(ctx.rank, task.iterations) and not ctx.stopped:
            start = ctx.now()
            ctx.sleep(task.step_time * max(0.1, 1 + task.jitter * rng.normal()))
            worked = ctx.now() - start
            noise = torch.from_numpy(rng.normal(0, 0.1, ELEMENTS).astype(np.float32))
            point.grad = point.detach() - target + noise
            link.step(learner)
            done = link.refresh()
            ctx.report((Computed(done, start, worked, ctx.now(), point.detach().clone()), *link.take()))
            ctx.save(link.state_dict())
    finally:
        link.leave()


def simulated(architecture: str, chosen: Scenario, plot: Path | None) -> dict[str, Any]:
    """The figures of a scenario, with their units, warnings, and the scenario. `plot`: a .png file for curves."""
    began = time.perf_counter()
    simulation, ledger = run(chosen)
    found = figures(chosen, simulation, ledger, time.perf_counter() - began)
    if plot is not None:
        draw(curves(ledger), chosen, simulation.crashes, plot)
    return {**found, "units": units(FIGURES), "warnings": warnings(chosen, found), "scenario": in_units(chosen)}


def run(chosen: Scenario) -> tuple[Simulation, Ledger]:
    """Run the simulation of a scenario."""
    network = Network(chosen.latency, chosen.bandwidth, chosen.loss, size=partial(_size, chosen.message_size))
    faults = Faults(crash_rate=chosen.crash_rate, down_seconds=chosen.down)
    simulation, ledger = Simulation(chosen.seed, network, faults), Ledger(chosen.members, chosen.iterations)
    torch.set_num_threads(1)
    simulation(_program(chosen), ledger)
    return simulation, ledger


def _program(s: Scenario) -> Program:
    period = max(2, s.iterations // 2)
    gossip = Gossiping(
        graph=s.wired,
        staleness=s.staleness,
        interval=s.interval or int(min(4, room(s.staleness))),
        period=period,
        window=period // 2,
    )
    work = Workload(s.iterations, s.step_time, s.jitter, seed=s.seed)
    wired = PALA(hosts=s.hosts, learners=s.each).program(work, gossip=gossip)  # type: ignore[arg-type]
    return wired.with_loops({act_and_learn: stand_in})


def _size(message_size: float, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Bytes of a call on the network: each parcel counts with `message_size` instead of its small model."""
    packets = [packet for packet in args if isinstance(packet, np.ndarray)]
    return 100.0 + sum(message_size + HEADER.size if p[5] == PARCEL else p.nbytes for p in packets)
