"""The scenario of a simulation of gossip: members, the network between them, and faults."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.exchange import room
from gossamer.exchange.gossip import graphs
from gossamer.exchange.gossip.graphs import Graph
from gossamer.exchange.gossip.options import GRAPHS
from gossamer.exchange.gossip.sparse import Sparse
from gossamer.system.errors import UserError, near
from gossamer.system.options import option
from gossamer.tools.simulate.quantity import BYTES, SECONDS
from gossamer.tools.simulate.scenario import bandwidth, check_scenario, crash_rate, down, latency, measured, seed

SELECTED = ("random", "changed")


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
    share: float = option("Share of the parameters that each message has; 1: all.", 1.0, above=0, most=1)
    select: str = option("With --share below 1: random, or changed (complete graph, in lock-step).", "random")
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
        if self.select not in SELECTED:
            raise UserError(f"--select {self.select}: must be one of {', '.join(SELECTED)}")
        if self.lock_step and self.graph != "complete":
            raise UserError(f"--select changed: needs --graph complete, not {self.graph}, or use --select random")
        check_scenario(self)
        if self.interval is not None and not self.lock_step and self.interval > room(self.staleness):
            most = math.floor(room(self.staleness))
            raise UserError(
                f"--interval {self.interval}: must be at most {most}, a quarter of --staleness {self.staleness:g}"
            )

    @property
    def lock_step(self) -> bool:
        """Whether each member waits for the messages of the same iteration."""
        return self.share < 1 and self.select == "changed"

    @property
    def sparse(self) -> Sparse | None:
        """Which parameters are exchanged; None: all."""
        return None if self.share == 1 else Sparse(self.share, "changed" if self.lock_step else "random", self.seed)

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
    def sent_size(self) -> float:
        """Bytes of one message. Parameters that a member chooses by itself have an index, as large as their value."""
        return self.message_size * self.share * (2 if self.lock_step else 1)

    @property
    def delivery(self) -> float:
        """Seconds for one message between two hosts on an idle network without loss."""
        return self.latency + self.sent_size / self.bandwidth


@dataclass(frozen=True)
class SarsaScenario(GossipScenario):
    """Agents of parallel Sarsa, with other defaults: tables of a few kilobytes, of which a tenth is exchanged."""

    graph: str = option(f"Which member sends to which: {', '.join(GRAPHS)}.", "complete")
    step_time: float = measured("Computing time of one iteration, at least 1us.", "10ms", SECONDS, floor=1e-6)
    message_size: float = measured("Size of one member's parameters.", "8kB", BYTES)
    interval: int | None = option("Iterations from one exchange to the next.", 16, least=1)
    iterations: int = option("Optimizer steps of each member.", 160, least=4)
    share: float = option("Share of the parameters that each message has; 1: all.", 0.1, above=0, most=1)
    select: str = option("With --share below 1: random, or changed (complete graph, in lock-step).", "changed")
