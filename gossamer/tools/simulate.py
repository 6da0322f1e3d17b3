"""How far gossip scales: the real exchange, proxies and couriers in virtual time, with small models that stand in."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD

from gossamer import architectures
from gossamer.errors import UserError
from gossamer.exchange import Exchange
from gossamer.exchange.gossip.records import Cut, Traffic
from gossamer.exchange.proxy.wire import HEADER, PARCEL
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.program import Context, Silent
from gossamer.tools.scenario import scenario

ELEMENTS = 16  # of a stand-in model


@dataclass(frozen=True)
class Workload:
    """In place of a `Task`: every member walks to a point of its own, near the others', by noisy gradient steps."""

    iterations: int  # of each member
    step_time: float = 0.0  # seconds of computing one of them
    jitter: float = 0.0  # relative deviation of it
    early: dict[int, int] = field(default_factory=dict)  # rank -> iterations after which that one ends
    rate: float = 0.1
    seed: int = 0


class Point(nn.Module):
    """A model whose parameters are a point."""

    def __init__(self) -> None:
        super().__init__()
        self.point = nn.Parameter(torch.zeros(ELEMENTS))


@dataclass
class StandIn:
    """What an exchange sees of a member."""

    model: nn.Module
    steps: int = 0


def stand_in(ctx: Context, task: Workload, exchange: Exchange, *, num_envs: int = 0, env_workers: int = 0) -> None:
    """A loop in place of `act_and_learn`: compute for a step's time, let the exchange make it parameters."""
    rng = np.random.default_rng([task.seed, ctx.rank, ctx.restarts])
    learner = StandIn(Point(), ctx.restored() or 0)
    opt = SGD(learner.model.parameters(), task.rate)
    exchange.join(ctx, learner)
    (point,) = learner.model.parameters()
    target = torch.from_numpy(rng.normal(1, 0.1, ELEMENTS).astype(np.float32))
    try:
        while learner.steps < task.early.get(ctx.rank, task.iterations) and not ctx.stopped:
            start = ctx.now()
            ctx.sleep(task.step_time * max(0.1, 1 + task.jitter * rng.normal()))
            worked = ctx.now() - start
            noise = torch.from_numpy(rng.normal(0, 0.1, ELEMENTS).astype(np.float32))
            point.grad = point.detach() - target + noise
            learner.steps += 1
            exchange.apply(learner.model, opt)
            ctx.report((worked, *exchange.take()))
            ctx.save(learner.steps)
    finally:
        exchange.leave()


class Ledger(Silent):
    """Sums up what members report: steps, staleness, and how far apart they are at each cut."""

    def __init__(self) -> None:
        self.staleness = Counter[int]()
        self.iterations = self.mixed = 0
        self.worked = 0.0  # virtual seconds of computing, of all members
        self.cuts: dict[int, dict[int, Tensor]] = {}
        self.taking_part: dict[int, tuple[int, ...]] = {}
        self.steps: dict[str, int] = {}

    def restored(self, worker: str) -> Any | None:
        return self.steps.get(worker)

    def save(self, worker: str, state: Any) -> None:
        self.steps[worker] = state

    def report(self, worker: str, record: Any) -> None:
        for part in record:
            if isinstance(part, float):
                self.worked += part
            elif isinstance(part, Traffic):
                self.iterations += part.iterations
                self.mixed += part.mixed
                self.staleness.update(part.staleness)
            elif isinstance(part, Cut):
                self.cuts.setdefault(part.epoch, {})[part.member] = part.parameters
                self.taking_part[part.epoch] = part.members

    def distance(self) -> float | None:
        """max_i ||x_i - xbar|| / ||xbar|| at the last cut that is whole; None where no cut is."""
        whole = [e for e, cut in self.cuts.items() if e and set(cut) >= set(self.taking_part[e])]
        if not whole:
            return None
        vectors = torch.stack(list(self.cuts[max(whole)].values()))
        mean = vectors.mean(0)
        return float((vectors - mean).norm(dim=1).max() / mean.norm())


def simulate(architecture: str = "pala", **given: Any) -> dict[str, Any]:
    """Members in virtual time, as `Scenario` has it: bytes and seconds, or text such as "1Gb" and "40ms".

    What comes back: `efficiency` (steps/s against the same members computing alone), `staleness_max` and `_mean`
    (iterations that an averaged message was behind), `distance` (to consensus, relative), `waited` (share of the
    members' time held back by the process lock), `exchanged` (messages averaged in, of each iteration)."""
    if architecture != "pala":
        raise UserError(f"simulate {architecture}: only pala crosses a network today")
    s = scenario(given)
    period = max(2, s.iterations // 2)
    program = architectures.pala(
        Workload(s.iterations, s.step_time, s.jitter, seed=s.seed),  # type: ignore[arg-type]  # the stand-in's task
        hosts=s.hosts,
        learners=s.each,
        graph=s.wired,
        staleness=s.staleness,
        interval=s.interval,
        period=period,
        window=period // 2,
        loop=stand_in,
    )
    network = Network(s.latency, s.bandwidth, s.loss, size=partial(_size, s.message_size))
    faults = Faults(crash_rate=s.crash_rate / 3600, down_seconds=s.down)
    began = time.perf_counter()
    simulation, ledger = Simulation(s.seed, network, faults), Ledger()
    torch.set_num_threads(1)
    simulation(program, ledger)
    clocks = {name: clock for name, clock in simulation.clocks.items() if name.startswith("stand_in")}
    waited = sum(simulation.waited[name] for name in clocks)
    present = sum(clocks.values())
    return {
        "efficiency": round(ledger.worked / present, 4) if present else None,
        "staleness_max": max(ledger.staleness, default=None),
        "staleness_mean": round(sum(k * n for k, n in ledger.staleness.items()) / max(1, ledger.mixed), 2),
        "distance": None if (d := ledger.distance()) is None else round(d, 5),
        "waited": round(waited / present, 4) if present else None,
        "exchanged": round(ledger.mixed / max(1, ledger.iterations), 3),
        "members": s.members,
        "hosts": s.hosts,
        "graph": s.graph,
        "iterations": s.iterations,
        "virtual_seconds": round(max(clocks.values()), 3),
        "crashes": len(simulation.crashes),
        "seconds": round(time.perf_counter() - began, 1),
    }


def _size(message_size: float, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Bytes on the network: each parcel counts as one with a model of real size."""
    packets = [packet for packet in args if isinstance(packet, np.ndarray)]
    return 100.0 + sum(message_size + HEADER.size if p[5] == PARCEL else p.nbytes for p in packets)
