"""The scenario of a simulation of gossip: members, the network between them, and faults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast, get_args

from gossamer.exchange import room
from gossamer.exchange.gossip import graphs
from gossamer.exchange.gossip.formats import BLOCK, FORMATS, Format, length
from gossamer.exchange.gossip.graphs import Graph
from gossamer.exchange.gossip.options import GRAPHS
from gossamer.exchange.gossip.sparse import Select, Sparse
from gossamer.system.errors import UserError, near
from gossamer.system.options import option
from gossamer.tools.simulate.quantity import BYTES, SECONDS
from gossamer.tools.simulate.scenario import bandwidth, check_scenario, crash_rate, down, latency, measured, seed
from gossamer.tools.simulate.stand_in import ELEMENTS

SELECTED = get_args(Select)
STALENESS = 16.0  # iterations; any other value is refused in lock-step
SELECT = "With --share below 1: random, rotation, or changed (complete graph, in lock-step)."


def bytes_of(form: Format) -> float:
    """Bytes of a parameter in this format."""
    return length(BLOCK, form) / BLOCK


@dataclass(frozen=True)
class GossipScenario:
    """Members of PALA in virtual time. Raises `UserError` for an invalid value.

    Numbers are in SI units: bytes per second, seconds, bytes, and crashes per second of each host."""

    members: int = option("Learners on all hosts together.", 64)
    learners: int = option("Learners on each host.", 8)
    group_size: int = option("Learners that average their gradients at each step and gossip as one member.", 1, least=1)
    graph: str = option(f"Which member sends to which: {', '.join(GRAPHS)}.", "ring")
    bandwidth: float = bandwidth()
    latency: float = latency("40ms")
    loss: float = option("Probability that a call between hosts is lost.", 0.0, least=0, below=1)
    step_time: float = measured("Computing time of one iteration, at least 1us.", "30ms", SECONDS, floor=1e-6)
    jitter: float = option("Standard deviation of the computing time, relative to it.", 0.1, least=0)
    message_size: float = measured("Size of one member's parameters.", "6.8MB", BYTES)
    iterations: int = option("Optimizer steps of each member.", 40, least=4)
    staleness: float = option(
        "Bound tau on staleness, in iterations; inf never blocks.", STALENESS, least=0, infinite=True
    )
    interval: int | None = option(
        "Iterations from one exchange to the next.", None, least=1, hint="(default: 4, or a quarter of --staleness)"
    )
    share: float = option("Share of the parameters that each message has; 1: all.", 1.0, above=0, most=1)
    select: str = option(SELECT, "random")
    message_format: str = option(f"Number format of parameters sent between hosts: {', '.join(FORMATS)}.", "fp32")
    error_feedback: bool = option("Add to each message what was rounded off of earlier ones.", False)
    outer_momentum: float = option("Nesterov momentum of the local steps between two averages.", 0.0, least=0, below=1)
    outer_learning_rate: float = option("Factor of the local steps between two averages.", 1.0, above=0, most=10)
    staleness_decay: float = option("Divide a message's weight by 1 + its age to this power.", 0.0, least=0, most=10)
    to_distance: float | None = option(
        "Let members begin apart, step at random, and measure time and bytes until the farthest one is this near to "
        "their mean.",
        None,
        above=0,
        below=1,
        hint="(relative to the norm of the mean)",
    )
    crash_rate: float = crash_rate()
    down: float = down()
    seed: int = seed()

    def __post_init__(self) -> None:
        check_scenario(self)
        if self.members < 2:
            raise UserError(f"--members {self.members}: gossip needs at least two members")
        if self.learners < 1 or self.members % self.each:
            raise UserError(f"--learners {self.learners}: must divide --members {self.members}: all hosts are equal")
        if self.each % self.group_size:
            raise UserError(f"--group-size {self.group_size}: must divide the {self.each} learners of each host")
        if self.groups < 2:
            raise UserError(f"--group-size {self.group_size}: with --members {self.members} there is only one group")
        if self.graph not in GRAPHS:
            raise UserError(
                f"--graph {self.graph}: no such graph{near(self.graph, GRAPHS)}; available: {', '.join(GRAPHS)}"
            )
        if self.select not in SELECTED:
            raise UserError(f"--select {self.select}: must be one of {', '.join(SELECTED)}")
        self._check_formats()
        self._check_graph()
        if self.interval is not None and not self.lock_step and self.interval > room(self.staleness):
            most = math.floor(room(self.staleness))
            raise UserError(
                f"--interval {self.interval}: must be at most {most}, a quarter of --staleness {self.staleness:g}"
            )

    def _check_graph(self) -> None:
        if self.lock_step and self.graph != "complete":
            raise UserError(f"--select changed: needs --graph complete, not {self.graph}, or use --select rotation")

    def _check_formats(self) -> None:
        if self.message_format not in FORMATS:
            raise UserError(f"--message-format {self.message_format}: must be one of {', '.join(FORMATS)}")
        if self.error_feedback and self.message_format == "fp32":
            raise UserError("--error-feedback: has no effect with --message-format fp32, which does not round")
        if self.lock_step and self.staleness != STALENESS:
            raise UserError(f"--staleness {self.staleness:g}: has no effect in lock-step")
        if self.lock_step and self.staleness_decay:
            raise UserError(f"--staleness-decay {self.staleness_decay:g}: has no effect in lock-step")
        if self.chosen and self.message_format != "fp32" and not self.error_feedback:
            raise UserError(f"--message-format {self.message_format}: with --select changed, add --error-feedback")

    @property
    def form(self) -> Format:
        """The number format of messages between hosts."""
        return cast(Format, self.message_format)

    @property
    def elements(self) -> int:
        """Parameters of a member that computes nothing: at least one for each message."""
        return ELEMENTS * math.ceil(1 / (ELEMENTS * self.share))

    @property
    def chosen(self) -> bool:
        """Whether a member sends the parameters that have changed most, with their indices."""
        return self.share < 1 and self.select == "changed"

    @property
    def lock_step(self) -> bool:
        """Whether each member waits for the messages of the same iteration."""
        return self.chosen

    @property
    def sparse(self) -> Sparse | None:
        """Which parameters are exchanged; None: all."""
        return None if self.share == 1 else Sparse(self.share, cast(Select, self.select), self.seed)

    @property
    def each(self) -> int:
        """Learners on each host."""
        return min(self.learners, self.members)

    @property
    def hosts(self) -> int:
        return self.members // self.each

    @property
    def groups(self) -> int:
        """Members that gossip, on all hosts together."""
        return self.members // self.group_size

    @property
    def wired(self) -> Graph:
        """The graph. A hierarchical graph uses the number of groups on each host."""
        return graphs.Hierarchical(self.each // self.group_size) if self.graph == "hierarchical" else GRAPHS[self.graph]

    @property
    def whole_size(self) -> float:
        """Bytes of a message with all parameters, as the first one after a change of the membership."""
        return self.message_size / 4 * bytes_of(self.form)

    @property
    def sent_size(self) -> float:
        """Bytes of a message with a share. Parameters that a member chooses by itself have an index of four bytes."""
        return self.share * (self.whole_size + self.message_size * self.chosen)

    @property
    def delivery(self) -> float:
        """Seconds for one message between two hosts on an idle network without loss."""
        return self.latency + self.sent_size / self.bandwidth


@dataclass(frozen=True)
class SarsaScenario(GossipScenario):
    """Agents of parallel Sarsa: a complete graph in lock-step, and tables of a few kilobytes, of which a tenth is
    exchanged."""

    graph: str = option("Which member sends to which; sarsa has a complete graph.", "complete")
    step_time: float = measured("Computing time of one iteration, at least 1us.", "10ms", SECONDS, floor=1e-6)
    message_size: float = measured("Size of one member's parameters.", "8kB", BYTES)
    interval: int | None = option("Iterations from one exchange to the next.", 16, least=1)
    iterations: int = option("Optimizer steps of each member.", 160, least=4)
    share: float = option("Share of the parameters that each message has; 1: all.", 0.1, above=0, most=1)
    select: str = option("With --share below 1: random, rotation, or changed.", "changed")

    @property
    def lock_step(self) -> bool:
        """Always."""
        return True

    def _check_graph(self) -> None:
        if self.graph != "complete":
            raise UserError(f"--graph {self.graph}: sarsa sends to all others; leave it out, or simulate pala")
