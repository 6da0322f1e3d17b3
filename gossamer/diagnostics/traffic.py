"""Message traffic, summed over members and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gossamer.diagnostics.histograms import coarse
from gossamer.exchange.gossip.records import Traffic

NEWEST = 32  # messages that an edge's staleness is averaged over


@dataclass(frozen=True)
class Edge:
    """The messages of one member that another one has averaged."""

    messages: int = 0
    staleness: float = 0.0  # iterations, mean over about the `NEWEST` messages; 0 of senders that are ahead

    def after(self, messages: int, staleness: int) -> Edge:
        """With that many messages more, and the sum of their staleness."""
        total = self.messages + messages
        weight = max(messages / total, min(1.0, messages / NEWEST))
        return Edge(total, self.staleness + weight * (staleness / messages - self.staleness))


@dataclass
class Totals:
    """Sum of all members' traffic."""

    sent: int = 0
    mixed: int = 0
    refused: int = 0
    waited: float = 0.0  # seconds, summed over members
    staleness: Counter[int] = field(default_factory=Counter)  # iterations behind (< 0: ahead), see `coarse` -> messages
    ages: Counter[int] = field(default_factory=Counter)  # floor(log2 milliseconds) -> messages
    edges: dict[tuple[int, int], Edge] = field(default_factory=dict)  # (sender, receiver)
    sent_bytes: int = 0  # see `records.Traffic`
    # Not part of `to_dict`, since they are counted from the start of this process, not of the run:
    cpu: float = 0.0  # seconds of CPU time of the members' threads
    cpu_diagnostics: float = 0.0  # seconds of `cpu` spent on records

    def add(self, traffic: Traffic) -> None:
        """Add one member's report."""
        self.sent += traffic.sent
        self.sent_bytes += traffic.sent_bytes
        self.mixed += traffic.mixed
        self.refused += traffic.refused
        self.waited += traffic.waited
        for behind, messages in traffic.staleness.items():
            self.staleness[coarse(behind)] += messages
        self.ages.update(traffic.ages)
        self.cpu += traffic.cpu
        self.cpu_diagnostics += traffic.cpu_diagnostics
        for edge, (count, staleness) in traffic.edges.items():
            self.edges[edge] = self.edges.get(edge, Edge()).after(count, staleness)

    def to_dict(self) -> dict[str, Any]:
        """Return data for JSON; histogram keys are strings, in numerical order."""
        counts = {name: {str(k): n for k, n in sorted(getattr(self, name).items())} for name in ("staleness", "ages")}
        edges = [
            {"from": sender, "to": receiver, "messages": edge.messages, "staleness": edge.staleness}
            for (sender, receiver), edge in sorted(self.edges.items())
        ]
        sums = {name: getattr(self, name) for name in ("sent", "sent_bytes", "mixed", "refused", "waited")}
        return {**sums, **counts, "edges": edges}

    @staticmethod
    def from_dict(state: dict[str, Any]) -> Totals:
        """Restore the result of `to_dict`."""
        staleness, ages = ({int(k): int(n) for k, n in state[name].items()} for name in ("staleness", "ages"))
        edges = {  # like `sent_bytes`, not in older files
            (each["from"], each["to"]): Edge(each["messages"], each["staleness"]) for each in state.get("edges", [])
        }
        counts = (state["sent"], state["mixed"], state["refused"], state["waited"])
        return Totals(*counts, Counter(staleness), Counter(ages), edges, state.get("sent_bytes", 0))


def staleness(behind: Mapping[int, int]) -> tuple[float | None, int | None]:
    """Return mean and maximum of a histogram of iterations, in which senders ahead of their receivers count as 0; None
    without messages."""
    total = sum(behind.values())
    if not total:
        return None, None
    return sum(max(0, k) * count for k, count in behind.items()) / total, max(0, *behind)


def median_age(ages: Counter[int]) -> float | None:
    """Return the median age in milliseconds (the geometric centre of its bin); None without messages."""
    passed = 0
    for bin_, count in sorted(ages.items()):
        passed += count
        if 2 * passed >= ages.total():
            return float(2.0 ** (bin_ + 0.5))
    return None
