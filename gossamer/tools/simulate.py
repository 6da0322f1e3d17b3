"""Simulates architectures at scale: their real services in virtual time, over a modelled network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.architectures import IMPALA, PALA
from gossamer.config.names import ARCHITECTURES, load
from gossamer.errors import UserError, near
from gossamer.tools.actors import figures as of_actors
from gossamer.tools.actors import run as actors
from gossamer.tools.actors.scenario import ActorScenario
from gossamer.tools.gossip import figures as of_gossip
from gossamer.tools.gossip import members as gossip
from gossamer.tools.gossip.scenario import Scenario
from gossamer.tools.measured import from_text


@dataclass(frozen=True)
class Simulator:
    """How a kind of architecture is simulated."""

    scenario: type[Any]  # a dataclass, whose fields are the options
    run: Callable[[str, Any, Path | None], dict[str, Any]]  # (architecture, scenario, plot) -> figures by name
    lines: Callable[[Mapping[str, Any]], list[str]]  # the printed form of the figures


GOSSIP = Simulator(Scenario, gossip.simulated, of_gossip.lines)
ACTORS = Simulator(ActorScenario, actors.simulated, of_actors.lines)
FAMILIES: dict[type, Simulator] = {PALA: GOSSIP, IMPALA: ACTORS}  # and what derives from them


def _simulators() -> Iterator[tuple[str, Simulator]]:
    """Every architecture that can be simulated, by name."""
    for name in ARCHITECTURES:
        kind = load("architecture", name, ARCHITECTURES)
        yield from ((name, simulator) for family, simulator in FAMILIES.items() if issubclass(kind, family))


SIMULATORS = dict(_simulators())


def simulator(architecture: str) -> Simulator:
    """Raises `UserError` for an architecture that cannot be simulated."""
    if architecture not in SIMULATORS:
        names = ", ".join(SIMULATORS)
        raise UserError(f"simulate {architecture}: must use a network: {names}{near(architecture, SIMULATORS)}")
    return SIMULATORS[architecture]


def simulate(architecture: str = "pala", *, plot: str | Path | None = None, **given: Any) -> dict[str, Any]:
    """Simulate an architecture in virtual time. `given` are fields of its scenario, `Scenario` for members that gossip
    and `ActorScenario` for actors and learners apart: text with a unit ("1Gb/s", "40ms"), or numbers in SI units (bytes
    per second, seconds, bytes, crashes per second). `plot`: a .png file for a plot.

    Returns the figures by name (`FIGURES` of `tools.gossip.figures` and `tools.actors.figures` describe them), their
    `units`, `warnings` (sentences) and the `scenario`. Raises `UserError` for an invalid value, before the simulation
    starts."""
    chosen = simulator(architecture)
    if plot is not None:
        check_picture(Path(plot))
    return chosen.run(architecture, from_text(chosen.scenario, given), None if plot is None else Path(plot))


def check_picture(path: Path) -> None:
    """Raise `UserError` if no .png file can be written to this path."""
    if path.suffix != ".png":
        raise UserError(f"--plot {path}: must end in .png")
    if not path.parent.is_dir():
        raise UserError(f"--plot {path}: there is no directory {path.parent}")
    if path.is_dir():
        raise UserError(f"--plot {path}: is a directory")
