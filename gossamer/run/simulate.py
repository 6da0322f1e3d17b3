"""How far gossip scales: the real exchange, proxies and couriers in virtual time, with small models that stand in."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD

from gossamer import architectures
from gossamer.exchange import Exchange, graphs, room
from gossamer.exchange.records import Cut, Traffic
from gossamer.exchange.wire import HEADER, PARCEL
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.program import Context, Program, Silent
from gossamer.run.errors import UserError, near
from gossamer.run.wiring import GRAPHS

ELEMENTS = 16  # of a stand-in model
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "m": 1e-3, "u": 1e-6}


@dataclass(frozen=True)
class Workload:
    """In place of a `Task`: every member walks to a point of its own, near the others', by noisy gradient steps."""

    iterations: int  # of each member
    step_time: float = 0.0  # seconds of computing between two exchanges
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


def stand_in(ctx: Context, task: Workload, exchange: Exchange, *, envs: int = 0, workers: int = 0) -> None:
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


def simulate(
    architecture: str = "pala",
    *,
    members: int = 64,
    learners: int = 8,
    graph: str = "ring",
    bandwidth: float = 1.25e8,
    latency: float = 0.04,
    loss: float = 0.0,
    step_time: float = 0.03,
    jitter: float = 0.1,
    message_size: float = 6.8e6,
    iterations: int = 40,
    staleness: float | None = None,
    interval: int | None = None,
    crash_rate: float = 0.0,
    down: float = 10.0,
    seed: int = 0,
) -> dict[str, Any]:
    """Members in virtual time, `learners` on each host.

    `bandwidth` bytes/s of each host, both ways; `latency`, `step_time`, `down` seconds; `message_size` bytes of one
    message; `crash_rate` crashes of each host and hour; `staleness`, `interval` None: the architecture's default.
    What comes back: `efficiency` (steps/s against the same members computing alone), `staleness_max` and `_mean`
    (iterations that an averaged message was behind), `distance` (to consensus, relative), `waited` (share of the
    members' time held back by the process lock), `exchanged` (messages averaged in, of each iteration)."""
    learners = min(learners, members)
    _check(architecture, members, learners, graph)
    for name, value, least, finite in (
        ("bandwidth", bandwidth, 1, False),
        ("latency", latency, 0, True),
        ("loss", loss, 0, True),
        ("step-time", step_time, 1e-6, True),
        ("jitter", jitter, 0, True),
        ("message-size", message_size, 0, True),
        ("iterations", iterations, 4, True),
        ("staleness", staleness or 0, 0, False),
        ("interval", 1 if interval is None else interval, 1, True),
        ("crash-rate", crash_rate, 0, True),
        ("down", down, 0, False),
        ("seed", seed, 0, True),
    ):
        if not value >= least:
            raise UserError(f"--{name} {value}: must be at least {least}")
        if finite and value == math.inf:
            raise UserError(f"--{name} {value}: must be finite")
    bound = 16 if staleness is None else staleness
    if interval is not None and interval > room(bound):
        raise UserError(f"--interval {interval}: must be at most {room(bound):g}, a quarter of --staleness {bound:g}")
    if loss >= 1:
        raise UserError(f"--loss {loss}: must be below 1")
    hosts = members // learners
    wanted = graphs.Hierarchical(learners) if graph == "hierarchical" else GRAPHS[graph]
    work = Workload(iterations, step_time, jitter, seed=seed)
    period = max(2, iterations // 2)
    more: dict[str, Any] = (
        {"interval": interval} if staleness is None else {"interval": interval, "staleness": staleness}
    )
    build: Callable[..., Program] = partial(
        architectures.pala, hosts=hosts, learners=learners, graph=wanted, couriers=1, loop=stand_in, **more
    )
    network = Network(latency, bandwidth, loss, size=partial(_size, message_size))
    faults = Faults(crash_rate=crash_rate / 3600, down_seconds=down)
    began = time.perf_counter()
    simulation, ledger = Simulation(seed, network, faults), Ledger()
    torch.set_num_threads(1)
    simulation(build(work, envs=0, period=period, window=period // 2), ledger)
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
        "members": members,
        "hosts": hosts,
        "graph": graph,
        "iterations": iterations,
        "virtual_seconds": round(max(clocks.values()), 3),
        "crashes": len(simulation.crashes),
        "seconds": round(time.perf_counter() - began, 1),
    }


def _check(architecture: str, members: int, learners: int, graph: str) -> None:
    if architecture != "pala":
        raise UserError(f"simulate {architecture}: only pala crosses a network today")
    if members < 2:
        raise UserError(f"--members {members}: gossip needs at least two members")
    if learners < 1 or members % learners:
        raise UserError(f"--learners {learners}: must divide --members {members}, for each host has as many")
    if graph not in GRAPHS:
        raise UserError(f"--graph {graph}: no such graph{near(graph, GRAPHS)}; there is {', '.join(GRAPHS)}")


def _size(message_size: float, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Bytes on the network: each parcel counts as one with a model of real size."""
    packets = [packet for packet in args if isinstance(packet, np.ndarray)]
    return 100.0 + sum(message_size + HEADER.size if p[5] == PARCEL else p.nbytes for p in packets)


def quantity(option: str, text: str, unit: str) -> float:
    """`1Gb` (bits) or `125MB` as bytes, `40ms` as seconds. `UserError` for anything else."""
    found = re.fullmatch(r"([0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?|inf)\s*([kMGmu]?)(b|B|s)?(?:ps|/s)?", text.strip())
    fits = {"bytes": ("b", "B", None), "seconds": ("s", None)}[unit]
    if not found or found[3] not in fits:
        example = "1Gb (bits), 125MB (bytes)" if unit == "bytes" else "40ms, 0.04s"
        raise UserError(f"{option} {text}: not understood as {unit}; write it as {example}")
    return float(found[1]) * UNITS[found[2]] / (8 if found[3] == "b" else 1)
