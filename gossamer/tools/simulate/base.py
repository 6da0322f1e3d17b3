"""The description of an architecture for a simulation, and one simulation that has run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.program import Program
from gossamer.tools.simulate.figures import Figure
from gossamer.tools.simulate.ledger import Ledger
from gossamer.tools.simulate.picture import Panel


class Scenario(Protocol):
    """The options of a simulation: a dataclass that checks its values when it is made."""

    @property
    def seed(self) -> int: ...


S = TypeVar("S", bound=Scenario)


@dataclass(frozen=True)
class Simulated(Generic[S]):
    """An architecture that can be simulated: everything in which it differs from the others."""

    scenario: type[S]  # its fields are the options
    program: Callable[[S], Program]  # the architecture's, with workers that compute nothing
    network: Callable[[S], Network]
    faults: Callable[[S], Faults]
    ledger: Callable[[S, Simulation], Ledger]
    figures: Sequence[Figure]  # the printed table, from top to bottom, and the units in JSON
    measure: Callable[[Run[S]], dict[str, Any]]  # the figures by key, and what only JSON has
    warnings: Callable[[S, Mapping[str, Any]], list[str]]  # (scenario, figures) -> what may mislead, in sentences
    summary: Callable[[Mapping[str, Any]], list[str]]  # JSON -> the lines above the table
    title: Callable[[S, Mapping[str, Any]], str]  # of the plot; (scenario, its options as text)
    panels: Callable[[Run[S], Mapping[str, Any]], Sequence[Panel]]  # of the plot; (run, figures)


@dataclass(frozen=True)
class Run(Generic[S]):
    """A simulation that has run."""

    scenario: S
    simulation: Simulation
    ledger: Ledger
    seconds: float  # of real time
