"""The scenario of a simulation of gossip: members, the network between them, and faults."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.exchange import room
from gossamer.exchange.gossip import graphs
from gossamer.exchange.gossip.graphs import Graph
from gossamer.exchange.gossip.options import GRAPHS
from gossamer.system.errors import UserError, near
from gossamer.system.options import option
from gossamer.tools.simulate.quantity import BYTES, SECONDS
from gossamer.tools.simulate.scenario import bandwidth, check_scenario, crash_rate, down, latency, measured, seed


@dataclass(frozen=True)
class GossipScenario:
    """Members of PALA in virtual time. Raises `UserError` for an invalid value.

    Numbers are in SI units: bytes per second, seconds, bytes, and crashes per second of each host."""

    members: int = option("Learners on all hosts together.", 64)
    learners: int = option("Learners on each host.", 8)
    graph: str = option(f"Which member sends to which: {', '.join(GRAPHS)}.", "ring")
    bandwidth: float = bandwidth()
    latency: float = latency("40ms")
    loss: float = option("Probability that a call between hosts is lost.", 0.0, least=0, below=1)
    step_time: float = measured("Computing time of one iteration, at least 1us.", "30ms", SECONDS, floor=1e-6)
    jitter: float = option("Standard deviation of the computing time, relative to it.", 0.1, least=0)
    message_size: float = measured("Size of one member's parameters.", "6.8MB", BYTES)
    iterations: int = option("Optimizer steps of each member.", 40, least=4)
    staleness: float = option("Bound tau on staleness, in iterations; inf never blocks.", 16.0, least=0, infinite=True)
    interval: int | None = option(
        "Iterations from one exchange to the next.", None, least=1, hint="(default: 4, or a quarter of --staleness)"
    )
    crash_rate: float = crash_rate()
    down: float = down()
    seed: int = seed()

    def __post_init__(self) -> None:
        if self.members < 2:
            raise UserError(f"--members {self.members}: gossip needs at least two members")
        if self.learners < 1 or self.members % self.each:
            raise UserError(f"--learners {self.learners}: must divide --members {self.members}: all hosts are equal")
        if self.graph not in GRAPHS:
            raise UserError(
                f"--graph {self.graph}: no such graph{near(self.graph, GRAPHS)}; available: {', '.join(GRAPHS)}"
            )
        check_scenario(self)
        if self.interval is not None and self.interval > room(self.staleness):
            most = math.floor(room(self.staleness))
            raise UserError(
                f"--interval {self.interval}: must be at most {most}, a quarter of --staleness {self.staleness:g}"
            )

    @property
    def each(self) -> int:
        """Learners on each host."""
        return min(self.learners, self.members)

    @property
    def hosts(self) -> int:
        return self.members // self.each

    @property
    def wired(self) -> Graph:
        """The graph. A hierarchical graph uses the number of learners on each host."""
        return graphs.Hierarchical(self.each) if self.graph == "hierarchical" else GRAPHS[self.graph]

    @property
    def delivery(self) -> float:
        """Seconds for one message between two hosts on an idle network without loss."""
        return self.latency + self.message_size / self.bandwidth
