"""The commands `bench` and `simulate`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import tyro

from gossamer.commands.words import Architecture, AsJson
from gossamer.config.brief import OFTEN_BENCH, asked, text
from gossamer.config.command_line import dataclass_of, left_open, parse
from gossamer.options import option, options
from gossamer.storage.files import to_json

BENCH = "Measure the speed of a program and of its parts on this machine."


@options
class Measuring:
    """Options of `bench`: duration and number of measurements."""

    seconds: float = option("Duration of each measurement.", 3.0, above=0, most=86_400, measure="seconds")
    rounds: int = option("Rounds of all measurements; medians are reported.", 5, least=1, most=10_000)
    json: bool = option("Print one JSON object.", False)


def bench(words: Sequence[str]) -> None:
    """Measure the speed of a program and of its parts on this machine."""
    if asked(words):
        print(text("bench", BENCH, OFTEN_BENCH), end="")
        return
    from gossamer.config.composing import compose

    composed = compose(words, prog="gossamer bench", description=BENCH, command=(Measuring,))
    from gossamer.tools.bench import bench, round_seconds

    c, how = composed.choices, Measuring(**composed.command)
    made: dict[str, Any] = {"algorithm": c.algorithm, "optimizer": c.optimizer, "preset": c.preset, **c.given}
    from gossamer.tools.rounds import Rounds, RoundsDisplay

    with RoundsDisplay(Rounds(how.rounds, round_seconds(how.seconds))) as progress:
        found = bench(c.architecture, env=c.env, seconds=how.seconds, rounds=how.rounds, progress=progress, **made)
    if how.json:
        print(to_json(found))
        return
    for part in ("env", "inference", "update", "roofline", "whole"):
        print(f"{part:>10} {found[part]:>10,.0f} steps/s")
    print(f"{'ratio':>10} {found['ratio']:>10.2f} of the serial roofline; bound by {found['bound_by']}")


def simulate(words: Sequence[str]) -> None:
    """Simulate gossip in virtual time, over a network of your choice: the real exchange with small models.

    Quantities need a unit: 40ms, 1Gb/s, 6.8MB, 2/h."""
    from gossamer.tools.scenario import Scenario

    made = parse(
        _simulation(dataclass_of("Scene", Scenario)),
        words,
        prog="gossamer simulate",
        description=cleandoc(simulate.__doc__ or ""),
    )
    from gossamer.tools.figures import lines
    from gossamer.tools.simulate import simulate as run

    found = run(made.architecture, plot=made.plot, **vars(made.scenario))
    print(to_json(found) if made.json else "\n".join(lines(found)))
    for warning in found["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)


def _simulation(scene: Any) -> Any:
    @dataclass(frozen=True)
    class Simulate:
        architecture: Architecture
        scenario: Annotated[scene, tyro.conf.arg(name="")]
        plot: Annotated[
            Path | None,
            left_open(
                "A .png file to plot distance, efficiency and staleness over virtual time to.", Path, "(default: none)"
            ),
        ] = None
        json: AsJson = False

    Simulate.__annotations__["scenario"] = Annotated[scene, tyro.conf.arg(name="")]
    return Simulate
