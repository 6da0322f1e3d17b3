"""The commands `bench` and `simulate`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from gossamer.commands.output import only_json
from gossamer.commands.words import AsJson
from gossamer.config.brief import OFTEN_BENCH, asked, text
from gossamer.config.command_line import asks_for_help, dataclass_of, left_open, parse
from gossamer.storage.files import to_json
from gossamer.system.errors import UserError
from gossamer.system.options import in_words, option, options

if TYPE_CHECKING:
    from gossamer.config.resolve import Choices

BENCH = "Measure the speed of a program and of its parts on this machine."


@options
class Measuring:
    """Options of `bench`: duration and number of measurements."""

    seconds: float = option("Duration of each measurement.", 3.0, above=0, most=86_400, measure="seconds")
    rounds: int = option("Rounds of all measurements; medians are reported.", 5, least=1, most=10_000)
    find: bool = option("Try settings for a minute, and print the fastest command for this machine.", False)
    json: bool = option("Print one JSON object.", False)


def bench(words: Sequence[str]) -> None:
    """Measure the speed of a program and of its parts on this machine."""
    if asked(words):
        print(text("bench", BENCH, OFTEN_BENCH), end="")
        return
    from gossamer.config.composing import compose
    from gossamer.system.machine import keep_freed_memory

    keep_freed_memory()  # before environments are tried, in threads
    with only_json("--json" in words and not asks_for_help(words)):  # a user's module may print
        composed = compose(words, prog="gossamer bench", description=BENCH, command=(Measuring,))
    from gossamer.tools.bench import measure, round_seconds
    from gossamer.tools.rounds import Rounds, RoundsDisplay

    how = Measuring(**composed.command)
    if how.find and how.rounds != Measuring.rounds:
        raise UserError(f"--rounds {how.rounds}: has no effect with --find; leave it out")
    if how.find:
        _find(composed.choices, how)
        return
    length = round_seconds(how.seconds, alternating=composed.choices.options.get("alternating", False))
    with only_json(how.json), RoundsDisplay(Rounds(how.rounds, length)) as progress:
        figures = measure(composed.choices, how.seconds, how.rounds, progress)
    if how.json:
        print(to_json(figures))
        return
    apart = "acting" in figures
    shown = ("env", "inference", "update", *(("acting", "learning", "cores") * apart), "roofline", "plain", "whole")
    for part in (each for each in shown if each in figures):
        print(f"{part:>10} {figures[part]:>10,.0f} steps/s")
    print(f"{'frames':>10} {figures['frames_per_second']:>10,.0f} frames/s")
    print(f"{'busy':>10} {figures['busy']:>10.2f} of {figures['machine']['cores']} cores")
    if "gpu_watts" in figures:
        gpu = "{gpu_utilization:>10.0%} busy, {gpu_memory_gb:.1f} GB, {gpu_watts:.0f} W".format_map(figures)
        print(f"{'GPU':>10} {gpu}")
        print(f"{'energy':>10} {figures['frames_per_joule']:>10.1f} frames a joule of the GPU")
    kind = "roofline of acting and learning at the same time" if apart else "serial roofline"
    kind += ", environments and inference overlapped" * ("plain" in figures)
    print(f"{'ratio':>10} {figures['ratio']:>10.2f} of the {kind}; bound by {figures['bound_by']}")


def _find(choices: Choices, how: Measuring) -> None:
    """Print the fastest settings, and on stderr each trial."""
    from gossamer.tools.find import Trial, find

    def told(trial: Trial) -> None:
        settings = " ".join(word for item in trial.settings.items() for word in in_words(*item)) or "the defaults"
        print(f"{trial.steps_per_second:>10,.0f} steps/s with {settings}", file=sys.stderr, flush=True)

    with only_json(how.json):
        found = find(choices, how.seconds, told)
    if len(found["trials"]) == 1:
        print("bench: only the defaults were tried: others are given, or take longer than a minute", file=sys.stderr)
    if how.json:
        print(to_json(found))
        return
    gain = found["steps_per_second"] / found["default_steps_per_second"]
    print(f"fastest: {found['steps_per_second']:,.0f} steps/s, {gain:.2f} times the defaults")
    print(found["command"])


SIMULATE = """Simulate an architecture in virtual time, over a network of your choice: its real services, with
workers that compute nothing. Quantities need a unit: 40ms, 1Gb/s, 6.8MB, 2/h."""
SIMULATE_BRIEF = f"""usage: gossamer simulate ARCHITECTURE [OPTIONS]

{SIMULATE}

  pala, sarsa     members that gossip: efficiency, staleness, distance
  impala, appo    actors and learners apart: utilisation, policy lag, queue, traffic
  gorila          bundles and a parameter server: updates, staleness, traffic
  a2c             learners that average their gradients: updates, time of an exchange, traffic

The options depend on the architecture: gossamer simulate impala --help
"""


def simulate(words: Sequence[str]) -> None:
    """Simulate an architecture in virtual time, over a network of your choice."""
    name = next((word for word in words if not word.startswith("-")), None)
    if name is None and asks_for_help(words):
        print(SIMULATE_BRIEF, end="")
        return
    from gossamer.tools.simulate import run as tool

    if name is None or words[0] != name:
        raise UserError(f"simulate: the first word must be an architecture: {', '.join(tool.SIMULATED)}")
    scenario = dataclass_of("Scene", tool.simulated(name).scenario)
    made = parse(_simulation(scenario), words[1:], prog=f"gossamer simulate {name}", description=SIMULATE)
    figures = tool.simulate(name, plot=made.plot, **vars(made.scenario))
    print(to_json(figures) if made.json else "\n".join(tool.lines(name, figures)))
    for warning in figures["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)


def _simulation(scene: Any) -> Any:
    @dataclass(frozen=True)
    class Simulate:
        scenario: Annotated[scene, tyro.conf.arg(name="")]
        plot: Annotated[Path | None, left_open("A .png file for a plot.", Path, "(default: none)")] = None
        json: AsJson = False

    Simulate.__annotations__["scenario"] = Annotated[scene, tyro.conf.arg(name="")]
    return Simulate
