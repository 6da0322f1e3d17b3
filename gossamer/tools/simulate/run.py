"""`simulate`: run a scenario in virtual time; figures, printed lines and a plot of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gossamer.architectures import IMPALA, PALA, Gorila, ParallelSarsa, SynchronousA2C
from gossamer.config.names import ARCHITECTURES, load
from gossamer.launch.simulation import Simulation
from gossamer.system.errors import UserError, near
from gossamer.system.machine import single_threaded
from gossamer.tools.simulate.actors import impala
from gossamer.tools.simulate.all_reduce import a2c
from gossamer.tools.simulate.base import Run, S, Simulated
from gossamer.tools.simulate.figures import table, units
from gossamer.tools.simulate.gossip import pala
from gossamer.tools.simulate.picture import draw
from gossamer.tools.simulate.scenario import from_text, in_units
from gossamer.tools.simulate.server import gorila

# How an architecture, and what derives from it, is simulated: from its name
FAMILIES: dict[type, Callable[[str], Simulated[Any]]] = {
    PALA: lambda name: pala.PALA,
    IMPALA: impala.simulated,
    Gorila: lambda name: gorila.GORILA,
    ParallelSarsa: lambda name: pala.SARSA,
    SynchronousA2C: lambda name: a2c.A2C,
}


def _simulated() -> Iterator[tuple[str, Simulated[Any]]]:
    """Every architecture that can be simulated, with its name."""
    for name in ARCHITECTURES:
        kind = load("architecture", name, ARCHITECTURES)
        yield from ((name, simulated(name)) for family, simulated in FAMILIES.items() if issubclass(kind, family))


SIMULATED = dict(_simulated())


def simulated(architecture: str) -> Simulated[Any]:
    """Raises `UserError` for an architecture that cannot be simulated."""
    if architecture not in SIMULATED:
        names = ", ".join(SIMULATED)
        raise UserError(f"simulate {architecture}: must use a network: {names}{near(architecture, SIMULATED)}")
    return SIMULATED[architecture]


def simulate(architecture: str = "pala", *, plot: str | Path | None = None, **given: Any) -> dict[str, Any]:
    """Simulate an architecture in virtual time. `given` are fields of its scenario, `GossipScenario` for pala,
    `SarsaScenario` for sarsa, `ActorScenario` for impala and appo, `ServerScenario` for gorila, `AllReduceScenario` for
    a2c: text with a unit ("1Gb/s", "40ms"), or numbers in SI units (bytes per second, seconds, bytes, crashes per
    second). `plot`: a .png file for a plot.

    Returns the figures by name (`FIGURES` of `gossip.figures`, `actors.figures`, `server.figures` and
    `all_reduce.figures` describe them), their `units`, `warnings` (sentences) and the `scenario`. Raises `UserError`
    for an invalid value, before the simulation starts."""
    kind = simulated(architecture)
    if plot is not None:
        check_picture(Path(plot))
    scenario = from_text(kind.scenario, given)
    ran = run(kind, scenario)
    figures, options = kind.measure(ran), in_units(scenario)
    if plot is not None:
        draw(Path(plot), kind.title(scenario, options), kind.panels(ran, figures))
    told = {"units": units(kind.figures), "warnings": kind.warnings(scenario, figures), "scenario": options}
    return {**figures, **told}


def run(kind: Simulated[S], scenario: S) -> Run[S]:
    """Run the simulation of a scenario."""
    began = time.perf_counter()
    simulation = Simulation(scenario.seed, kind.network(scenario), kind.faults(scenario))
    ledger = kind.ledger(scenario, simulation)
    with single_threaded():
        simulation(kind.program(scenario), ledger)
    return Run(scenario, simulation, ledger, time.perf_counter() - began)


def lines(architecture: str, figures: Mapping[str, Any]) -> list[str]:
    """The printed output of `simulate`: the scenario, then one aligned line for each figure, with its unit."""
    kind = simulated(architecture)
    bound = [f"bound by {figures['bound_by']}"] if "bound_by" in figures else []
    return [*kind.summary(figures), "", *table(kind.figures, figures), *bound]


def check_picture(path: Path) -> None:
    """Raise `UserError` if no .png file can be written to this path."""
    if path.suffix != ".png":
        raise UserError(f"--plot {path}: must end in .png")
    if not path.parent.is_dir():
        raise UserError(f"--plot {path}: there is no directory {path.parent}")
    if path.is_dir():
        raise UserError(f"--plot {path}: is a directory")
