"""What is simulated: members, the network between them, and what goes wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gossamer.errors import UserError, near
from gossamer.exchange import room
from gossamer.exchange.gossip import graphs
from gossamer.exchange.gossip.graphs import Graph
from gossamer.exchange.gossip.options import GRAPHS
from gossamer.options import check_ranges, flag, option

UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "m": 1e-3, "u": 1e-6}


def quantity(option: str, text: str, unit: str) -> float:
    """`1Gb` (bits) or `125MB` as bytes, `40ms` as seconds. `UserError` for anything else."""
    found = re.fullmatch(r"([0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?|inf)\s*([kMGmu]?)(b|B|s)?(?:ps|/s)?", text.strip())
    fits = {"bytes": ("b", "B", None), "seconds": ("s", None)}[unit]
    if not found or found[3] not in fits:
        example = "1Gb (bits), 125MB (bytes)" if unit == "bytes" else "40ms, 0.04s"
        raise UserError(f"{option} {text}: not understood as {unit}; write it as {example}")
    return float(found[1]) * UNITS[found[2]] / (8 if found[3] == "b" else 1)


def measure(text: str, default: str, unit: str, **limits: Any) -> Any:
    """A knob in bytes or seconds, typed as a `quantity`."""
    return option(text, quantity("", default, unit), unit=unit, typed=default, **limits)


@dataclass(frozen=True)
class Scenario:
    """Members of PALA in virtual time. `UserError` where a value cannot be used."""

    members: int = option("Learners on all hosts.", 64)
    learners: int = option("Of them, on each host.", 8)
    graph: str = option(f"Who sends to whom: {', '.join(GRAPHS)}.", "ring")
    bandwidth: float = measure(
        "Of each host, both ways: 1Gb (bits) or 125MB (bytes) a second.", "1Gb", "bytes", least=1, infinite=True
    )
    latency: float = measure("Between hosts, one way.", "40ms", "seconds", least=0)
    loss: float = option("Probability that a call between hosts is lost.", 0.0, least=0, below=1)
    step_time: float = measure("Of computing one iteration.", "30ms", "seconds", least=1e-6)
    jitter: float = option("Relative deviation of it.", 0.1, least=0)
    message_size: float = measure("Of one member's parameters.", "6.8MB", "bytes", least=0)
    iterations: int = option("Steps of each member.", 40, least=4)
    staleness: float = option("Bound tau on staleness; inf never blocks.", 16.0, least=0, infinite=True)
    interval: int | None = option(
        "Iterations from one exchange to the next.", None, least=1, hint="(default: 4, or a quarter of --staleness)"
    )
    crash_rate: float = option("Crashes of each host and hour.", 0.0, least=0)
    down: float = measure("How long a crashed host is away.", "10s", "seconds", least=0, infinite=True)
    seed: int = option("All random streams follow from it.", 0, least=0)

    def __post_init__(self) -> None:
        if self.members < 2:
            raise UserError(f"--members {self.members}: gossip needs at least two members")
        if self.learners < 1 or self.members % self.each:
            raise UserError(
                f"--learners {self.learners}: must divide --members {self.members}, for each host has as many"
            )
        if self.graph not in GRAPHS:
            raise UserError(
                f"--graph {self.graph}: no such graph{near(self.graph, GRAPHS)}; there is {', '.join(GRAPHS)}"
            )
        check_ranges(self)
        if self.interval is not None and self.interval > room(self.staleness):
            most = math.floor(room(self.staleness))
            raise UserError(
                f"--interval {self.interval}: must be at most {most}, a quarter of --staleness {self.staleness:g}"
            )

    @property
    def each(self) -> int:
        """Learners of each host."""
        return min(self.learners, self.members)

    @property
    def hosts(self) -> int:
        return self.members // self.each

    @property
    def wired(self) -> Graph:
        """The graph; a hierarchical one by hosts."""
        return graphs.Hierarchical(self.each) if self.graph == "hierarchical" else GRAPHS[self.graph]


def scenario(given: Mapping[str, Any]) -> Scenario:
    """A scenario of numbers, or of quantities as text; None is the default."""
    units = {knob.name: knob.metadata.get("unit") for knob in fields(Scenario)}
    for name in given:
        if name not in units:
            raise UserError(f"unknown option {flag(name)}{near(name, units)}")
    numbers: dict[str, Any] = {
        name: quantity(flag(name), value, str(units[name])) if units[name] and isinstance(value, str) else value
        for name, value in given.items()
        if value is not None
    }
    return Scenario(**numbers)
